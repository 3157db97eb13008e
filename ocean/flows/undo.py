"""What happens to a flow that fails or is ended: its handlers are run, and its steps are undone, the last one first.

The functions that undo are in the code, so they are found by replaying the journal without beginning anything new.
Each of them is then a step of its own, with attempts and delays. A flow that fails undoes its steps in its own run. A
run that the kernel ends has only its last tick left, which cannot wait: that tick creates another run to clean up. It
continues with the journal, and raises `Cancelled` where the flow waited.
"""

from typing import Any

from ocean.flows.errors import CancelReason, StepFailed, Suspended
from ocean.flows.journal import Journal, undo_name, undone_name
from ocean.flows.replay import CURRENT, Branch, Replay, Undo
from ocean.flows.steps import DEFAULT_RETRY, UNDO_RETRY, StepCall, step_key, take_step
from ocean.flows.unknown import UNKNOWN
from ocean.kernel.tick import Tick
from ocean.state.backoff import RetryPolicy
from ocean.state.errors import Abort
from ocean.state.outcomes import Done, Failed, Outcome

UNDO_OF = "ocean.flow.undo_of"
UNDO_RUN_RETRY = RetryPolicy(max_attempts=100)


async def undo_steps(replay: Replay) -> bool:
    """Undo the steps. Returns False if the flow is suspended until the next attempt."""
    branch = Branch(prefix="undo.")
    CURRENT.set(branch)
    for undo in sorted(replay.undos.values(), key=lambda each: -each.entry.undo):
        try:
            operation = replay.begin_named(branch, "undo", undo_name(undo.entry.name))
            await take_step(replay, operation, _undo_call(replay.journal, undo))
        except Suspended:
            return False
        except (StepFailed, Abort):
            # The error is in the log and in the journal. The other steps are still undone.
            continue
    return True


def _undo_call(journal: Journal, undo: Undo) -> StepCall:
    policy = UNDO_RETRY if undo.policy is DEFAULT_RETRY else undo.policy
    if undo.entry.is_done and undo.entry.error is None:
        return StepCall(undo.fn, (undo.entry.value,), policy)
    # Only its own key identifies what the step may have done.
    return StepCall(undo.fn, (UNKNOWN,), policy, key=step_key(journal, undo.entry.name))


def hold_if_undo_missing(replay: Replay) -> None:
    """Hold the flow if the journal has a step to undo for which the code has no function any more."""
    entries = replay.journal.entries.values()
    missing = [entry.name for entry in entries if entry.undo and entry.name not in replay.undos]
    if missing and replay.held is None:
        message = (
            "the code of this flow has changed while the run was in progress: it no longer has a function to undo step "
            f"{missing[0]!r}; deploy the old code"
        )
        try:
            replay.hold(replay.root, "flow_changed", message, remembered=f"step {missing[0]!r}", asked="no undo")
        except Suspended:
            return


def outcome_after_undo(journal: Journal) -> Outcome:
    """Return the outcome of a flow when nothing is left to undo."""
    entries = [entry for entry in journal.entries.values() if entry.kind == "undo"]
    failed = [undone_name(entry) for entry in entries if entry.error is not None]
    message = f"{len(failed)} of {len(entries)} steps could not be undone: {', '.join(failed)}" if failed else ""
    error = journal.broken if journal.is_undo_run else journal.failing or {}
    if error is not None:
        return Failed(error | ({"message": f"{error['message']}; {message}"} if failed else {}))
    if failed:
        return Failed({"code": "undo_failed", "message": message, "details": {"steps": failed}})
    return Done({"undone": [undone_name(entry) for entry in entries]})


def ending_of(tick: Tick) -> dict[str, Any]:
    """Return why the kernel ends the run, and the error with which it ends: what `Cancelled` contains."""
    error = tick.run.error or {"code": tick.reason, "message": tick.reason, "details": None}
    reason: CancelReason = "cancel"
    match tick.reason:
        case "deadline" | "exhausted" as other:
            reason = other
        case _ if tick.run.parent_run_id and error["message"].startswith(f"its parent {tick.run.parent_run_id} ended"):
            reason = "parent"
    return {"reason": reason, "error": error}


async def create_undo_run(tick: Tick, journal: Journal) -> None:
    """Create the run that cleans up after a run that the kernel ends."""
    run_id = await tick.create_run(
        clog_id=tick.clog_id,
        input={UNDO_OF: tick.run_id},
        priority=tick.run.priority,
        attributes=tick.run.attributes,
        concurrency_keys=tick.run.concurrency_keys,
        retry=UNDO_RUN_RETRY,
    )
    error = journal.failing or (journal.ending or ending_of(tick))["error"]
    await tick.emit("flow.undoing", {"error": error, "steps": journal.undoable, "run_id": run_id})


def undo_source(tick: Tick) -> str | None:
    """Return the run whose journal has what this run is to undo: its parent, or the run that it retries."""
    first = tick.input
    if tick.reason != "created" or not isinstance(first, dict) or set(first) != {UNDO_OF}:
        return None
    is_by_its_parent = first[UNDO_OF] == tick.run.parent_run_id
    return tick.run.parent_run_id if is_by_its_parent else tick.run.retry_of


def journal_to_undo(tick: Tick, row: Any) -> Journal | None:
    """Return the journal of the run to undo; None if that run has nothing to undo and the input only looks like it."""
    if row is None:
        return None
    journal = Journal.load(row)
    if tick.run.parent_run_id is None and not journal.is_undo_run:
        return None
    # A retry tries again what could not be undone.
    failed = [place for place, entry in journal.entries.items() if entry.kind == "undo" and entry.error is not None]
    for place in failed if journal.is_undo_run else ():
        del journal.entries[place]
    journal.is_undo_run, journal.held = True, None
    return journal
