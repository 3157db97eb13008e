"""The state table: every status × every event, the forbidden pairs too.

A cell is what the event changes (everything else must stay as it was), or how it is refused. `docs/state-machine.md`
gives each arrow a letter and refers to this file.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ocean.state.backoff import RetryPolicy
from ocean.state.eligibility import Surroundings, holds, is_lapsed_lease, kernel_end
from ocean.state.ends import end_requested, end_retried, stopped
from ocean.state.errors import LockLost, OceanError, RunEnded
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait
from ocean.state.records import Delay, Ending, LastTick, Run, RunStatus, changed
from ocean.state.transitions import (
    EndNow,
    claimed,
    given_back,
    inbox_changed,
    input_arrived,
    is_last_call,
    lease_lapsed,
    next_call_at,
    paused,
    refuse_unless_held,
    renewed,
    resumed,
    retried,
    settled,
)
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.migrate import migrate

NOW = 1_700_000_000_000
BEFORE = NOW - 500
WAKES = NOW + 5_000
BACK = NOW + 1_000
LAPSES = NOW + 20_000
LATER = NOW + 60_000
LOCK_MS = 30_000
EPOCH = 7
LAST_TICK = LastTick(max_attempts=3, grace_ms=10_000)
STOPS = NOW + LAST_TICK.grace_ms


def a_run(status: str = "idle", **changes: Any) -> Run:
    """Return a run as a store would hold it in this status, with `changes`."""
    run = Run(
        run_id="r-1",
        session_id="s-1",
        clog_id="c-1",
        parent_run_id=None,
        correlation_id="r-1",
        priority=5,
        status=RunStatus(status),
        attempt=0,
        max_attempts=3,
        ready_at=BEFORE if status == "pending" and "wake_at" not in changes else None,
        wake_at=WAKES if status == "waiting" else None,
        deadline_at=None,
        locked_by="i-other" if status == "active" else None,
        lock_expires_at=LAPSES if status == "active" else None,
        lock_epoch=EPOCH,
        tick=4,
        tick_open=status == "active",
        paused=False,
        ending=None,
        event_count=11,
        inbox_count=6,
        pending_count=2,
        created_at=BEFORE - 1_000,
        updated_at=BEFORE,
        ended_at=BEFORE if status in ("done", "failed") else None,
        wait_until=WAKES if status == "waiting" and "wake_at" not in changes else None,
    )
    return changed(run, **changes)


@dataclass(frozen=True)
class Held:
    """The run is not claimed, for these holds."""

    code: str


class NothingOwed:
    """No `advance` ends the run."""


Answer = Run | EndNow | Held | NothingOwed
Event = Callable[[Run], Answer]
Cell = dict[str, Any] | EndNow | Held | type[NothingOwed] | type[OceanError]

STATES: dict[str, Run] = {
    "idle": a_run("idle"),
    "pending": a_run("pending"),
    "pending (backing off)": a_run("pending", wake_at=BACK, attempt=1, tick_open=True),
    "pending (delayed)": a_run("pending", wake_at=BACK, delayed_by=Delay.RATE, delay_key="k"),
    "pending (last tick)": a_run("pending", ending=Ending.CANCEL, attempt=1, end_max_attempts=3),
    "active": a_run("active", attempt=1),
    "active (to stop)": a_run("active", attempt=1, ending=Ending.CANCEL, end_max_attempts=3, stop_by=STOPS),
    "active (last tick)": a_run("active", attempt=1, ending=Ending.CANCEL, end_attempt=1, end_max_attempts=3),
    "waiting": a_run("waiting"),
    "waiting (for a timer)": a_run("waiting", wait_until=None),
    "done": a_run("done"),
    "failed": a_run("failed"),
}


def claim_at(now: int) -> Event:
    """Claim as a store does: first the predicate, then the transition."""

    def claim(run: Run) -> Answer:
        found = holds(run, Surroundings(is_here=True), now)
        return Held(found[0].code) if found else claimed(run, "i-me", LOCK_MS, now)

    return claim


def commit(outcome: Ok | Done | Continue | Wait | Failed, next_input_at: int | None) -> Event:
    return lambda run: settled(refuse_unless_held(run, EPOCH, run.run_id), outcome, next_input_at, NOW)


def fail(error: str = "broken", after_ms: int | None = None) -> Event:
    def retry(run: Run) -> Answer:
        held = refuse_unless_held(run, EPOCH, run.run_id)
        return retried(held, Retry(error, after_ms), RetryPolicy(), NOW - 10, NOW)

    return retry


def give_back(times: int) -> Event:
    def stop(run: Run) -> Answer:
        held = refuse_unless_held(run, EPOCH, run.run_id, even_if_ending=True)
        return given_back(held, times, NOW) if held.stop_by is None else stopped(held, NOW)

    return stop


def deadline_passes(last_tick: LastTick | None) -> Event:
    """End the run as any `advance` does, whatever its clogs."""

    def pass_deadline(run: Run) -> Answer:
        overdue = changed(run, deadline_at=NOW)
        reason = kernel_end(overdue, NOW)
        if reason is None:
            return NothingOwed()
        return changed(end_requested(overdue, reason, last_tick, NOW), deadline_at=None)

    return pass_deadline


UNTIL = Wait(until=NOW + 3_000)
SOONER, LATER_THAN_UNTIL = NOW + 2_000, NOW + 4_000

EVENTS: dict[str, Event] = {
    "due input": lambda run: input_arrived(run, NOW, NOW),
    "input for sooner than its wake": lambda run: input_arrived(run, WAKES - 1, NOW),
    "input for later than its wake": lambda run: input_arrived(run, WAKES + 1, NOW),
    "timers changed, none left": lambda run: inbox_changed(run, None, NOW),
    "timers changed, one due": lambda run: inbox_changed(run, NOW, NOW),
    "timers changed, the first sooner": lambda run: inbox_changed(run, WAKES - 1, NOW),
    "timers changed, the first later": lambda run: inbox_changed(run, WAKES + 1, NOW),
    "claim": claim_at(NOW),
    "claim when every time has come": claim_at(LATER),
    "ok, nothing in the inbox": commit(Ok(), None),
    "ok, something due": commit(Ok(), NOW),
    "ok, a timer ahead": commit(Ok(), SOONER),
    "wait, nothing in the inbox": commit(UNTIL, None),
    "wait, something due": commit(UNTIL, NOW),
    "wait, a timer before it": commit(UNTIL, SOONER),
    "wait, a timer after it": commit(UNTIL, LATER_THAN_UNTIL),
    "continue, nothing in the inbox": commit(Continue("more"), None),
    "continue, something due": commit(Continue("more"), NOW),
    "continue, a timer ahead": commit(Continue("more"), SOONER),
    "done, nothing in the inbox": commit(Done(1), None),
    "done, something due": commit(Done(1), NOW),
    "done, a timer ahead": commit(Done(1), SOONER),
    "failed, nothing in the inbox": commit(Failed("no"), None),
    "failed, something due": commit(Failed("no"), NOW),
    "failed, a timer ahead": commit(Failed("no"), SOONER),
    "retry(2 of 3)": fail(),
    "retry(2 of 3) with a time": fail(after_ms=77),
    "1st give-back": give_back(1),
    "2nd give-back": give_back(2),
    "3rd give-back": give_back(3),
    "cancel": lambda run: end_requested(run, Ending.CANCEL, None, NOW),
    "cancel, with on_end": lambda run: end_requested(run, Ending.CANCEL, LAST_TICK, NOW),
    "deadline": deadline_passes(None),
    "deadline, with on_end": deadline_passes(LAST_TICK),
    "pause": lambda run: paused(run, NOW),
    "resume": lambda run: resumed(changed(run, paused=True), NOW),
}

TOUCHED: dict[str, Any] = {"updated_at": NOW}
NOT_DELAYED: dict[str, Any] = {"delayed_by": None, "delay_key": None}
UNLOCKED = TOUCHED | NOT_DELAYED
UNLOCKED |= {
    "stop_by": None,
    "locked_by": None,
    "lock_expires_at": None,
    "ready_at": None,
    "wake_at": None,
    "wait_until": None,
}
SETTLED = UNLOCKED | {"attempt": 0, "tick_open": False}
ENDED = UNLOCKED | {"ended_at": NOW, "ending": None, "tick_open": False}
MADE_PENDING = {"status": "pending", "ready_at": NOW}
CLAIMED: dict[str, Any] = {
    "status": "active",
    "ready_at": None,
    "wake_at": None,
    "wait_until": None,
    "locked_by": "i-me",
    "lock_expires_at": NOW + LOCK_MS,
    "lock_epoch": EPOCH + 1,
    "tick_open": True,
    "updated_at": NOW,
} | NOT_DELAYED
CLAIMED_LATER = CLAIMED | {"lock_expires_at": LATER + LOCK_MS, "updated_at": LATER}

REFUSED_ENDED: dict[str, Cell] = {"done": RunEnded, "failed": RunEnded}
REFUSED_ENDING: dict[str, Cell] = {"pending (last tick)": RunEnded, "active (last tick)": RunEnded} | REFUSED_ENDED
REFUSED_ENDING |= {"active (to stop)": RunEnded}
OWES_NOTHING: dict[str, Cell] = dict.fromkeys(REFUSED_ENDING, NothingOwed)
LIVE = ("idle", "pending", "pending (backing off)", "pending (delayed)", "active", "waiting", "waiting (for a timer)")


def in_a_tick(active: Cell, last: Cell, to_stop: Cell = LockLost) -> dict[str, Cell]:
    """Only a run that is active, under the same epoch, can be committed or given back."""
    cells = {"active": active, "active (last tick)": last, "active (to stop)": to_stop}
    return dict.fromkeys(STATES, LockLost) | cells


def sleepers(idle: Cell, waiting: Cell, waiting_for_a_timer: Cell) -> dict[str, Cell]:
    """What the inbox does to an idle or waiting run; it affects neither a back-off nor a running handler."""
    queued: dict[str, Cell] = {"pending": TOUCHED, "pending (backing off)": TOUCHED, "active": TOUCHED}
    queued |= {"pending (delayed)": TOUCHED}
    sleeping = {"idle": idle, "waiting": waiting, "waiting (for a timer)": waiting_for_a_timer}
    return sleeping | queued | REFUSED_ENDING


LAST_WORD = ENDED | {"status": "failed"}
TO_IDLE = SETTLED | {"status": "idle"}
TO_PENDING = SETTLED | MADE_PENDING
TO_DONE = SETTLED | ENDED | {"status": "done"}
TO_FAILED = SETTLED | ENDED | {"status": "failed"}
TO_LAST_TICK = UNLOCKED | MADE_PENDING | {"tick_open": False}
LAST_TICK_AHEAD = TO_LAST_TICK | {"end_max_attempts": 3}
TO_STOP: dict[str, Any] = TOUCHED | {"stop_by": STOPS, "end_max_attempts": 3}


def to_waiting(wake_at: int) -> dict[str, Any]:
    return SETTLED | {"status": "waiting", "wake_at": wake_at}


def to_wait(wake_at: int) -> dict[str, Any]:
    return to_waiting(wake_at) | {"wait_until": NOW + 3_000}


def asleep(wake_at: int) -> dict[str, Any]:
    return TOUCHED | {"status": "waiting", "wake_at": wake_at}


WOKEN = TOUCHED | MADE_PENDING | {"wake_at": None, "wait_until": None}


TABLE: dict[str, dict[str, Cell]] = {
    "due input": sleepers(WOKEN, WOKEN, WOKEN),
    "input for sooner than its wake": sleepers(asleep(WAKES - 1), asleep(WAKES - 1), asleep(WAKES - 1)),
    "input for later than its wake": sleepers(asleep(WAKES + 1), TOUCHED, TOUCHED),
    "timers changed, none left": sleepers(TOUCHED, TOUCHED, TOUCHED | {"status": "idle", "wake_at": None}),
    "timers changed, one due": sleepers(WOKEN, WOKEN, WOKEN),
    "timers changed, the first sooner": sleepers(asleep(WAKES - 1), asleep(WAKES - 1), asleep(WAKES - 1)),
    "timers changed, the first later": sleepers(asleep(WAKES + 1), TOUCHED, asleep(WAKES + 1)),
    "claim": {
        "idle": Held("idle"),
        "pending": CLAIMED | {"tick": 5},
        "pending (backing off)": Held("backing_off"),
        "pending (delayed)": Held("rate_limited"),
        "pending (last tick)": CLAIMED | {"tick": 5},
        "active": Held("locked"),
        "active (to stop)": Held("locked"),
        "active (last tick)": Held("locked"),
        "waiting": Held("waiting"),
        "waiting (for a timer)": Held("waiting"),
        "done": Held("ended"),
        "failed": Held("ended"),
    },
    "claim when every time has come": {
        "idle": Held("idle"),
        "pending": CLAIMED_LATER | {"tick": 5},
        "pending (backing off)": CLAIMED_LATER,
        "pending (delayed)": CLAIMED_LATER | {"tick": 5},
        "pending (last tick)": CLAIMED_LATER | {"tick": 5},
        "active": CLAIMED_LATER | {"attempt": 2},
        "active (to stop)": CLAIMED_LATER | {"tick": 5, "stop_by": None},
        "active (last tick)": CLAIMED_LATER | {"end_attempt": 2},
        "waiting": CLAIMED_LATER | {"tick": 5},
        "waiting (for a timer)": CLAIMED_LATER | {"tick": 5},
        "done": Held("ended"),
        "failed": Held("ended"),
    },
    "ok, nothing in the inbox": in_a_tick(TO_IDLE, LAST_WORD),
    "ok, something due": in_a_tick(TO_PENDING, LAST_WORD),
    "ok, a timer ahead": in_a_tick(to_waiting(SOONER), LAST_WORD),
    "wait, nothing in the inbox": in_a_tick(to_wait(NOW + 3_000), LAST_WORD),
    "wait, something due": in_a_tick(TO_PENDING, LAST_WORD),
    "wait, a timer before it": in_a_tick(to_wait(SOONER), LAST_WORD),
    "wait, a timer after it": in_a_tick(to_wait(NOW + 3_000), LAST_WORD),
    "continue, nothing in the inbox": in_a_tick(TO_PENDING, LAST_WORD),
    "continue, something due": in_a_tick(TO_PENDING, LAST_WORD),
    "continue, a timer ahead": in_a_tick(TO_PENDING, LAST_WORD),
    "done, nothing in the inbox": in_a_tick(TO_DONE, LAST_WORD),
    "done, something due": in_a_tick(TO_DONE, LAST_WORD),
    "done, a timer ahead": in_a_tick(TO_DONE, LAST_WORD),
    "failed, nothing in the inbox": in_a_tick(TO_FAILED, LAST_WORD),
    "failed, something due": in_a_tick(TO_FAILED, LAST_WORD),
    "failed, a timer ahead": in_a_tick(TO_FAILED, LAST_WORD),
    "retry(2 of 3)": in_a_tick(
        UNLOCKED | {"status": "pending", "attempt": 2, "wake_at": NOW + 2_000},
        UNLOCKED | {"status": "pending", "end_attempt": 2, "wake_at": NOW + 2_000},
    ),
    "retry(2 of 3) with a time": in_a_tick(
        UNLOCKED | {"status": "pending", "attempt": 2, "wake_at": NOW + 77},
        UNLOCKED | {"status": "pending", "end_attempt": 2, "wake_at": NOW + 77},
    ),
    "1st give-back": in_a_tick(UNLOCKED | MADE_PENDING, UNLOCKED | MADE_PENDING, TO_LAST_TICK),
    "2nd give-back": in_a_tick(UNLOCKED | MADE_PENDING, UNLOCKED | MADE_PENDING, TO_LAST_TICK),
    "3rd give-back": in_a_tick(
        UNLOCKED | MADE_PENDING | {"attempt": 2}, UNLOCKED | MADE_PENDING | {"end_attempt": 2}, TO_LAST_TICK
    ),
    "cancel": dict.fromkeys(LIVE, LAST_WORD) | REFUSED_ENDING,
    "cancel, with on_end": dict.fromkeys(LIVE, LAST_TICK_AHEAD | {"ending": "cancel"})
    | {"active": TO_STOP | {"ending": "cancel"}}
    | REFUSED_ENDING,
    "deadline": dict.fromkeys(LIVE, LAST_WORD) | OWES_NOTHING,
    "deadline, with on_end": dict.fromkeys(LIVE, LAST_TICK_AHEAD | {"ending": "deadline"})
    | {"active": TO_STOP | {"ending": "deadline"}}
    | OWES_NOTHING,
    "pause": dict.fromkeys(LIVE, TOUCHED | {"paused": True}) | REFUSED_ENDING,
    "resume": dict.fromkeys(LIVE, TOUCHED | {"paused": False}) | REFUSED_ENDING,
}


def arrow(before: str, event: str, cell: Cell) -> str:
    match cell:
        case dict():
            to = f"{cell.get('status', STATES[before].status)}{' (last tick)' if cell.get('ending') else ''}"
        case EndNow():
            to = f"its end ({cell.reason}, attempt {cell.attempt})"
        case Held():
            to = f"held, {cell.code}"
        case _:
            to = cell.__name__
    return f"{before} --{event}--> {to}"


CELLS = [(before, event, cell) for event, row in TABLE.items() for before, cell in row.items()]


def test_the_table_has_a_cell_for_every_pair() -> None:
    assert TABLE.keys() == EVENTS.keys()
    assert all(row.keys() == STATES.keys() for row in TABLE.values())
    assert {run.status for run in STATES.values()} == set(RunStatus)


@pytest.mark.parametrize(("before", "event", "cell"), CELLS, ids=[arrow(*cell) for cell in CELLS])
def test_transition(before: str, event: str, cell: Cell) -> None:
    run, happen = STATES[before], EVENTS[event]
    match cell:
        case dict():
            assert happen(run) == changed(run, **cell)
        case EndNow() | Held():
            assert happen(run) == cell
        case _ if issubclass(cell, NothingOwed):
            assert isinstance(happen(run), NothingOwed)
        case _:
            with pytest.raises(cell) as refusal:
                happen(run)
            assert run.run_id in str(refusal.value)


@pytest.fixture(scope="module")
def schema() -> Iterator[sqlite3.Connection]:
    """The tables with their CHECK constraints, and no rows."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    yield db
    db.close()


