"""`@clog.flow`: makes a function the two handlers of its clog.

`advance_flow` replays the function over the journal. `end_flow` is the last tick of a run that the kernel ends.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ocean.clog.clog import Clog
from ocean.flows.errors import Cancelled, FlowError, FlowMisused, Suspended
from ocean.flows.flow import Again, Flow
from ocean.flows.journal import Journal, explain_wait
from ocean.flows.replay import CURRENT, Replay
from ocean.flows.steps import STORE_ERRORS, storable
from ocean.flows.undo import (
    create_undo_run,
    ending_of,
    hold_if_undo_missing,
    journal_to_undo,
    outcome_after_undo,
    undo_source,
    undo_steps,
)
from ocean.kernel.step_records import open_inputs
from ocean.kernel.tick import Tick
from ocean.state.errors import Abort, ClogError, InvalidValue
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait, error_info
from ocean.state.tracebacks import place_of

FlowFunction = Callable[[Flow, Any], Awaitable[Any]]

NEEDED_TOOLS = (
    "ocean.storage.read_scoped",
    "ocean.storage.write_scoped",
    "ocean.steps.run",
    "ocean.events.emit",
    "ocean.runs.create",
)


CLEAN_UP_ATTEMPTS = 5
"""How often the handlers of an ended flow may raise an error of their own before its steps are undone without them."""


def register_flow(clog: Clog, function: FlowFunction) -> None:
    """Make the function the handlers of the clog."""
    if not inspect.iscoroutinefunction(function):
        raise InvalidValue(f"a flow must be an async function of a Flow and its input, got {function!r}")
    if clog.models["run"] is not None:
        raise InvalidValue(
            f"clog {clog.clog_id!r} must not have both a flow and a run_state: the run row of a flow is its journal; "
            "keep state in variables of the flow, or in session rows"
        )
    missing = [] if clog.tools is None else [tool for tool in NEEDED_TOOLS if tool not in clog.tools]
    if missing:
        raise InvalidValue(f"tools of clog {clog.clog_id!r} must include {missing[0]}, because it has a flow")

    async def advance(tick: Tick) -> Outcome:
        return await advance_flow(function, tick)

    async def end(tick: Tick) -> Outcome:
        return await end_flow(function, tick)

    clog.on_advance(advance)
    clog.on_end(end)
    clog.explains(explain_wait)
    clog.takes_all_inputs = True


async def advance_flow(function: FlowFunction, tick: Tick) -> Outcome:
    """Replay the function over the journal, and return the outcome of the tick."""
    journal = await _read(tick)
    if journal.failing is not None:
        return await _undo(Replay(tick, journal, is_frozen=True, can_look=journal.looks), function)
    replay = Replay(tick, journal, can_look=journal.looks)
    try:
        result = await _call(replay, function)
    except (FlowError, Abort, Cancelled) as error:
        result = _Failing(error)
    except STORE_ERRORS:
        raise
    except Exception as error:
        if journal.ending is None or tick.attempt + 1 < CLEAN_UP_ATTEMPTS:
            raise
        result = _Failing(error)
    if replay.root.is_suspended:
        return await _suspend(replay)
    if journal.ending is not None:
        return await _cleaned_up(replay, result, journal.ending["error"])
    match result:
        case _Failing() if journal.undoable:
            return await _begin_undoing(replay, storable(result.info.as_json()))
        case _Failing():
            return Failed(result.info)
        case Again(state):
            following = journal.next_generation(state)
            await tick.emit("flow.again", {"generation": following.generation})
            await _write(tick, following)
            return Continue()
        case Ok() | Done() | Continue() | Wait() | Retry() | Failed():
            raise FlowMisused(f"a flow must return the output of the run, or raise Abort, got {result!r:.200}")
        case _:
            return Done(result)


async def _cleaned_up(replay: Replay, result: Any, error: dict[str, Any]) -> Outcome:
    """The function has been left after `Cancelled`. Whatever it returned, the run has failed: undo its steps."""
    journal = replay.journal
    if isinstance(result, _Failing) and not isinstance(result.error, Cancelled):
        journal.broken = storable(result.info.as_json())
        await replay.tick.emit("flow.clean_up_failed", {"error": journal.broken})
    if journal.undoable:
        return await _begin_undoing(replay, error)
    await _write(replay.tick, journal)
    return outcome_after_undo(journal)


async def _begin_undoing(replay: Replay, error: dict[str, Any]) -> Outcome:
    journal = replay.journal
    journal.failing, journal.held = error, None
    await replay.tick.emit("flow.undoing", {"error": error, "steps": journal.undoable})
    await _write(replay.tick, journal)
    return Continue()


async def end_flow(function: FlowFunction, tick: Tick) -> Outcome:
    """Handle the last tick of a run that the kernel ends: find what is left to do, and create a run that does it."""
    journal = await _journal_of_ended(tick)
    if journal is None:
        return Ok()
    if journal.is_undo_run:
        await tick.emit("flow.undo_stopped", {"steps": journal.undoable})
        return Ok()
    if journal.failing is None:
        journal.ending = ending_of(tick)
    replay = Replay(tick, journal, is_frozen=True, can_look=True)
    await _find_undos(replay, function)
    journal.looks = replay.held is not None
    if journal.failing is not None:
        await undo_steps(replay)
    elif not replay.root.is_suspended:
        # The function was left without another operation, so only its steps are left to undo.
        journal.failing = journal.ending["error"] if journal.ending is not None else None
    if journal.failing is None or journal.undoable:
        await create_undo_run(tick, journal)
        await _write(tick, journal)
    return Ok()


async def _journal_of_ended(tick: Tick) -> Journal | None:
    """Return the journal of a run that is ended, also if its first tick was never committed; None if it had none."""
    row = (await tick.read(run=True)).run
    if row is not None:
        return Journal.load(row)
    inputs = await open_inputs(tick) if tick.number > 1 else []
    if not inputs:
        return None
    run_key = tick.idempotency_key.rpartition(":")[0]
    journal = Journal(f"{run_key}:1", tick.run_id, inputs[0].body)
    journal.receive(inputs[1:])
    return journal


class _Failing:
    """The error that fails the flow."""

    def __init__(self, error: Exception | Cancelled) -> None:
        self.error = error
        match error:
            case FlowError() | Abort():
                details = error.details or None
                self.info = ErrorInfo(error.code, str(error) or "aborted", details, place_of(error))
            case Cancelled():
                self.info = ErrorInfo("cancelled", str(error))
            case _:
                self.info = error_info(error)


async def _read(tick: Tick) -> Journal:
    """Return the journal, with the inputs of the tick. This is the only read of a tick."""
    source = undo_source(tick)
    rows = await tick.read(run=True, runs=[source] if source else [])
    if rows.run is not None:
        journal = Journal.load(rows.run)
        journal.receive(tick.inputs)
        return journal
    # The first input is the flow's own, whether it was given at creation or as a later signal.
    new = Journal(tick.idempotency_key, tick.run_id, tick.input)
    journal = journal_to_undo(tick, rows.runs.get(source)) or new if source else new
    journal.receive(tick.inputs[1:])
    return journal


async def _write(tick: Tick, journal: Journal) -> None:
    try:
        await tick.write(run=journal.as_json())
    except InvalidValue as error:
        count = len(journal.signals)
        raise ClogError(
            f"the journal does not fit into its row; {count} of its signals were never taken: {error}"
        ) from None


async def _call(replay: Replay, function: FlowFunction) -> Any:
    """Call the function and return its result. If it is suspended, what it returns or raises is ignored."""
    CURRENT.set(replay.root)
    try:
        result = await function(Flow(replay), copy.deepcopy(replay.journal.input))
        replay.check_ended(replay.root)
        return result
    except Suspended:
        return None
    except STORE_ERRORS:
        raise
    except (FlowError, Abort, Cancelled):
        if not replay.root.is_suspended:
            _check_ended(replay)
            raise
    except Exception:
        if not replay.root.is_suspended:
            raise
    except BaseExceptionGroup as errors:
        rest = errors.split((Suspended, Cancelled))[1]
        if rest is not None and not (replay.root.is_suspended and isinstance(rest, Exception)):
            raise rest from None
    return None


def _check_ended(replay: Replay) -> None:
    try:
        replay.check_ended(replay.root)
    except Suspended:
        return


async def _find_undos(replay: Replay, function: FlowFunction) -> None:
    """Call the function only to collect what is to be undone, and how. Its result does not matter."""
    try:
        await _call(replay, function)
    except STORE_ERRORS:
        raise
    except (Exception, Cancelled):
        return


async def _undo(replay: Replay, function: FlowFunction) -> Outcome:
    await _find_undos(replay, function)
    hold_if_undo_missing(replay)
    if replay.held is not None:
        return await _suspend(replay)
    replay.is_frozen = False
    if not await undo_steps(replay):
        return await _suspend(replay)
    await _write(replay.tick, replay.journal)
    return outcome_after_undo(replay.journal)


async def _suspend(replay: Replay) -> Outcome:
    """Write the journal of a suspended flow, and return the outcome of the tick."""
    journal, held, outcome = replay.journal, replay.held, replay.outcome()
    before = journal.held
    if held is not None:
        if before is None or before["message"] != held.message:
            await replay.tick.emit("flow.held", held.as_json())
        journal.held = held.as_json() | {"times": 1 + (before or {"times": 0})["times"]}
    elif before is not None:
        journal.held = None
        await replay.tick.emit("flow.resumed", {"code": before["code"]})
    await _write(replay.tick, journal)
    return outcome
