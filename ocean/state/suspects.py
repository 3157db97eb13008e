"""Which runs are suspected after a crash, and whether the crash was an attempt of theirs. Pure.

A process that dies takes all its calls with it, and the database cannot tell which of them killed it. So a crash costs
an attempt only if the run was at work alone. The others become suspects: they are called again apart from everything
else, in groups of at most half the number that crashed together, until the culprit is alone.

`crash_company` of a run is with how many runs, itself included, it was at work when its process died under
`crash_epoch`. If that is the current epoch, the crash is noted, and decides about the attempt. A lower one makes the
run a suspect that has not been called yet under its current lock. The call of a suspect writes its company before it
begins, so that its crash is noted in advance, and clears the other runs of its process: they were waiting.
"""

from collections.abc import Mapping, Sequence

from ocean.state.records import Run, RunStatus, changed

NOT_CALLED = 0
"""The company of a run that its process had locked but not called."""
TOGETHER = 2
"""The least company of a crash that does not count as an attempt."""


def needs_note(run: Run, now: int) -> bool:
    """Return whether the process of this run has crashed, or lost its locks, which is to be noted in all its runs.

    Also if it is noted in this run: the note of a suspect is written before its call, and its claim would hide from the
    other runs of the process that they were waiting.
    """
    return run.status is RunStatus.ACTIVE and not run.leased and (run.lock_expires_at or 0) <= now


def counts_as_attempt(run: Run) -> bool:
    """Return whether a crash of this active run is a failed attempt. Without a note, it was alone."""
    return run.crash_epoch != run.lock_epoch or run.crash_company == 1


def noted(runs: Sequence[Run]) -> Mapping[str, Run]:
    """Return those active runs of a crashed process whose crash is not noted yet, as they are with it noted."""
    unnoted = [run for run in runs if run.crash_epoch != run.lock_epoch]
    # If the crash of some was noted in advance, those suspects were being called, and nothing else.
    called = sum(run.crash_company is None for run in unnoted) if len(unnoted) == len(runs) else NOT_CALLED
    return {
        run.run_id: changed(run, crash_company=_company(run, called), crash_epoch=run.lock_epoch) for run in unnoted
    }


def _company(run: Run, called: int) -> int:
    """A suspect that waited for its call stays one, and this crash is no attempt of it."""
    return called if run.crash_company is None else max(run.crash_company, TOGETHER)


def called_apart(run: Run, company: int) -> Run:
    """The call of a suspect begins, in a group of this many: if the process dies now, this was its company."""
    return changed(run, crash_company=company, crash_epoch=run.lock_epoch)


def most_together(company: int) -> int:
    """Return with how many suspects, itself included, a run of this company may be called: half of them."""
    return max(1, company // 2)