def test_every_row_the_table_starts_from_or_makes_is_one_the_schema_takes(schema: sqlite3.Connection) -> None:
    made = [EVENTS[event](STATES[before]) for before, event, cell in CELLS if isinstance(cell, dict)]
    rows = [*STATES.values(), *(run for run in made if isinstance(run, Run))]
    assert len(rows) > len(STATES)
    transaction = Transaction(schema)
    for number, run in enumerate(rows):
        Unit(transaction, NOW).insert(changed(run, run_id=f"r-{number}"))
    transaction.write()


RETRIES: dict[str, tuple[dict[str, Any], RetryPolicy, int | None, int | EndNow]] = {
    "active --retry(1 of 3)--> pending for 1 s": ({"attempt": 0}, RetryPolicy(), None, 1_000),
    "active --retry(2 of 3)--> pending for 2 s": ({"attempt": 1}, RetryPolicy(), None, 2_000),
    "active --retry(3 of 3)--> its end": ({"attempt": 2}, RetryPolicy(), None, EndNow(Ending.EXHAUSTED, 3)),
    "active --retry(3 of 3) with a time--> its end": ({"attempt": 2}, RetryPolicy(), 5, EndNow(Ending.EXHAUSTED, 3)),
    "active --retry(1 of 1)--> its end": (
        {"attempt": 0, "max_attempts": 1},
        RetryPolicy(max_attempts=1),
        None,
        EndNow(Ending.EXHAUSTED, 1),
    ),
    "active --retry(100 of any number)--> pending for 60 s": (
        {"attempt": 99, "max_attempts": None},
        RetryPolicy(max_attempts=None),
        None,
        60_000,
    ),
    "active --retry(2 of 3), own delays--> pending": ({"attempt": 1}, RetryPolicy(delays_ms=(5, 9)), None, 9),
    "active --retry(1 of 3), at once--> pending": ({"attempt": 0}, RetryPolicy(), 0, 0),
    "active --retry in the last ms of max_elapsed--> pending": (
        {"attempt": 0},
        RetryPolicy(max_elapsed_ms=11),
        None,
        1_000,
    ),
    "active --retry when max_elapsed is over--> its end": (
        {"attempt": 0},
        RetryPolicy(max_elapsed_ms=10),
        None,
        EndNow(Ending.EXHAUSTED, 1),
    ),
    "active (paused) --retry(1 of 3)--> pending": ({"attempt": 0, "paused": True}, RetryPolicy(), None, 1_000),
}


