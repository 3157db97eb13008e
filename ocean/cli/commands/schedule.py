"""`ocean schedule`: runs at the times of a cron expression or an interval, by the methods of the clog `schedule`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ocean.cli.options import Actor, Clogs, Db, Input, Json, RequestKey

if TYPE_CHECKING:
    from ocean import Ocean, RunInfo
    from ocean.cli.output import Screen

CLOG = "schedule"
SHIPPED = ("clogs.schedule:schedule",)
ADD_EXAMPLES = """Create a schedule, and print its run's id.

Said again with the same words it answers the same one.

\b
ocean schedule add nightly --cron '0 3 * * *' --zone Europe/Lisbon --clog report
ocean schedule add beat --every 10m --clog check --input '{"url": "…"}' --missed skip
ocean schedule add weekly --cron '0 9 * * MON' --signal RUN_ID
"""
NEXT_EXAMPLES = """Show the next times, of a schedule or of a cron expression.

\b
ocean schedule next nightly -n 3
ocean schedule next --cron '30 2 * * *' --zone America/New_York
"""

schedule_app = typer.Typer(help="Runs at the times of a cron expression or an interval.", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name in the session, or its run's id.")]
Session = Annotated[str, typer.Option("--session", metavar="SESSION", help="Where the name is.")]
Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPR", help="Five fields, or six with seconds first.")]
Every = Annotated[str | None, typer.Option("--every", metavar="TIME", help="Instead of --cron: 30s, 10m, 2h, 7d.")]
Zone = Annotated[str | None, typer.Option("--zone", metavar="ZONE", help="Of --cron: an IANA name. UTC unless said.")]


@schedule_app.command("add", help=ADD_EXAMPLES)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Unique in its session.")],
    cron: Cron = None,
    every: Every = None,
    zone: Zone = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="Create a run of it each time.")] = None,
    signal: Annotated[
        str | None, typer.Option("--signal", metavar="RUN_ID", help="Signal this run each time, instead.")
    ] = None,
    input: Input = None,
    times_as: Annotated[
        str | None, typer.Option("--times-as", metavar="NAME", help="Where in the input the times go.")
    ] = None,
    start: Annotated[str | None, typer.Option("--start", metavar="WHEN", help="From then on: 2h, an ISO time.")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="WHEN", help="Before then.")] = None,
    times: Annotated[int | None, typer.Option("--times", metavar="N", min=1, help="At most so many.")] = None,
    missed: Annotated[
        str | None, typer.Option("--missed", metavar="POLICY", help="skip, once or all. once unless said.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option("--overlap", metavar="POLICY", help="allow, skip or queue. allow unless said.")
    ] = None,
    session: Session = "default",
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    from ocean.cli.parsing import json_input, time_at

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        now = ocean.clock.now()
        target = {"clog_id": clog, "run_id": signal, "input": json_input(input), "times_as": times_as}
        told = _timing(cron, every, zone) | {
            "name": name,
            "target": _said(target),
            "start_at": time_at(start, "--start", now, ago=False),
            "end_at": time_at(end, "--end", now, ago=False),
            "limit": times,
            "missed": missed,
            "overlap": overlap,
        }
        made = await _call(ocean, "add", _said(told), session=session, actor=actor, request_key=request_key)
        # Its first tick makes it show what it was told; whoever pokes would do that too.
        await ocean.advance(run_id=made["run_id"], max_ticks=1)
        screen.json(made) if screen.is_json else screen.say(made["run_id"])

    _run(work, db, clogs, is_json)


@schedule_app.command("list")
def list_schedules(
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Of this session only.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Those that have ended too.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many.")] = 100,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """List schedules, with their next times."""
    from ocean.cli.commands.schedule_tables import schedules_table

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        living = None if everything else ("idle", "pending", "active", "waiting")
        page = await ocean.list_runs(clog_id=CLOG, session_id=session, status=living, limit=limit)
        if screen.is_json:
            screen.json(page)
        elif page.runs:
            screen.show(schedules_table(page.runs, ocean.clock.now()))
        else:
            screen.say("no schedules")

    _run(work, db, clogs, is_json)


@schedule_app.command("show")
def show(which: Which, session: Session = "default", db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """Show what a schedule was told, and how far it has come."""
    from ocean.cli.commands.schedule_tables import schedule_table

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        run = await _find(ocean, which, session)
        shown = await _call(ocean, "show", run_id=run.run_id)
        screen.json(shown) if screen.is_json else screen.show(schedule_table(shown, ocean.clock.now()))

    _run(work, db, clogs, is_json)


@schedule_app.command("next", help=NEXT_EXAMPLES)
def show_next(
    which: Annotated[str | None, typer.Argument(metavar="SCHEDULE", help="Its name, or its run's id.")] = None,
    n: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many times.")] = 5,
    cron: Cron = None,
    every: Every = None,
    zone: Zone = None,
    session: Session = "default",
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    from ocean import InvalidValue

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        told = _timing(cron, every, zone)
        if (which is None) != bool(_said(told)):
            raise InvalidValue("say which schedule, or --cron or --every")
        run = None if which is None else await _find(ocean, which, session)
        shown = await _call(ocean, "upcoming", {**_said(told), "n": n}, run_id=run.run_id if run else None)
        if screen.is_json:
            screen.json(shown)
            return
        for each in shown:
            screen.say(each["local"])
        if not shown:
            screen.say("no more times")

    _run(work, db, clogs, is_json)


@schedule_app.command("trigger")
def trigger(
    which: Which,
    session: Session = "default",
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Fire once now, beside the times, and print the run's id."""

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        run = await _find(ocean, which, session)
        made = await _call(ocean, "trigger", run_id=run.run_id, actor=actor, request_key=request_key)
        screen.json(made) if screen.is_json else screen.say(made["run_id"])

    _run(work, db, clogs, is_json)


