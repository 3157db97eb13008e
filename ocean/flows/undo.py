"""What happens to a flow that fails: its steps are undone, the last one first.

The functions that undo are in the code, so they are found by replaying the journal without beginning anything new.
Each of them is then a step of its own, with attempts and delays. A flow that fails undoes its steps in its own run. A
run that the kernel ends has only its last tick left, in which effects are not allowed: that tick creates another run
to undo them.
"""

from typing import Any

from ocean.flows.errors import StepFailed, Suspended
from ocean.flows.journal import Journal, undo_name, undone_name
from ocean.flows.replay import CURRENT, Branch, Replay
from ocean.flows.steps import DEFAULT_RETRY, UNDO_RETRY, take_step
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
    for undo in sorted(replay.undos, key=lambda each: -each.order):
        policy = UNDO_RETRY if undo.policy is DEFAULT_RETRY else undo.policy
        try:
            operation = replay.begin_named(branch, "undo", undo_name(undo.step))
            await take_step(replay, operation, undo.fn, (undo.value,), policy)
        except Suspended:
            return False
        except (StepFailed, Abort):
            # The error is in the log and in the journal. The other steps are still undone.
            continue
    return True


def hold_if_undo_missing(replay: Replay) -> None:
    """Hold the flow if the journal has a step to undo for which the code has no function any more."""
    known = {undo.step for undo in replay.undos}
    missing = [entry.name for entry in replay.journal.entries.values() if entry.undo and entry.name not in known]
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
    if not journal.is_undo_run:
        error = journal.failing or {}
        return Failed(error | ({"message": f"{error['message']}; {message}"} if failed else {}))
    if failed:
        return Failed({"code": "undo_failed", "message": message, "details": {"steps": failed}})
    return Done({"undone": [undone_name(entry) for entry in entries]})


async def create_undo_run(tick: Tick, journal: Journal, steps: list[str]) -> None:
    """Create the run that undoes the steps of a run that the kernel ends."""
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