@pytest.mark.parametrize(("changes", "policy", "after_ms", "follows"), RETRIES.values(), ids=RETRIES)
def test_a_failed_call(changes: dict[str, Any], policy: RetryPolicy, after_ms: int | None, follows: Any) -> None:
    run = a_run("active", **changes)
    result = retried(run, Retry("broken", after_ms), policy, NOW - 10, NOW)
    if isinstance(follows, EndNow):
        assert result == follows
    else:
        backing_off = UNLOCKED | {"status": "pending", "attempt": run.attempt + 1, "wake_at": NOW + follows}
        assert result == changed(run, **backing_off)


def test_jitter_only_adds_and_is_the_same_for_the_same_failure() -> None:
    run, policy = a_run("active"), RetryPolicy(jitter=0.5)
    first, second = (retried(run, Retry("broken"), policy, NOW, NOW) for _ in range(2))
    assert first == second
    assert isinstance(first, Run)
    assert first.wake_at is not None
    assert NOW + 1_000 <= first.wake_at < NOW + 1_500


CRASHES: dict[str, tuple[dict[str, Any], dict[str, Any] | EndNow]] = {
    "active --crash(1 of 3)--> active": ({"attempt": 0}, CLAIMED_LATER | {"attempt": 1}),
    "active --crash(2 of 3)--> active": ({"attempt": 1}, CLAIMED_LATER | {"attempt": 2}),
    "active --crash(3 of 3)--> its end": ({"attempt": 2}, EndNow(Ending.EXHAUSTED, 3)),
    "active --crash(1 of 1)--> its end": ({"attempt": 0, "max_attempts": 1}, EndNow(Ending.EXHAUSTED, 1)),
    "active --crash(100 of any number)--> active": (
        {"attempt": 99, "max_attempts": None},
        CLAIMED_LATER | {"attempt": 100},
    ),
    "active (last tick) --crash(2 of 3)--> active (last tick)": (
        {"attempt": 3, "ending": Ending.DEADLINE, "end_attempt": 1, "end_max_attempts": 3},
        CLAIMED_LATER | {"end_attempt": 2},
    ),
    "active (last tick) --crash(3 of 3)--> its end": (
        {"attempt": 0, "ending": Ending.DEADLINE, "end_attempt": 2, "end_max_attempts": 3},
        EndNow(Ending.DEADLINE, 3),
    ),
    "active --crash beside 1 other--> active, suspected": (
        {"attempt": 2, "crash_company": 2, "crash_epoch": EPOCH},
        CLAIMED_LATER,
    ),
    "active --crash alone, after one beside others (3 of 3)--> its end": (
        {"attempt": 2, "crash_company": 1, "crash_epoch": EPOCH},
        EndNow(Ending.EXHAUSTED, 3),
    ),
    "active --crash before its call--> active": (
        {"attempt": 2, "crash_company": 0, "crash_epoch": EPOCH},
        CLAIMED_LATER | {"crash_company": None, "crash_epoch": None},
    ),
}


