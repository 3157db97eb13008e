"""The two handlers of a flow's clog: one call over the journal, and the last tick of a run that the kernel ends."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

from ocean.flows.errors import FlowError, FlowMisused, Suspended
from ocean.flows.flow import Again, Flow
from ocean.flows.journal import Journal
from ocean.flows.replay import CURRENT, Play
from ocean.flows.steps import THE_DATABASE, storable
from ocean.flows.undo import create_undo_run, ended, hold_if_one_is_missing, taken_over, undo_source, undone
from ocean.kernel.tick import Tick
from ocean.state.errors import Abort, ClogError, InvalidValue
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait

FlowFunction = Callable[[Flow, Any], Awaitable[Any]]


async def advance_flow(function: FlowFunction, tick: Tick) -> Outcome:
    journal = await _journal(tick)
    if journal.failing is not None:
        return await _undo(Play(tick, journal, is_frozen=True), function)
    play = Play(tick, journal)
    try:
        answer = await _played(play, function)
    except (FlowError, Abort) as error:
        answer = _Failing(error)
    if play.root.is_suspended:
        return await _put_away(play)
    match answer:
        case _Failing() if play.undos:
            journal.failing, journal.held = storable(answer.info.as_json()), None
            await tick.emit("flow.undoing", {"error": journal.failing, "steps": journal.undoable})
            await _write(tick, journal)
            return Continue()
        case _Failing():
            return Failed(answer.info)
        case Again(state):
            following = journal.begun_again(state)
            await tick.emit("flow.again", {"generation": following.generation})
            await _write(tick, following)
            return Continue()
        case Ok() | Done() | Continue() | Wait() | Retry() | Failed():
            raise FlowMisused(f"a flow returns what is to be the run's output, or raises Abort; not {answer!r:.200}")
        case _:
            return Done(answer)


async def end_flow(function: FlowFunction, tick: Tick) -> Outcome:
    """The last tick of a run that the kernel ends. It has no effect outside: it only sees to it that a run has."""
    row = (await tick.read(run=True)).run
    if row is None:
        return Ok()
    journal = Journal.load(row)
    if journal.is_undo_run:
        await tick.emit("flow.undo_stopped", {"steps": journal.undoable})
        return Ok()
    play = Play(tick, journal, is_frozen=True, can_look=True)
    await _replayed(play, function)
    if journal.failing is not None:
        await undone(play)
    if steps := journal.undoable:
        await create_undo_run(tick, journal, steps)
        await _write(tick, journal)
    return Ok()


class _Failing:
    def __init__(self, error: FlowError | Abort) -> None:
        self.info = ErrorInfo(error.code, str(error) or "aborted", error.details or None)


async def _journal(tick: Tick) -> Journal:
    """The one read of the tick."""
    source = undo_source(tick)
    rows = await tick.read(run=True, runs=[source] if source else [])
    if rows.run is not None:
        journal = Journal.load(rows.run)
        journal.receive(tick.inputs)
        return journal
    # The first input is the flow's own, whether it came with the creation or as a signal after it.
    begun = Journal(tick.idempotency_key, tick.run_id, tick.input)
    journal = taken_over(tick, rows.runs.get(source)) or begun if source else begun
    journal.receive(tick.inputs[1:])
    return journal


async def _write(tick: Tick, journal: Journal) -> None:
    try:
        await tick.write(run=journal.as_json())
    except InvalidValue as error:
        count = len(journal.signals)
        raise ClogError(
            f"the journal does not fit into its row, with {count} signals that nobody took: {error}"
        ) from None


async def _played(play: Play, function: FlowFunction) -> Any:
    """What the function answers. One that is being put away has no say in it, whatever it answers or raises."""
    CURRENT.set(play.root)
    try:
        answer = await function(Flow(play), copy.deepcopy(play.journal.input))
        play.check_ended(play.root)
        return answer
    except Suspended:
        return None
    except THE_DATABASE:
        raise
    except (FlowError, Abort):
        if not play.root.is_suspended:
            _check_ended(play)
            raise
    except Exception:
        if not play.root.is_suspended:
            raise
    except BaseExceptionGroup as errors:
        rest = errors.split(Suspended)[1]
        if rest is not None and not (play.root.is_suspended and isinstance(rest, Exception)):
            raise rest from None
    return None


def _check_ended(play: Play) -> None:
    try:
        play.check_ended(play.root)
    except Suspended:
        return


async def _replayed(play: Play, function: FlowFunction) -> None:
    """Play only to find what is to be undone, and how. In which way the function ends does not matter."""
    try:
        await _played(play, function)
    except THE_DATABASE:
        raise
    except Exception:
        return


async def _undo(play: Play, function: FlowFunction) -> Outcome:
    await _replayed(play, function)
    hold_if_one_is_missing(play)
    if play.held is not None:
        return await _put_away(play)
    play.is_frozen = False
    if not await undone(play):
        return await _put_away(play)
    await _write(play.tick, play.journal)
    return ended(play.journal)


async def _put_away(play: Play) -> Outcome:
    journal, held, outcome = play.journal, play.held, play.outcome()
    before = journal.held
    if held is not None:
        if before is None or before["message"] != held.message:
            await play.tick.emit("flow.held", held.as_json())
        journal.held = held.as_json() | {"times": 1 + (before or {"times": 0})["times"]}
    elif before is not None:
        journal.held = None
        await play.tick.emit("flow.resumed", {"code": before["code"]})
    await _write(play.tick, journal)
    return outcome
