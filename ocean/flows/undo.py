"""What happens to a flow that fails: what its steps have done is undone, the last one first.

The functions that undo are in the code, so they are found by playing the journal once more, without beginning anything
new. Each is then a step of its own, with attempts and delays. A flow that fails by itself does this in its own run. One
that the kernel ends has only its last tick left, which is no place for effects: it creates a run that does it.
"""

from typing import Any

from ocean.flows.errors import StepFailed, Suspended
from ocean.flows.journal import Journal, undo_name, undone_name
from ocean.flows.replay import CURRENT, Branch, Play
from ocean.flows.steps import DEFAULT_RETRY, UNDO_RETRY, taken
from ocean.kernel.tick import Tick
from ocean.state.backoff import RetryPolicy
from ocean.state.errors import Abort
from ocean.state.outcomes import Done, Failed, Outcome

UNDO_OF = "ocean.flow.undo_of"
UNDO_RUN_RETRY = RetryPolicy(max_attempts=100)


async def undone(play: Play) -> bool:
    """Undo, and say whether that has ended; else the flow is put away until the next attempt."""
    line = Branch(place="undo.")
    CURRENT.set(line)
    for undo in sorted(play.undos, key=lambda each: -each.order):
        policy = UNDO_RETRY if undo.policy is DEFAULT_RETRY else undo.policy
        try:
            operation = play.begin_named(line, "undo", undo_name(undo.step))
            await taken(play, operation, undo.fn, (undo.value,), policy)
        except Suspended:
            return False
        except (StepFailed, Abort):
            # It is in the log, and in the journal; the others are undone all the same.
            continue
    return True


def hold_if_one_is_missing(play: Play) -> None:
    """The journal knows what is to be undone; the code must know how."""
    known = {undo.step for undo in play.undos}
    missing = [entry.name for entry in play.journal.entries.values() if entry.undo and entry.name not in known]
    if missing and play.held is None:
        message = f"the code has changed under this run: it does not say any more how to undo step {missing[0]!r}"
        try:
            play.hold(play.root, "flow_changed", message, remembered=f"step {missing[0]!r}", asked="no undo")
        except Suspended:
            return


def ended(journal: Journal) -> Outcome:
    """The flow's own end, when nothing is left to be undone."""
    entries = [entry for entry in journal.entries.values() if entry.kind == "undo"]
    failed = [undone_name(entry) for entry in entries if entry.error is not None]
    message = f"{len(failed)} of {len(entries)} steps could not be undone: {', '.join(failed)}" if failed else ""
    if not journal.is_undo_run:
        error = journal.failing or {}
        return Failed(error | ({"message": f"{error['message']}; {message}"} if failed else {}))
    if failed:
        return Failed({"code": "undo_failed", "message": message, "details": {"steps": failed}})
    return Done({"undone": [undone_name(entry) for entry in entries]})


async def create_undo_run(tick: Tick, journal: Journal, steps: list[str]) -> None:
    run_id = await tick.create_run(
        clog_id=tick.clog_id,
        input={UNDO_OF: tick.run_id},
        priority=tick.run.priority,
        attributes=tick.run.attributes,
        concurrency_keys=tick.run.concurrency_keys,
        retry=UNDO_RUN_RETRY,
    )
    journal.failing = journal.failing or tick.run.error or {"code": tick.reason, "message": tick.reason}
    await tick.emit("flow.undoing", {"error": journal.failing, "steps": steps, "run_id": run_id})


def undo_source(tick: Tick) -> str | None:
    """The run whose journal says what this run is to undo: the parent that has created it, or a run that it repeats."""
    first = tick.input
    if tick.reason != "created" or not isinstance(first, dict) or set(first) != {UNDO_OF}:
        return None
    is_by_its_parent = first[UNDO_OF] == tick.run.parent_run_id
    return tick.run.parent_run_id if is_by_its_parent else tick.run.retry_of


def taken_over(tick: Tick, row: Any) -> Journal | None:
    """The journal to go on with; None if the row is of a run that undoes nothing, and the input only looks like it."""
    if row is None:
        return None
    journal = Journal.load(row)
    if tick.run.parent_run_id is None and not journal.is_undo_run:
        return None
    # What could not be undone then is tried again.
    failed = [place for place, entry in journal.entries.items() if entry.kind == "undo" and entry.error is not None]
    for place in failed if journal.is_undo_run else ():
        del journal.entries[place]
    journal.is_undo_run, journal.held = True, None
    return journal