@pytest.mark.parametrize(("changes", "follows"), CRASHES.values(), ids=CRASHES)
def test_a_lapsed_lock_is_a_failed_attempt(changes: dict[str, Any], follows: dict[str, Any] | EndNow) -> None:
    run = a_run("active", **changes)
    result = claimed(run, "i-me", LOCK_MS, LATER)
    assert result == (changed(run, **follows) if isinstance(follows, dict) else follows)


@pytest.mark.parametrize(("changes", "follows"), CRASHES.values(), ids=CRASHES)
def test_the_last_call_is_known_before_it_is_lost(changes: dict[str, Any], follows: dict[str, Any] | EndNow) -> None:
    assert is_last_call(a_run("active", **changes)) == isinstance(follows, EndNow)
    assert kernel_end(a_run("active", **changes), LAPSES - 1) is None


@pytest.mark.parametrize("state", [name for name, run in STATES.items() if run.status is not RunStatus.ACTIVE])
def test_only_an_active_run_has_a_last_call(state: str) -> None:
    assert not is_last_call(changed(STATES[state], max_attempts=1))


def test_the_last_call_of_a_paused_run_is_not_lost_while_it_is_paused() -> None:
    run = a_run("active", attempt=2, paused=True)
    assert not is_last_call(run)
    assert is_last_call(resumed(run, NOW))
    assert is_last_call(changed(run, ending=Ending.CANCEL, end_max_attempts=1))