def _act(verb: str, past: str) -> Callable[..., None]:
    def act(
        which: Which,
        session: Session = "default",
        actor: Actor = None,
        request_key: RequestKey = None,
        db: Db = None,
        clogs: Clogs = None,
        is_json: Json = False,
    ) -> None:
        async def work(ocean: "Ocean", screen: "Screen") -> None:
            run = await _find(ocean, which, session)
            answer = await getattr(ocean, f"{verb}_run")(run.run_id, actor=actor, request_key=request_key)
            if verb == "cancel":
                # Its last tick gives the name back.
                await ocean.advance(run_id=run.run_id, max_ticks=1)
                answer = await ocean.get_run(run.run_id)
            screen.json(answer) if screen.is_json else screen.say(f"{past} {which}")

        _run(work, db, clogs, is_json)

    return act


schedule_app.command("pause", help="Hold a schedule back. What its times do then, its --missed says.")(
    _act("pause", "paused")
)
schedule_app.command("resume", help="Let a paused schedule go on.")(_act("resume", "resumed"))
schedule_app.command("remove", help="End a schedule. The runs that it has created stay.")(_act("cancel", "removed"))


def _timing(cron: str | None, every: str | None, zone: str | None) -> dict[str, Any]:
    from ocean.cli.parsing import duration_ms

    return {"cron": cron, "every_ms": duration_ms(every, "--every"), "zone": zone}


def _said(told: dict[str, Any]) -> dict[str, Any]:
    from ocean import UNSET

    return {name: value for name, value in told.items() if value is not None and value is not UNSET}


async def _find(ocean: "Ocean", which: str, session: str) -> "RunInfo":
    from ocean import RunNotFound

    named = await _call(ocean, "find", which, session=session)
    run = await ocean.get_run(named or which)
    if run is None or run.clog_id != CLOG:
        raise RunNotFound(f"there is no schedule {which!r} in session {session!r}, and no schedule's run has that id")
    return run


async def _call(
    ocean: "Ocean",
    method: str,
    payload: Any = None,
    *,
    run_id: str | None = None,
    session: str | None = None,
    actor: str | None = None,
    request_key: str | None = None,
) -> Any:
    from ocean import Caller

    return await ocean.call_clog(
        method=method,
        run_id=run_id,
        clog_id=None if run_id else CLOG,
        session_id=session,
        payload=payload,
        caller=None if actor is None else Caller(actor),
        request_key=request_key,
    )


def _run(
    work: Callable[["Ocean", "Screen"], Awaitable[None]], db: str | None, clogs: str | None, is_json: bool
) -> NoReturn:
    from ocean.cli.runner import run

    run(work, db, clogs, is_json, needs_clogs=True, shipped=SHIPPED)
