"""`ocean signal`, `cancel`, `retry`, `delete`, `pause`, `resume`: on runs by id, or on all that filters mean."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NoReturn

import typer

from ocean.cli.options import (
    ANY_RUN,
    BULK_DEFAULTS,
    Actor,
    BulkOptions,
    Clogs,
    Db,
    Input,
    Json,
    PausedIds,
    RequestKey,
    RunIds,
    Selection,
    expand_options,
)

BulkVerb = Literal["signal", "cancel", "retry", "delete"]


@expand_options(without=("ended_since", "ended_until"))
def signal(
    run_ids: RunIds = None,
    input: Input = None,
    signal_id: Annotated[str | None, typer.Option("--signal-id", help="Repeated with it, no second signal.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHEN", help="Deliver then: 10m from now, or an ISO time.")
    ] = None,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Refused unless the run is idle.")] = False,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Put an input into the inbox of runs. By filters it needs a --signal-id, so that it can be repeated."""
    from ocean import InvalidValue, Ocean
    from ocean.cli.parsing import json_input, time_at

    def options(ocean: Ocean) -> dict[str, Any]:
        return {
            "input": json_input(input),
            "signal_id": signal_id,
            "request_key": bulk.request_key,
            "deliver_at": time_at(at, "--at", ocean.clock.now(), ago=False),
        }

    async def one(ocean: Ocean, run_id: str, said: dict[str, Any]) -> Any:
        return await ocean.signal(run_id, if_idle=if_idle, actor=bulk.actor, **said)

    def many(ocean: Ocean, said: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        if if_idle:
            raise InvalidValue("--if-idle is for runs named by id; by filters, say --status idle")
        return lambda **how: ocean.signal_runs(**said, **how)

    _act("signal", run_ids, selection, bulk, one, many, db, clogs, is_json, options)


@expand_options(without=("ended_since", "ended_until"))
def cancel(
    run_ids: RunIds = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Kept in the run's error.")] = None,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """End runs as failed, code `cancelled`. By filters: those that have not ended."""

    async def one(ocean: Any, run_id: str, said: dict[str, Any]) -> Any:
        return await ocean.cancel_run(run_id, reason=reason, actor=bulk.actor, request_key=bulk.request_key)

    def many(ocean: Any, said: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        return lambda **how: ocean.cancel_runs(reason=reason, **how)

    _act("cancel", run_ids, selection, bulk, one, many, db, clogs, is_json)


@expand_options(without=("status",))
def retry(
    run_ids: RunIds = None,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Create failed runs anew, each once. By filters: those that failed."""

    async def one(ocean: Any, run_id: str, said: dict[str, Any]) -> Any:
        return await ocean.retry_run(run_id, actor=bulk.actor, request_key=bulk.request_key)

    def many(ocean: Any, said: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        return ocean.retry_runs  # type: ignore[no-any-return]

    _act("retry", run_ids, selection, bulk, one, many, db, clogs, is_json)


@expand_options()
def delete(
    run_ids: RunIds = None,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Remove runs with their children and rows. Their events stay. By filters: of any status."""

    async def one(ocean: Any, run_id: str, said: dict[str, Any]) -> Any:
        return {
            "runId": run_id,
            "deleted": await ocean.delete_run(run_id, actor=bulk.actor, request_key=bulk.request_key),
        }

    def many(ocean: Any, said: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        return ocean.delete_runs  # type: ignore[no-any-return]

    _act("delete", run_ids, selection, bulk, one, many, db, clogs, is_json)


def pause(
    run_ids: PausedIds = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="The whole clog, everywhere.")] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Hold runs back, or with --clog all runs of a clog. Signals queue; deadlines still end them."""
    _set_paused("pause", run_ids, clog, actor, request_key, db, clogs, is_json)


def resume(
    run_ids: PausedIds = None,
    clog: Annotated[str | None, typer.Option("--clog", metavar="CLOG", help="The whole clog, everywhere.")] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Let paused runs go on, or with --clog a paused clog."""
    _set_paused("resume", run_ids, clog, actor, request_key, db, clogs, is_json)


def _check_key(verb: str, run_ids: list[str] | None, request_key: str | None) -> None:
    """A request key has one answer, so it speaks of one run; a signal to many makes its id of it."""
    from ocean import InvalidValue

    if request_key is None or len(run_ids or ()) == 1 or (verb == "signal" and not run_ids):
        return
    raise InvalidValue(f"--request-key is for one run; without it, the same {verb} again does the rest")


def _act(
    verb: BulkVerb,
    run_ids: list[str] | None,
    selection: Selection,
    bulk: BulkOptions,
    one: Callable[[Any, str, dict[str, Any]], Awaitable[Any]],
    many: Callable[[Any, dict[str, Any]], Callable[..., Awaitable[Any]]],
    db: str | None,
    clogs: str | None,
    is_json: bool,
    options: Callable[[Any], dict[str, Any]] = lambda ocean: {},
) -> NoReturn:
    """On each run named; or else on all that the filters mean."""
    from ocean import InvalidValue, Ocean
    from ocean.access.guard import Guard
    from ocean.cli.commands.bulk import PAST, act_on_selection
    from ocean.cli.output import Screen
    from ocean.cli.parsing import run_query
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        _check_key(verb, run_ids, bulk.request_key)
        query = run_query(ocean.clock.now(), selection)
        said = options(ocean)
        if not run_ids:
            return await act_on_selection(ocean, screen, verb, query, bulk, many(ocean, said))
        if query or bulk.everything:
            raise InvalidValue(f"{verb} takes run ids or filters, not both")
        answers = []
        for run_id in run_ids:
            await Guard(ocean).check_run(run_id, verb)
            answers.append(await one(ocean, run_id, said))
            if not screen.is_json:
                new = f": {answers[-1].run_id}" if verb == "retry" else ""
                screen.say(f"{PAST[verb]} {run_id}{new}")
        if screen.is_json:
            screen.json(answers[0] if len(answers) == 1 else answers)
        return None

    run(work, db, clogs, is_json)


def _set_paused(
    verb: str,
    run_ids: list[str] | None,
    clog: str | None,
    actor: str | None,
    request_key: str | None,
    db: str | None,
    clogs: str | None,
    is_json: bool,
) -> NoReturn:
    from ocean import InvalidValue, Ocean
    from ocean.access.guard import Guard
    from ocean.cli.output import Screen
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        if bool(run_ids) == (clog is not None):
            raise InvalidValue(f"say which runs to {verb} by their ids, or one clog with --clog")
        if clog is None:
            _check_key(verb, run_ids, request_key)
        said: dict[str, Any] = {"actor": actor, "request_key": request_key}
        on_clog, on_run = (
            (ocean.pause_clog, ocean.pause_run) if verb == "pause" else (ocean.resume_clog, ocean.resume_run)
        )
        guard = Guard(ocean)
        if clog is not None:
            await guard.check_clog(clog, "pause")
        for run_id in run_ids or ():
            await guard.check_run(run_id, "pause")
        answers = [await on_clog(clog, **said)] if clog else [await on_run(run_id, **said) for run_id in run_ids or ()]
        if screen.is_json:
            screen.json(answers[0] if len(answers) == 1 else answers)
            return
        for name in [f"clog {clog}"] if clog else run_ids or ():
            screen.say(f"{verb}d {name}")

    run(work, db, clogs, is_json)