GIVE_BACKS: dict[str, tuple[dict[str, Any], int, int | EndNow]] = {
    "active --1st give-back--> pending, attempt 0": ({}, 1, 0),
    "active --2nd give-back--> pending, attempt 0": ({}, 2, 0),
    "active --3rd give-back--> pending, attempt 1": ({}, 3, 1),
    "active --4th give-back--> pending, attempt 2": ({"attempt": 1}, 4, 2),
    "active --5th give-back--> its end": ({"attempt": 2}, 5, EndNow(Ending.EXHAUSTED, 3)),
    "active --2nd give-back of the last attempt--> pending": ({"attempt": 2}, 2, 2),
    "active --99th give-back of any number--> pending": ({"attempt": 96, "max_attempts": None}, 99, 97),
    "active (last tick) --2nd give-back--> pending": (
        {"ending": Ending.EXHAUSTED, "attempt": 3, "end_max_attempts": 1},
        2,
        3,
    ),
    "active (last tick) --3rd give-back(10 of 10)--> its end": (
        {"ending": Ending.EXHAUSTED, "attempt": 3, "end_attempt": 9, "end_max_attempts": 10},
        3,
        EndNow(Ending.EXHAUSTED, 10),
    ),
}


@pytest.mark.parametrize(("changes", "times", "follows"), GIVE_BACKS.values(), ids=GIVE_BACKS)
def test_a_call_given_back(changes: dict[str, Any], times: int, follows: int | EndNow) -> None:
    run = a_run("active", **changes)
    result = given_back(run, times, NOW)
    if isinstance(follows, EndNow):
        assert result == follows
    else:
        assert result == changed(run, **UNLOCKED | MADE_PENDING | {"attempt": follows})


