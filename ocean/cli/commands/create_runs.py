"""`ocean create`, `ocean call`: new runs, and direct calls."""

from typing import Annotated, Any

import typer

from ocean.cli.options import Actor, Clogs, Db, Input, Json, RequestKey


def create(
    clog_id: Annotated[str, typer.Argument(metavar="CLOG", help="The clog that owns the run.")],
    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="Made on first use.")] = "default",
    input: Input = None,
    run_id: Annotated[str | None, typer.Option("--run-id", help="An id of your own.")] = None,
    dedupe_key: Annotated[
        str | None, typer.Option("--dedupe-key", help="The same key and body: the first run.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is the most urgent.")] = 5,
    attr: Annotated[list[str] | None, typer.Option("--attr", metavar="NAME=VALUE", help="To find it by.")] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="WHEN", help="10m, 2h from now; or an ISO time.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="A concurrency key; at most three.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Where workers find it.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", min=1, help="3 unless said.")] = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="TIME", help="Poke until it ends; exit 1 if it failed.")
    ] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Create a run: pending with --input, idle without. Prints its id."""
    from ocean import Ocean, RetryPolicy, RunFailed
    from ocean.access.guard import Guard
    from ocean.cli.output import Screen
    from ocean.cli.parsing import attributes, duration_ms, json_input, time_at
    from ocean.cli.runner import REFUSED, run
    from ocean.cli.tables import run_table

    async def work(ocean: Ocean, screen: Screen) -> int | None:
        wait_ms = duration_ms(wait, "--wait")
        options: dict[str, Any] = {
            "dedupe_key": dedupe_key,
            "priority": priority,
            "attributes": attributes(attr),
            "deadline_at": time_at(deadline, "--deadline", ocean.clock.now(), ago=False),
            "concurrency_keys": key or (),
            "queue": queue,
            "retry": None if max_attempts is None else RetryPolicy(max_attempts=max_attempts),
        }
        await Guard(ocean).check_clog(clog_id, "create")
        made = await ocean.create_run(
            session_id=session,
            clog_id=clog_id,
            input=json_input(input),
            run_id=run_id,
            actor=actor,
            request_key=request_key,
            **options,
        )
        has_failed = False
        if wait_ms is not None:
            try:
                await ocean.result(made.run_id, timeout_ms=wait_ms)
            except RunFailed:
                has_failed = True
            made = await ocean.get_run(made.run_id) or made
        if screen.is_json:
            screen.json(made)
        elif wait_ms is None:
            screen.say(made.run_id)
        else:
            screen.show(run_table(made, ocean.clock.now()))
        return REFUSED if has_failed else None

    run(work, db, clogs, is_json, needs_clogs=True)


def call(
    target: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run; with --clog, leave it out.")],
    method: Annotated[str | None, typer.Argument(metavar="METHOD", help="The clog's method.")] = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="Call a clog instead of a run.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="With --clog.")] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON", help="JSON text, @FILE, or - for standard input.")
    ] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Call a clog's method, on a run or with --clog. Prints what it answers as JSON.

    `ocean call RUN_ID METHOD`, or `ocean call METHOD --clog CLOG`.
    """
    from ocean import UNSET, Caller, InvalidValue, Ocean
    from ocean.access.guard import Guard
    from ocean.cli.output import Screen
    from ocean.cli.parsing import json_input
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        if (method is None) != (clog is not None):
            raise InvalidValue("say `ocean call RUN_ID METHOD`, or `ocean call METHOD --clog CLOG`")
        body = json_input(payload, "--payload")
        guard = Guard(ocean)
        await (guard.check_clog(clog, "call") if clog else guard.check_run(target, "call"))
        answer = await ocean.call_clog(
            method=target if method is None else method,
            run_id=None if clog else target,
            clog_id=clog,
            session_id=session,
            payload=None if body is UNSET else body,
            caller=None if actor is None else Caller(actor),
            request_key=request_key,
        )
        screen.json(answer)

    run(work, db, clogs, is_json, needs_clogs=True)
