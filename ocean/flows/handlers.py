"""`@clog.flow`: makes a function the two handlers of its clog.

`advance_flow` replays the function over the journal. `end_flow` is the last tick of a run that the kernel ends.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ocean.clog.clog import Clog
from ocean.flows.errors import FlowError, FlowMisused, Suspended
from ocean.flows.flow import Again, Flow
from ocean.flows.journal import Journal, explain_wait
from ocean.flows.replay import CURRENT, Replay
from ocean.flows.steps import STORE_ERRORS, storable
from ocean.flows.undo import (
    create_undo_run,
    hold_if_undo_missing,
    journal_to_undo,
    outcome_after_undo,
    undo_source,
    undo_steps,
)
from ocean.kernel.tick import Tick
from ocean.state.errors import Abort, ClogError, InvalidValue
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait
from ocean.state.tracebacks import place_of

FlowFunction = Callable[[Flow, Any], Awaitable[Any]]

NEEDED_TOOLS = (
    "ocean.storage.read_scoped",
    "ocean.storage.write_scoped",
    "ocean.steps.run",
    "ocean.events.emit",
    "ocean.runs.create",
)


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
        return await _undo(Replay(tick, journal, is_frozen=True), function)
    replay = Replay(tick, journal)
    try:
        result = await _call(replay, function)
    except (FlowError, Abort) as error:
        result = _Failing(error)
    if replay.root.is_suspended:
        return await _suspend(replay)
    match result:
        case _Failing() if replay.undos:
            journal.failing, journal.held = storable(result.info.as_json()), None
            await tick.emit("flow.undoing", {"error": journal.failing, "steps": journal.undoable})
            await _write(tick, journal)
            return Continue()
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


async def end_flow(function: FlowFunction, tick: Tick) -> Outcome:
    """Handle the last tick of a run that the kernel ends. It has no effect outside, but may create an undo run."""
    row = (await tick.read(run=True)).run
    if row is None:
        return Ok()
    journal = Journal.load(row)
    if journal.is_undo_run:
        await tick.emit("flow.undo_stopped", {"steps": journal.undoable})
        return Ok()
    replay = Replay(tick, journal, is_frozen=True, can_look=True)
    await _find_undos(replay, function)
    if journal.failing is not None:
        await undo_steps(replay)
    if steps := journal.undoable:
        await create_undo_run(tick, journal, steps)
        await _write(tick, journal)
    return Ok()


class _Failing:
    """The error that fails the flow."""

    def __init__(self, error: FlowError | Abort) -> None:
        self.info = ErrorInfo(error.code, str(error) or "aborted", error.details or None, place_of(error))


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
    except (FlowError, Abort):
        if not replay.root.is_suspended:
            _check_ended(replay)
            raise
    except Exception:
        if not replay.root.is_suspended:
            raise
    except BaseExceptionGroup as errors:
        rest = errors.split(Suspended)[1]
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
    except Exception:
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