@pytest.mark.parametrize("attempt", [0, 1, 96])
def test_a_lease_that_lapses(attempt: int) -> None:
    run = a_run("active", leased=True, attempt=attempt, max_attempts=None)
    assert [is_lapsed_lease(run, at) for at in (LAPSES - 1, LAPSES)] == [False, True]
    assert not is_lapsed_lease(changed(run, paused=True), LAPSES)
    assert not is_lapsed_lease(changed(run, leased=False), LAPSES)
    assert lease_lapsed(run, NOW) == changed(run, **UNLOCKED | MADE_PENDING | {"leased": False, "attempt": attempt + 1})


def test_a_claim_is_a_lease_only_if_requested_as_one() -> None:
    for is_lease in (False, True):
        run = claimed(a_run("pending"), "w-1", LOCK_MS, NOW, is_lease=is_lease)
        assert isinstance(run, Run)
        assert run.leased is is_lease
    left = end_requested(a_run("active", leased=True), Ending.CANCEL, None, NOW)
    assert not left.leased


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH, EPOCH + 1])
def test_the_fence_lets_through_the_holder_of_the_current_epoch_only(state: str, epoch: int) -> None:
    run = STATES[state]
    if run.status is RunStatus.ACTIVE and epoch == EPOCH:
        assert refuse_unless_held(run, epoch, run.run_id, even_if_ending=True) is run
    else:
        with pytest.raises(LockLost, match=f"r-1 is no longer held under epoch {epoch}"):
            refuse_unless_held(run, epoch, run.run_id)


