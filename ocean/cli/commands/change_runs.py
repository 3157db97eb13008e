"""`ocean signal`, `cancel`, `retry`, `retry-end`, `delete`, `pause`, `resume`: on runs named or selected by filters."""

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

BulkVerb = Literal["signal", "cancel", "retry", "retry-end", "delete"]
NOT_ENDED = ("ended_since", "ended_until", "end_incomplete")


@expand_options(without=NOT_ENDED)
def signal(
    run_ids: RunIds = None,
    input: Input = None,
    signal_id: Annotated[
        str | None, typer.Option("--signal-id", help="A repeat with the same id is not a second signal.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHEN", help="When to deliver it: 10m (from now), or an ISO time.")
    ] = None,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Refuse unless the run is idle.")] = False,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Put an input into the inbox of runs. With filters it needs a --signal-id, so that it can be repeated."""
    from ocean import InvalidValue, Ocean
    from ocean.cli.parsing import json_input, time_at

    def options(ocean: Ocean) -> dict[str, Any]:
        return {
            "input": json_input(input),
            "signal_id": signal_id,
            "request_key": bulk.request_key,
            "deliver_at": time_at(at, "--at", ocean.clock.now(), ago=False),
        }

    async def one(ocean: Ocean, run_id: str, given: dict[str, Any]) -> Any:
        return await ocean.signal(run_id, if_idle=if_idle, actor=bulk.actor, **given)

    def many(ocean: Ocean, given: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        if if_idle:
            raise InvalidValue("--if-idle must be used with run ids; with filters, use --status idle")
        return lambda **how: ocean.signal_runs(**given, **how)

    _act("signal", run_ids, selection, bulk, one, many, db, clogs, is_json, options)


@expand_options(without=NOT_ENDED)
def cancel(
    run_ids: RunIds = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Stored in the run's error.")] = None,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """End runs as failed, code `cancelled`. With filters: those that have not ended."""

    async def one(ocean: Any, run_id: str, given: dict[str, Any]) -> Any:
        return await ocean.cancel_run(run_id, reason=reason, actor=bulk.actor, request_key=bulk.request_key)

    def many(ocean: Any, given: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
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
    """Create a new run for each failed run, once. With filters: for those that failed."""

    async def one(ocean: Any, run_id: str, given: dict[str, Any]) -> Any:
        return await ocean.retry_run(run_id, actor=bulk.actor, request_key=bulk.request_key)

    def many(ocean: Any, given: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        return ocean.retry_runs  # type: ignore[no-any-return]

    _act("retry", run_ids, selection, bulk, one, many, db, clogs, is_json)


@expand_options(without=("status", "end_incomplete"))
def retry_end(
    run_ids: RunIds = None,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Call the last tick again of runs that ended without it. `ocean ps --end-incomplete` lists them."""

    async def one(ocean: Any, run_id: str, given: dict[str, Any]) -> Any:
        return await ocean.retry_end(run_id, actor=bulk.actor, request_key=bulk.request_key)

    def many(ocean: Any, given: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        return ocean.retry_ends  # type: ignore[no-any-return]

    _act("retry-end", run_ids, selection, bulk, one, many, db, clogs, is_json)


@expand_options()
def delete(
    run_ids: RunIds = None,
    selection: Selection = ANY_RUN,
    bulk: BulkOptions = BULK_DEFAULTS,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Remove runs with their children and rows. Their events stay. With filters: runs of any status."""

    async def one(ocean: Any, run_id: str, given: dict[str, Any]) -> Any:
        return {
            "runId": run_id,
            "deleted": await ocean.delete_run(run_id, actor=bulk.actor, request_key=bulk.request_key),
        }

    def many(ocean: Any, given: dict[str, Any]) -> Callable[..., Awaitable[Any]]:
        return ocean.delete_runs  # type: ignore[no-any-return]

    _act("delete", run_ids, selection, bulk, one, many, db, clogs, is_json)


def pause(
    run_ids: PausedIds = None,
    clog: Annotated[
        str | None, typer.Option("--clog", metavar="CLOG", help="All runs of a clog, in every process.")
    ] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Pause runs, or with --clog all runs of a clog. Signals are queued; deadlines still end paused runs."""
    _set_paused("pause", run_ids, clog, actor, request_key, db, clogs, is_json)


def resume(
    run_ids: PausedIds = None,
    clog: Annotated[
        str | None, typer.Option("--clog", metavar="CLOG", help="All runs of a clog, in every process.")
    ] = None,
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Resume paused runs, or with --clog a paused clog."""
    _set_paused("resume", run_ids, clog, actor, request_key, db, clogs, is_json)


def _check_key(verb: str, run_ids: list[str] | None, request_key: str | None) -> None:
    """Refuse a request key for several runs: it stores one result. A signal by filters derives its id from the key."""
    from ocean import InvalidValue

    if request_key is None or len(run_ids or ()) == 1 or (verb == "signal" and not run_ids):
        return
    raise InvalidValue(
        f"--request-key must be used with one run; to finish an interrupted {verb}, repeat it without a key"
    )


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
    """Apply a verb to each run named, or else to the runs that the selection selects."""
    from ocean import InvalidValue, Ocean
    from ocean.access.guard import Guard
    from ocean.cli.commands.bulk import PAST, act_on_selection, policy_of
    from ocean.cli.output import Screen
    from ocean.cli.parsing import run_query
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        _check_key(verb, run_ids, bulk.request_key)
        query = run_query(ocean.clock.now(), selection)
        given = options(ocean)
        if not run_ids:
            return await act_on_selection(ocean, screen, verb, query, bulk, many(ocean, given))
        if query or bulk.everything:
            raise InvalidValue(f"{verb} must have run ids or filters, not both")
        results = []
        for run_id in run_ids:
            await Guard(ocean).check_run(run_id, policy_of(verb))
            results.append(await one(ocean, run_id, given))
            if not screen.is_json:
                new = f": {results[-1].run_id}" if verb == "retry" else ""
                screen.print(f"{PAST[verb]} {run_id}{new}")
        if screen.is_json:
            screen.json(results[0] if len(results) == 1 else results)
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
            raise InvalidValue(f"{verb} must have run ids, or one clog with --clog")
        if clog is None:
            _check_key(verb, run_ids, request_key)
        options: dict[str, Any] = {"actor": actor, "request_key": request_key}
        on_clog, on_run = (
            (ocean.pause_clog, ocean.pause_run) if verb == "pause" else (ocean.resume_clog, ocean.resume_run)
        )
        guard = Guard(ocean)
        if clog is not None:
            await guard.check_clog(clog, "pause")
        for run_id in run_ids or ():
            await guard.check_run(run_id, "pause")
        results = (
            [await on_clog(clog, **options)] if clog else [await on_run(run_id, **options) for run_id in run_ids or ()]
        )
        if screen.is_json:
            screen.json(results[0] if len(results) == 1 else results)
            return
        for name in [f"clog {clog}"] if clog else run_ids or ():
            screen.print(f"{verb}d {name}")

    run(work, db, clogs, is_json)
