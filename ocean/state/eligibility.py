"""Whether a run may be claimed, and in which order due runs are claimed. Pure.

The claim applies these rules to every candidate, and `explain` shows them for one run, so an explanation cannot
differ from the claim: no holds means that the next poke here takes the run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, assert_never

from ocean.state.records import Delay, Ending, Run, RunStatus
from ocean.state.transitions import attempts, due_at, is_last_call, next_call_at, wants_slots

HoldCode = Literal[
    "ended",
    "idle",
    "waiting",
    "backing_off",
    "rate_limited",
    "debounced",
    "locked",
    "paused",
    "clog_paused",
    "clog_elsewhere",
    "key_full",
    "needs_worker",
]


@dataclass(frozen=True, slots=True)
class Hold:
    """One condition that prevents a claim; `until` is when it ends by itself, `holder` what causes it."""

    code: HoldCode
    message: str
    until: int | None = None
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class FullKey:
    """A concurrency key without a free slot; `holder` is a run that has one of its slots."""

    key: str
    limit: int
    in_use: int
    holder: str | None


class Surroundings(NamedTuple):
    """The facts outside its own row by which a run is judged. `is_here`: the claiming instance has the run's clog."""

    is_here: bool
    is_clog_paused: bool = False
    is_external: bool = False
    full_key: FullKey | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run is not moving. Without `holds` it is due, and the next `advance` here takes it.

    `error` is that of the last failure, with its place, until the run makes progress again.
    """

    run_id: str
    status: RunStatus
    due_at: int | None
    holds: tuple[Hold, ...]
    error: dict[str, Any] | None = None

    @property
    def is_claimable(self) -> bool:
        """Whether nothing holds it: the next `advance` here takes it."""
        return not self.holds


def kernel_end(run: Run, now: int) -> Ending | None:
    """Return the end that any `advance` executes, whatever its clogs: a deadline, or a crash on the last call."""
    if run.is_ended:
        return None
    if run.deadline_at is not None and run.deadline_at <= now and run.ending is None:
        return Ending.DEADLINE
    if is_last_call(run) and (run.lock_expires_at or 0) <= now:
        return run.ending or Ending.EXHAUSTED
    return None


def is_lapsed_lease(run: Run, now: int) -> bool:
    """Return whether any `advance` takes the run back from a worker that stopped renewing its lease."""
    return run.leased and not run.paused and (run.lock_expires_at or 0) <= now


def holds(run: Run, around: Surroundings, now: int) -> tuple[Hold, ...]:
    """Return every condition that prevents a claim of the run now."""
    if kernel_end(run, now) or is_lapsed_lease(run, now):
        return ()
    return holds_of_its_own(run, around, now)


def holds_of_its_own(run: Run, around: Surroundings, now: int) -> tuple[Hold, ...]:
    """Return the same for a run without a due end or an expired lease."""
    if run.is_ended:
        return (Hold("ended", f"the run has ended ({run.status})"),)
    found: list[Hold] = []
    if not around.is_here and around.is_external:
        found.extend(_worker_holds(run))
    elif not around.is_here:
        found.append(
            Hold("clog_elsewhere", f"clog {run.clog_id!r} is not registered here; poke an instance that has it")
        )
    if around.is_clog_paused and run.ending is None:
        found.append(Hold("clog_paused", f"clog {run.clog_id!r} is paused; resume it with resume_clog"))
    if run.paused and run.ending is None:
        found.append(Hold("paused", "the run is paused; resume it with resume_run"))
    found.extend(_status_holds(run, now))
    if wants_slots(run, now):
        found.extend(_key_holds(run, around.full_key))
    return tuple(found)


def is_asleep(hold: Hold) -> bool:
    """Return whether the run waits for a signal or a time."""
    return hold.code in ("idle", "waiting")


def with_explanation(found: tuple[Hold, ...], text: str | None) -> tuple[Hold, ...]:
    """Return the holds with the clog's own explanation added to those of an idle or waiting run."""
    if not text:
        return found
    return tuple(replace(hold, message=f"{hold.message}; {text}") if is_asleep(hold) else hold for hold in found)