def test_the_fence_refuses_a_run_that_is_gone() -> None:
    with pytest.raises(LockLost, match="r-gone"):
        refuse_unless_held(None, EPOCH, "r-gone")


def test_a_taken_over_tick_keeps_its_number_and_shuts_its_old_holder_out() -> None:
    first = claimed(a_run("pending"), "i-one", LOCK_MS, NOW)
    assert isinstance(first, Run)
    second = claimed(first, "i-two", LOCK_MS, LATER)
    assert isinstance(second, Run)
    assert (second.tick, second.attempt, second.locked_by) == (first.tick, 1, "i-two")
    with pytest.raises(LockLost):
        refuse_unless_held(second, first.lock_epoch, first.run_id)


@pytest.mark.parametrize("grace_ms", [0, 5])
def test_a_handler_at_work_may_only_store_steps_when_its_run_is_cancelled(grace_ms: int) -> None:
    held = a_run("active")
    cancelled = end_requested(held, Ending.CANCEL, LastTick(1, grace_ms), NOW)
    with pytest.raises(LockLost):
        refuse_unless_held(cancelled, EPOCH, held.run_id)
    if grace_ms:
        assert refuse_unless_held(cancelled, EPOCH, held.run_id, even_if_ending=True) is cancelled
        assert next_call_at(cancelled) == NOW + grace_ms
    last = claimed(cancelled, "i-me", LOCK_MS, NOW + grace_ms)
    assert isinstance(last, Run)
    assert (last.tick, last.lock_epoch, last.ending) == (held.tick + 1, EPOCH + 1, "cancel")


