"""Who may be claimed, pure. The claim asks it of every candidate; `explain` shows its answer to a person.

So an explanation cannot drift from the claim: no holds means that the next poke here takes the run.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, assert_never

from ocean.state.records import Delay, Ending, Run, RunStatus
from ocean.state.transitions import is_last_call, wants_slots

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
    """One condition that keeps a run from being claimed: who holds it, and when it passes by itself."""

    code: HoldCode
    message: str
    until: int | None = None
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class FullKey:
    """A concurrency key that keeps a run back; `holder` is a run that has one of its slots."""

    key: str
    limit: int
    in_use: int
    holder: str | None


class Surroundings(NamedTuple):
    """What a run is judged by beside its own row. `is_here`: whoever asks has the run's clog."""

    is_here: bool
    is_clog_paused: bool = False
    is_external: bool = False
    full_key: FullKey | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run is not moving. Empty `holds`: it is due, and the next `advance` here takes it."""

    run_id: str
    status: RunStatus
    due_at: int | None
    holds: tuple[Hold, ...]

    @property
    def is_claimable(self) -> bool:
        """Nothing holds it: the next advance here takes it."""
        return not self.holds


def kernel_end(run: Run, now: int) -> Ending | None:
    """The end that any `advance` owes this run, whatever clogs it has: a deadline, or a crash on the last call."""
    if run.is_ended:
        return None
    if run.deadline_at is not None and run.deadline_at <= now and run.ending is None:
        return Ending.DEADLINE
    if is_last_call(run) and (run.lock_expires_at or 0) <= now:
        return run.ending or Ending.EXHAUSTED
    return None


def is_lapsed_lease(run: Run, now: int) -> bool:
    """Whether any `advance` takes the run back from a worker that stopped renewing."""
    return run.leased and not run.paused and (run.lock_expires_at or 0) <= now


def holds(run: Run, around: Surroundings, now: int) -> tuple[Hold, ...]:
    """Every condition that keeps whoever asks from claiming the run now."""
    if kernel_end(run, now) or is_lapsed_lease(run, now):
        return ()
    return holds_of_its_own(run, around, now)


def holds_of_its_own(run: Run, around: Surroundings, now: int) -> tuple[Hold, ...]:
    """The same of a run that no `advance` owes anything."""
    if run.is_ended:
        return (Hold("ended", f"the run ended {run.status}; nothing moves it any more"),)
    found: list[Hold] = []
    if not around.is_here and around.is_external:
        found.extend(_worker_holds(run))
    elif not around.is_here:
        found.append(
            Hold("clog_elsewhere", f"clog {run.clog_id!r} is not registered here; poke an instance that has it")
        )
    if around.is_clog_paused and run.ending is None:
        found.append(Hold("clog_paused", f"clog {run.clog_id!r} is paused; resume_clog lets its runs go on"))
    if run.paused and run.ending is None:
        found.append(Hold("paused", "the run is paused; resume_run lets it go on"))
    found.extend(_status_holds(run, now))
    if wants_slots(run, now):
        found.extend(_key_holds(run, around.full_key))
    return tuple(found)


def is_asleep(hold: Hold) -> bool:
    return hold.code in ("idle", "waiting")


def with_words(said: tuple[Hold, ...], told: str | None) -> tuple[Hold, ...]:
    """The holds, with what the clog itself says of a run that sleeps."""
    if not told:
        return said
    return tuple(replace(hold, message=f"{hold.message}; {told}") if is_asleep(hold) else hold for hold in said)


def _worker_holds(run: Run) -> list[Hold]:
    if run.status is RunStatus.ACTIVE:
        return []
    message = f"clog {run.clog_id!r} is external: a worker takes it with claim_work, from queue {run.queue!r}"
    return [Hold("needs_worker", message)]


def _key_holds(run: Run, full: FullKey | None) -> list[Hold]:
    if full is not None:
        taken = f"{full.in_use} of {full.limit} slots in use"
        message = f"concurrency key {full.key!r} is full, {taken}; it goes on when one is freed, or set_limit adds one"
        return [Hold("key_full", message, holder=full.holder)]
    if run.parked_on is not None:
        message = f"concurrency key {run.parked_on!r} has a free slot, and others are in line before it"
        return [Hold("key_full", message)]
    return []


def _status_holds(run: Run, now: int) -> list[Hold]:
    match run.status:
        case RunStatus.IDLE:
            return [Hold("idle", "the inbox is empty; a signal makes it pending")]
        case RunStatus.WAITING if run.wake_at is not None and run.wake_at > now:
            return [Hold("waiting", "it sleeps until its wake time, its next timer or a signal", run.wake_at)]
        case RunStatus.PENDING if run.wake_at is not None and run.wake_at > now and run.delayed_by is not None:
            return [_delay_hold(run, run.delayed_by, run.wake_at)]
        case RunStatus.PENDING if run.wake_at is not None and run.wake_at > now:
            message = f"attempt {run.attempt} failed; the next one waits for the back-off"
            return [Hold("backing_off", message, run.wake_at)]
        case RunStatus.PENDING if run.ready_at is not None and run.ready_at > now:
            message = "it became ready at a time that is still to come: the clock was set back"
            return [Hold("waiting", message, run.ready_at)]
        case RunStatus.ACTIVE if run.lock_expires_at is not None and run.lock_expires_at > now:
            message = f"{run.locked_by} is working on tick {run.tick}; if it dies, the lock lapses by itself"
            return [Hold("locked", message, run.lock_expires_at, run.locked_by)]
        case _:
            return []


def _delay_hold(run: Run, delay: Delay, until: int) -> Hold:
    match delay:
        case Delay.RATE:
            return Hold("rate_limited", f"its token of the rate {run.delay_key!r} is free then", until, run.delay_key)
        case Delay.DEBOUNCE:
            message = f"it starts when no further creation under the key {run.delay_key!r} has come until then"
            return Hold("debounced", message, until, run.delay_key)
        case _:
            assert_never(delay)