def with_last_error(found: tuple[Hold, ...], text: str) -> tuple[Hold, ...]:
    """Return the holds with the last error added to that of a failed run, or of one that waits for its next attempt."""
    codes = ("backing_off", "ended")
    return tuple(
        replace(hold, message=f"{hold.message}; the last error: {text}") if hold.code in codes else hold
        for hold in found
    )


def _worker_holds(run: Run) -> list[Hold]:
    if run.status is RunStatus.ACTIVE:
        return []
    message = f"clog {run.clog_id!r} is external: a worker must take the run with claim_work, from queue {run.queue!r}"
    return [Hold("needs_worker", message)]


def _key_holds(run: Run, full: FullKey | None) -> list[Hold]:
    if full is not None:
        used = f"{full.in_use} of {full.limit} slots in use"
        message = f"concurrency key {full.key!r} is full, {used}; wait for a free slot, or raise set_limit"
        return [Hold("key_full", message, holder=full.holder)]
    if run.parked_on is not None:
        message = f"concurrency key {run.parked_on!r} has a free slot, but other runs are before it in line"
        return [Hold("key_full", message)]
    return []


def _status_holds(run: Run, now: int) -> list[Hold]:
    match run.status:
        case RunStatus.IDLE:
            return [Hold("idle", "the inbox is empty; a signal makes the run pending")]
        case RunStatus.WAITING if run.wake_at is not None and run.wake_at > now:
            return [Hold("waiting", "waiting for its wake time, its next timer or a signal", run.wake_at)]
        case RunStatus.PENDING if run.wake_at is not None and run.wake_at > now and run.delayed_by is not None:
            return [_delay_hold(run, run.delayed_by, run.wake_at)]
        case RunStatus.PENDING if run.wake_at is not None and run.wake_at > now:
            which = f"attempt {attempts(run)}" if run.ending is None else f"attempt {attempts(run)} of the last tick"
            message = f"{which} failed; waiting for the next one (back-off)"
            return [Hold("backing_off", message, run.wake_at)]
        case RunStatus.PENDING if run.ready_at is not None and run.ready_at > now:
            message = "it became ready at a later time than now: the clock was set back"
            return [Hold("waiting", message, run.ready_at)]
        case RunStatus.ACTIVE if (until := next_call_at(run) or run.lock_expires_at or 0) > now:
            message = f"held by {run.locked_by} for tick {run.tick}; if it dies, the lock expires"
            if run.stop_by is not None:
                message = (
                    f"the run is ending ({run.ending}); {run.locked_by} may finish a step of tick {run.tick} first"
                )
            return [Hold("locked", message, until, run.locked_by)]
        case RunStatus.PENDING | RunStatus.ACTIVE | RunStatus.WAITING | RunStatus.DONE | RunStatus.FAILED:
            return []
        case _:
            assert_never(run.status)


def _delay_hold(run: Run, delay: Delay, until: int) -> Hold:
    match delay:
        case Delay.RATE:
            return Hold("rate_limited", f"waiting for its token of rate {run.delay_key!r}", until, run.delay_key)
        case Delay.DEBOUNCE:
            message = f"debounced: starts unless another creation under key {run.delay_key!r} comes first"
            return Hold("debounced", message, until, run.delay_key)
        case _:
            assert_never(delay)


FAIR_EVERY = 8
"""One claim in eight takes the run that has been due longest, whatever its priority."""


def pick(due: Iterable[Run], limit: int, slot: int) -> list[Run]:
    """Return at most `limit` of the due runs, in the order to claim them. `slot` counts the claims made before."""
    by_age = sorted(due, key=_age)
    if len({run.priority for run in by_age}) < 2:
        return by_age[:limit]
    by_urgency = sorted(by_age, key=attrgetter("priority"))
    urgent, old = iter(by_urgency), iter(by_age)
    chosen: dict[str, Run] = {}
    while len(chosen) < min(limit, len(by_age)):
        is_fair = (slot + len(chosen)) % FAIR_EVERY == FAIR_EVERY - 1
        following = next(run for run in (old if is_fair else urgent) if run.run_id not in chosen)
        chosen[following.run_id] = following
    return list(chosen.values())


def _age(run: Run) -> tuple[int, int, str]:
    """Longest due first; of equals, the one claimed less often, so that a run that continues is last."""
    return (due_at(run) or 0, run.lock_epoch, run.run_id)