@pytest.mark.parametrize(
    "changes", [{"leased": True}, {"lock_expires_at": NOW}], ids=["a worker's", "a crashed process's"]
)
def test_nothing_is_waited_for_in_a_call_that_is_not_made_here_or_is_lost(changes: dict[str, Any]) -> None:
    ending = end_requested(a_run("active", **changes), Ending.CANCEL, LAST_TICK, NOW)
    assert (ending.status, ending.stop_by, ending.tick_open) == ("pending", None, False)


def test_used_up_attempts_leave_no_call_to_wait_for() -> None:
    ending = end_requested(a_run("active"), Ending.EXHAUSTED, LAST_TICK, NOW)
    assert (ending.status, ending.stop_by) == ("pending", None)


def test_a_last_tick_that_is_retried_after_the_end_keeps_its_number_and_has_all_attempts() -> None:
    incomplete = a_run("failed", end_incomplete=True, end_attempt=3, end_max_attempts=3)
    again = end_retried(incomplete, Ending.DEADLINE, LastTick(7, 0), NOW)
    assert (again.status, again.ended_at, again.end_incomplete) == ("pending", None, False)
    last = claimed(again, "i-me", LOCK_MS, NOW)
    assert isinstance(last, Run)
    assert (last.tick, last.ending, last.end_attempt, last.end_max_attempts) == (4, "deadline", 0, 7)


def test_a_lock_is_renewed_to_its_full_time_and_never_shortened() -> None:
    run = a_run("active")
    assert renewed(run, LOCK_MS, NOW) == changed(run, lock_expires_at=NOW + LOCK_MS)
    assert renewed(run, 1, NOW) == run


def test_an_ended_run_is_no_longer_paused() -> None:
    ended = end_requested(a_run("idle", paused=True), Ending.CANCEL, None, NOW)
    assert (ended.status, ended.paused) == ("failed", False)


def test_a_pause_does_not_stop_signals_from_queueing() -> None:
    run = input_arrived(a_run("idle", paused=True), NOW, NOW)
    assert (run.status, run.paused) == ("pending", True)


def test_a_commit_of_a_run_paused_meanwhile_stands_and_the_run_stays_paused() -> None:
    run = settled(a_run("active", paused=True), Continue(), None, NOW)
    assert (run.status, run.paused) == ("pending", True)


@pytest.mark.parametrize("until", [0, NOW - 1, NOW])
def test_a_wait_for_a_time_that_has_passed_is_due_at_once(until: int) -> None:
    run = settled(a_run("active"), Wait(until=until), None, NOW)
    assert (run.status, run.wake_at) == ("waiting", until)
    assert holds(run, Surroundings(is_here=True), NOW) == ()


def test_a_timer_cancelled_after_a_signal_for_later_lets_the_run_sleep_until_that() -> None:
    """The run waits for a timer; a signal with a later time arrives; a direct call cancels the timer."""
    run = input_arrived(a_run("waiting", wait_until=None), WAKES + 1, NOW)
    assert inbox_changed(run, WAKES + 1, NOW).wake_at == WAKES + 1


def test_wait_for_ms_counts_from_the_commit() -> None:
    assert settled(a_run("active"), Wait(for_ms=250), None, NOW).wake_at == NOW + 250


def test_the_document_names_arrows_and_tests_that_exist() -> None:
    root = Path(__file__).parents[2]
    named = set(re.findall(r"`([^`]+--[^`]+-->[^`]+|test_\w+)`", (root / "docs" / "state-machine.md").read_text()))
    arrows = {arrow(*cell) for cell in CELLS} | RETRIES.keys() | CRASHES.keys() | GIVE_BACKS.keys()
    tests = {
        name for path in (root / "tests").rglob("test_*.py") for name in re.findall(r"def (\w+)", path.read_text())
    }
    assert len(named & arrows) > 30
    assert named - arrows - tests == set()
