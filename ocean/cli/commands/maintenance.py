"""`ocean limit`, `sweep`, `delete-session` and `migrate`."""

from contextlib import nullcontext
from typing import Annotated

import typer

from ocean.cli.options import Actor, Clogs, Db, Json, RequestKey, Yes

limit_app = typer.Typer(help="How many runs of a concurrency key may work at once.", no_args_is_help=True)

KeyName = Annotated[str, typer.Argument(metavar="KEY", help="The concurrency key.")]


@limit_app.command("set")
def set_limit(
    key: KeyName,
    limit: Annotated[int, typer.Argument(metavar="N", min=0, help="How many at once; 0 stops them.")],
    actor: Actor = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Set the limit of a key. Runs that hold it are not interrupted."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run
    from ocean.cli.tables import keys_table

    async def work(ocean: Ocean, screen: Screen) -> None:
        info = await ocean.set_limit(key, limit, actor=actor)
        screen.json(info) if screen.is_json else screen.show(keys_table([info]))

    run(work, db, clogs, is_json)


@limit_app.command("get")
def get_limit(key: KeyName, db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """Show the limit of a key, how many runs hold it and how many wait."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run
    from ocean.cli.tables import keys_table

    async def work(ocean: Ocean, screen: Screen) -> None:
        info = await ocean.get_key(key)
        screen.json(info) if screen.is_json else screen.show(keys_table([info]))

    run(work, db, clogs, is_json)


@limit_app.command("list")
def list_limits(
    after: Annotated[str, typer.Option("--after", metavar="KEY", help="List the keys after this one.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many keys.")] = 100,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """List the keys that are in use, or have a limit other than 1."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run
    from ocean.cli.tables import keys_table

    async def work(ocean: Ocean, screen: Screen) -> None:
        keys = await ocean.list_keys(after=after, limit=limit)
        if screen.is_json:
            screen.json(keys)
        elif keys:
            screen.show(keys_table(keys))
        else:
            screen.print("no keys")

    run(work, db, clogs, is_json)


def sweep(
    events: Annotated[
        str | None, typer.Option("--events", metavar="AGE", help="Remove events older than this: 30d.")
    ] = None,
    runs: Annotated[
        str | None, typer.Option("--runs", metavar="AGE", help="Remove runs that ended longer ago: 7d.")
    ] = None,
    requests: Annotated[
        str, typer.Option("--requests", metavar="AGE", help="Remove results of request keys older than this.")
    ] = "1d",
    batches: Annotated[int, typer.Option("--batches", metavar="N", min=1, help="Stop after N batches.")] = 1_000,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Remove old records. Events and runs are kept unless an age is given for them."""
    from rich.console import Console

    from ocean import Ocean, SweepResult
    from ocean.cli.output import Screen
    from ocean.cli.parsing import duration_ms
    from ocean.cli.runner import run

    def summary(swept: SweepResult) -> str:
        counts = f"{swept.events} events, {swept.runs} runs, {swept.requests} request keys, {swept.counters} counters"
        return f"removed {counts}{'; there is more' if swept.more else ''}"

    async def work(ocean: Ocean, screen: Screen) -> None:
        console = Console(stderr=True)
        has_terminal = console.is_terminal and not screen.is_json
        with console.status("sweeping") if has_terminal else nullcontext() as status:
            swept = await ocean.sweep(
                events_older_than_ms=duration_ms(events, "--events"),
                runs_older_than_ms=duration_ms(runs, "--runs"),
                requests_older_than_ms=duration_ms(requests, "--requests"),
                max_batches=batches,
                on_progress=None if status is None else lambda so_far: status.update(summary(so_far)),
            )
        screen.json(swept) if screen.is_json else screen.print(summary(swept))

    run(work, db, clogs, is_json)


def delete_session(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session.")],
    yes: Yes = False,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Remove a session with all its runs and rows. Its events stay."""
    from ocean import Ocean
    from ocean.access.guard import Guard
    from ocean.cli.commands.bulk import CAP, confirm
    from ocean.cli.output import Screen, printable
    from ocean.cli.runner import run
    from ocean.cli.tables import counted

    async def work(ocean: Ocean, screen: Screen) -> None:
        await Guard(ocean).check_session_delete(session)
        found = await ocean.count_runs(session_id=session, cap=CAP)
        runs = f"{'at least ' if found.is_capped else ''}{counted(found.count, 'run')}"
        name = printable(session)
        confirm(f"Delete session {name} with {runs}?", f"this would delete session {session!r} with {runs}", yes)
        removed = await ocean.delete_session(session, actor=actor, request_key=request_key)
        if screen.is_json:
            screen.json({"sessionId": session, "deleted": removed})
        else:
            screen.print(f"deleted session {session} with {counted(removed, 'run')}")

    run(work, db, clogs, is_json)


def migrate(db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """Create the database, or bring its schema up to date. Every command does this when it opens one."""
    import anyio

    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run_and_exit, settings_of
    from ocean.compose import store_facts

    def act() -> None:
        url = settings_of(db, clogs).db
        before = store_facts(url).schema or 0

        async def open_it() -> None:
            async with Ocean.open(url):
                pass

        anyio.run(open_it)
        after = store_facts(url).schema or 0
        screen = Screen(is_json)
        if screen.is_json:
            screen.json({"from": before, "to": after})
        else:
            screen.print(f"schema {after}, up to date" if before == after else f"schema {before} -> {after}")

    run_and_exit(act, is_json)
