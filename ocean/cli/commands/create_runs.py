"""`ocean create` and `ocean call`: new runs, and calls of clogs' methods."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ocean.cli.options import Actor, Clogs, Db, Input, Json, RequestKey, expand_options

if TYPE_CHECKING:
    from ocean import Ocean, RunInfo
    from ocean.cli.output import Screen


@dataclass(frozen=True, slots=True)
class NewRunOptions:
    """The options of `ocean create` that describe the run."""

    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="Created on first use.")] = "default"
    input: Input = None
    run_id: Annotated[str | None, typer.Option("--run-id", help="The id of the run. Default: a new one.")] = None
    dedupe_key: Annotated[
        str | None, typer.Option("--dedupe-key", help="A repeat with the same key and body returns the first run.")
    ] = None
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is the most urgent.")] = 5
    attr: Annotated[
        list[str] | None, typer.Option("--attr", metavar="NAME=VALUE", help="An attribute of the run, for filters.")
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="WHEN", help="Fail the run then: 10m, 2h (from now), or an ISO time."),
    ] = None
    key: Annotated[list[str] | None, typer.Option("--key", metavar="KEY", help="A concurrency key; at most three.")] = (
        None
    )
    queue: Annotated[str | None, typer.Option("--queue", help="The queue from which workers lease it.")] = None
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", min=1, help="Default: 3.")] = None


NEW_RUN_DEFAULTS = NewRunOptions()


async def _create_run(
    ocean: "Ocean", clog_id: str, options: NewRunOptions, actor: str | None, request_key: str | None
) -> "RunInfo":
    from ocean import RetryPolicy
    from ocean.access.guard import Guard
    from ocean.cli.parsing import attributes, json_input, time_at

    parsed = attributes(options.attr)
    deadline_at = time_at(options.deadline, "--deadline", ocean.clock.now(), ago=False)
    retry = None if options.max_attempts is None else RetryPolicy(max_attempts=options.max_attempts)
    await Guard(ocean).check_clog(clog_id, "create")
    return await ocean.create_run(
        session_id=options.session,
        clog_id=clog_id,
        input=json_input(options.input),
        run_id=options.run_id,
        actor=actor,
        request_key=request_key,
        dedupe_key=options.dedupe_key,
        priority=options.priority,
        attributes=parsed,
        deadline_at=deadline_at,
        concurrency_keys=options.key or (),
        queue=options.queue,
        retry=retry,
    )


@expand_options()
def create(
    clog_id: Annotated[str, typer.Argument(metavar="CLOG", help="The clog of the run.")],
    options: NewRunOptions = NEW_RUN_DEFAULTS,
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="TIME", help="Poke until it ends, at most so long; exit 1 if it failed."),
    ] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Create a run and print its id. It is pending with --input, idle without."""
    from ocean import RunFailed
    from ocean.cli.parsing import duration_ms
    from ocean.cli.runner import REFUSED, run
    from ocean.cli.tables import run_table, traceback_lines

    async def work(ocean: "Ocean", screen: "Screen") -> int | None:
        wait_ms = duration_ms(wait, "--wait")
        made = await _create_run(ocean, clog_id, options, actor, request_key)
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
            screen.print(made.run_id)
        else:
            screen.show(run_table(made, ocean.clock.now()), *traceback_lines(made.error))
        return REFUSED if has_failed else None

    run(work, db, clogs, is_json, needs_clogs=True)


def call(
    target: Annotated[str, typer.Argument(metavar="RUN_ID", help="The run. Leave it out with --clog.")],
    method: Annotated[str | None, typer.Argument(metavar="METHOD", help="The clog's method.")] = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="Call a clog instead of a run.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="The session of the call, with --clog.")
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", "-p", metavar="JSON", help="JSON text, @FILE, or - for standard input.")
    ] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Call a clog's method and print its result as JSON.

    `ocean call RUN_ID METHOD`, or `ocean call METHOD --clog CLOG`.
    """
    from ocean import UNSET, Caller, InvalidValue, Ocean
    from ocean.access.guard import Guard
    from ocean.cli.output import Screen
    from ocean.cli.parsing import json_input
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        if (method is None) != (clog is not None):
            raise InvalidValue("call must be `ocean call RUN_ID METHOD` or `ocean call METHOD --clog CLOG`")
        body = json_input(payload, "--payload")
        guard = Guard(ocean)
        await (guard.check_clog(clog, "call") if clog else guard.check_run(target, "call"))
        result = await ocean.call_clog(
            method=target if method is None else method,
            run_id=None if clog else target,
            clog_id=clog,
            session_id=session,
            payload=None if body is UNSET else body,
            caller=None if actor is None else Caller(actor),
            request_key=request_key,
        )
        screen.json(result)

    run(work, db, clogs, is_json, needs_clogs=True)
