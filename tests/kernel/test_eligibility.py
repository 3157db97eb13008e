"""Whether and when a run may be claimed: `holds` and `due_at` are two views of one rule."""

import sqlite3
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ocean.state.eligibility import Explanation, FullKey, Hold, HoldCode, Surroundings, holds, kernel_end
from ocean.state.records import Delay, Ending, Run, RunStatus, changed
from ocean.state.transitions import due_at
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.migrate import migrate
from tests.kernel.test_transitions import BACK, BEFORE, EPOCH, LAPSES, NOW, WAKES, a_run

CANCEL, DEADLINE, EXHAUSTED = Ending.CANCEL, Ending.DEADLINE, Ending.EXHAUSTED


def held(run: Run, now: int, *, is_here: bool = True, is_clog_paused: bool = False) -> tuple[Hold, ...]:
    return holds(run, Surroundings(is_here, is_clog_paused), now)


RATED = a_run("pending", wake_at=BACK, delayed_by=Delay.RATE, delay_key="mails")
DEBOUNCED = a_run("pending", wake_at=BACK, delayed_by=Delay.DEBOUNCE, delay_key="page-7")


DUE: dict[str, tuple[Run, int | None]] = {
    "idle: never": (a_run("idle"), None),
    "pending: since it became ready": (a_run("pending"), BEFORE),
    "backing off: when the back-off ends": (a_run("pending", wake_at=BACK), BACK),
    "rate limited: when its token is free": (RATED, BACK),
    "debounced: when the creations have come to rest": (DEBOUNCED, BACK),
    "rate limited and paused: never": (changed(RATED, paused=True), None),
    "waiting: at its wake time": (a_run("waiting"), WAKES),
    "active: when the lock lapses": (a_run("active"), LAPSES),
    "done: never": (a_run("done"), None),
    "failed: never": (a_run("failed"), None),
    "idle with a deadline: then": (a_run("idle", deadline_at=WAKES), WAKES),
    "waiting with an earlier deadline: then": (a_run("waiting", deadline_at=WAKES - 1), WAKES - 1),
    "waiting with a later deadline: at its wake time": (a_run("waiting", deadline_at=WAKES + 1), WAKES),
    "backing off with an earlier deadline: then": (a_run("pending", wake_at=BACK, deadline_at=BACK - 1), BACK - 1),
    "active with an earlier deadline: then": (a_run("active", deadline_at=LAPSES - 1), LAPSES - 1),
    "done with a deadline: never": (a_run("done", deadline_at=BEFORE), None),
    "paused and pending: never": (a_run("pending", paused=True), None),
    "paused and backing off: never": (a_run("pending", wake_at=BACK, paused=True), None),
    "paused and waiting: never": (a_run("waiting", paused=True), None),
    "paused and active: never": (a_run("active", paused=True), None),
    "paused with a deadline: then": (a_run("pending", paused=True, deadline_at=WAKES), WAKES),
    "its last tick, paused: since it became ready": (a_run("pending", paused=True, ending=CANCEL), BEFORE),
    "its last tick at work, paused: when the lock lapses": (a_run("active", paused=True, ending=CANCEL), LAPSES),
    "its last tick, deadline passed: since it became ready": (
        a_run("pending", ending=DEADLINE, deadline_at=BEFORE - 9),
        BEFORE,
    ),
}


@pytest.mark.parametrize(("run", "due"), DUE.values(), ids=DUE)
def test_due_at_is_a_function_of_the_row(run: Run, due: int | None) -> None:
    assert due_at(run) == due


HELD: dict[str, tuple[Run, list[tuple[str, int | None, str | None]]]] = {
    "ended, for ever": (a_run("done"), [("ended", None, None)]),
    "idle, until a signal": (a_run("idle"), [("idle", None, None)]),
    "waiting, until its wake time": (a_run("waiting"), [("waiting", WAKES, None)]),
    "backing off, until the back-off ends": (a_run("pending", wake_at=BACK), [("backing_off", BACK, None)]),
    "rate limited, by its key until its token is free": (RATED, [("rate_limited", BACK, "mails")]),
    "debounced, by its key until the creations rest": (DEBOUNCED, [("debounced", BACK, "page-7")]),
    "locked, by its holder until the lock lapses": (a_run("active"), [("locked", LAPSES, "i-other")]),
    "paused, until resumed": (a_run("pending", paused=True), [("paused", None, None)]),
    "both paused and waiting": (a_run("waiting", paused=True), [("paused", None, None), ("waiting", WAKES, None)]),
    "both paused and locked": (a_run("active", paused=True), [("paused", None, None), ("locked", LAPSES, "i-other")]),
    "nothing: pending": (a_run("pending"), []),
    "nothing: its last tick, though paused": (a_run("pending", paused=True, ending=CANCEL), []),
    "a last tick at work is locked, paused or not": (
        a_run("active", paused=True, ending=CANCEL),
        [("locked", LAPSES, "i-other")],
    ),
}


@pytest.mark.parametrize(("run", "expected"), HELD.values(), ids=HELD)
def test_a_hold_has_its_code_its_holder_and_its_end(run: Run, expected: list[Any]) -> None:
    assert [(hold.code, hold.until, hold.holder) for hold in held(run, NOW)] == expected


WAITING_AND_PAUSED = a_run("waiting", paused=True)


def test_every_condition_is_named_not_only_the_first() -> None:
    found = held(WAITING_AND_PAUSED, NOW, is_here=False, is_clog_paused=True)
    assert [hold.code for hold in found] == ["clog_elsewhere", "clog_paused", "paused", "waiting"]
    assert all("c-1" in hold.message for hold in found[:2])


def test_a_last_tick_needs_its_clog_here_but_no_clog_pause_holds_it() -> None:
    last = a_run("pending", ending=CANCEL)
    assert held(last, NOW, is_clog_paused=True) == ()
    assert [hold.code for hold in held(last, NOW, is_here=False, is_clog_paused=True)] == ["clog_elsewhere"]


PARKED = changed(a_run("pending"), key_count=1, parked_on="k", parked_at=BEFORE)
FULL = FullKey("k", 2, 2, "another")

AROUND: dict[str, tuple[Run, Surroundings, list[str]]] = {
    "parked on a full key": (PARKED, Surroundings(True, full_key=FULL), ["key_full"]),
    "parked behind others": (PARKED, Surroundings(True), ["key_full"]),
    "due, and its key was taken": (changed(PARKED, parked_on=None), Surroundings(True, full_key=FULL), ["key_full"]),
    "woken": (changed(PARKED, parked_on=None), Surroundings(True), []),
    "backing off, its key full": (
        changed(a_run("pending", wake_at=BACK), key_count=1),
        Surroundings(True, full_key=FULL),
        ["backing_off"],
    ),
    "its clog is external": (a_run("pending"), Surroundings(False, is_external=True), ["needs_worker"]),
    "a worker asks": (a_run("pending"), Surroundings(True, is_external=True), []),
    "a lease that lapsed": (changed(a_run("active"), lock_expires_at=NOW, leased=True), Surroundings(False), []),
    "a lease that holds": (
        changed(a_run("active"), lock_expires_at=NOW + 1, leased=True),
        Surroundings(False, is_external=True),
        ["locked"],
    ),
}


@pytest.mark.parametrize(("run", "around", "codes"), AROUND.values(), ids=AROUND)
def test_the_surroundings_of_a_run_can_hold_it_too(run: Run, around: Surroundings, codes: list[str]) -> None:
    assert [hold.code for hold in holds(run, around, NOW)] == codes


def test_a_full_key_names_its_holder() -> None:
    (hold,) = holds(PARKED, Surroundings(True, full_key=FULL), NOW)
    assert (hold.holder, hold.until) == ("another", None)
    assert "'k' is full, 2 of 2" in hold.message


def test_every_hold_code_is_met_in_these_tests() -> None:
    met = {code for _, expected in HELD.values() for code, _, _ in expected}
    met |= {hold.code for hold in held(WAITING_AND_PAUSED, NOW, is_here=False, is_clog_paused=True)}
    met |= {hold.code for _, around, _ in AROUND.values() for hold in holds(PARKED, around, NOW)}
    assert met == set(get_args(HoldCode))


@pytest.mark.parametrize(
    ("run", "due", "code"),
    [
        (a_run("waiting"), WAKES, "waiting"),
        (a_run("pending", wake_at=BACK), BACK, "backing_off"),
        (RATED, BACK, "rate_limited"),
        (DEBOUNCED, BACK, "debounced"),
        (a_run("active"), LAPSES, "locked"),
        (a_run("idle", deadline_at=WAKES), WAKES, "idle"),
    ],
    ids=["waiting", "backing off", "rate limited", "debounced", "locked", "idle with a deadline"],
)
def test_a_hold_passes_in_the_very_millisecond_it_names(run: Run, due: int, code: str) -> None:
    assert [hold.code for hold in held(run, due - 1)] == [code]
    assert held(run, due) == ()


OWED: dict[str, tuple[Run, int, Ending | None]] = {
    "before the deadline": (a_run("idle", deadline_at=NOW + 1), NOW, None),
    "at the deadline": (a_run("idle", deadline_at=NOW), NOW, DEADLINE),
    "at the deadline of a paused run": (a_run("pending", deadline_at=NOW, paused=True), NOW, DEADLINE),
    "at the deadline of a run at work": (a_run("active", deadline_at=NOW), NOW, DEADLINE),
    "the deadline of a run on its last tick": (a_run("pending", deadline_at=NOW, ending=CANCEL), NOW, None),
    "the deadline of an ended run": (a_run("failed", deadline_at=NOW), NOW, None),
    "a lapsed lock with an attempt left": (a_run("active", attempt=1), LAPSES, None),
    "a lapsed lock on the last attempt": (a_run("active", attempt=2), LAPSES, EXHAUSTED),
    "a live lock on the last attempt": (a_run("active", attempt=2), LAPSES - 1, None),
    "a lapsed lock on the last attempt of a paused run": (a_run("active", attempt=2, paused=True), LAPSES, None),
    "a lapsed lock on the last tick": (a_run("active", ending=CANCEL, end_max_attempts=2), LAPSES, None),
    "a lapsed lock on the last attempt of the last tick": (
        a_run("active", ending=CANCEL, end_attempt=1, end_max_attempts=2, paused=True),
        LAPSES,
        CANCEL,
    ),
    "a lapsed lock of a call that was to stop": (
        a_run("active", attempt=2, ending=CANCEL, end_max_attempts=1, stop_by=NOW),
        LAPSES,
        None,
    ),
    "a crash beside others on the last attempt": (
        a_run("active", attempt=2, crash_company=2, crash_epoch=EPOCH),
        LAPSES,
        None,
    ),
    "a lapsed lock without a limit": (a_run("active", attempt=999, max_attempts=None), LAPSES, None),
    "a deadline before a lapsed lock on the last attempt": (
        a_run("active", attempt=2, deadline_at=1),
        LAPSES,
        DEADLINE,
    ),
}


@pytest.mark.parametrize(("run", "now", "reason"), OWED.values(), ids=OWED)
def test_the_ends_that_any_advance_owes(run: Run, now: int, reason: Ending | None) -> None:
    assert kernel_end(run, now) == reason
    if reason is not None:
        assert held(run, now, is_here=False, is_clog_paused=True) == ()


def test_an_explanation_without_holds_means_the_run_is_claimable() -> None:
    run = a_run("pending")
    assert Explanation(run.run_id, run.status, due_at(run), held(run, NOW)).is_claimable
    idle = a_run("idle")
    assert not Explanation(idle.run_id, idle.status, due_at(idle), held(idle, NOW)).is_claimable


TIMES = st.integers(NOW - 3, NOW + 3)
MAYBE_TIME = st.none() | TIMES


@st.composite
def valid_runs(draw: st.DrawFn) -> Run:
    """Any run that the CHECK constraints allow, including one made ready before its clock was set back."""
    status = draw(st.sampled_from(RunStatus))
    is_ended = status in (RunStatus.DONE, RunStatus.FAILED)
    is_active = status is RunStatus.ACTIVE
    wake_at = None
    if status is RunStatus.WAITING:
        wake_at = draw(TIMES)
    elif status in (RunStatus.PENDING, RunStatus.ACTIVE):
        wake_at = draw(MAYBE_TIME)
    can_be_delayed = status is RunStatus.PENDING and wake_at is not None
    delayed_by = draw(st.none() | st.sampled_from(Delay)) if can_be_delayed else None
    return a_run(
        status,
        attempt=draw(st.integers(0, 4)),
        max_attempts=draw(st.none() | st.integers(1, 4)),
        ready_at=draw(TIMES) if status is RunStatus.PENDING and wake_at is None else None,
        wake_at=wake_at,
        deadline_at=draw(MAYBE_TIME),
        lock_expires_at=draw(TIMES) if is_active else None,
        tick_open=not is_ended and draw(st.booleans()),
        paused=draw(st.booleans()),
        ending=None if is_ended else draw(st.none() | st.sampled_from(Ending)),
        ended_at=BEFORE if is_ended else None,
        wait_until=draw(MAYBE_TIME) if status is RunStatus.WAITING else None,
        delayed_by=delayed_by,
        delay_key="k" if delayed_by else None,
    )


@settings(deadline=None)
@given(run=valid_runs(), now=TIMES)
@example(run=a_run("idle", paused=True, deadline_at=NOW), now=NOW)
@example(run=a_run("active", paused=True, lock_expires_at=NOW), now=NOW)
def test_nothing_holds_a_run_exactly_when_it_is_due(run: Run, now: int) -> None:
    due = due_at(run)
    assert (held(run, now) == ()) == (due is not None and due <= now)


@settings(deadline=None)
@given(run=valid_runs(), now=TIMES)
def test_due_at_is_the_first_time_at_which_nothing_holds_the_run(run: Run, now: int) -> None:
    free = [time for time in range(NOW - 4, NOW + 5) if held(run, time) == ()]
    due = due_at(run)
    if due is None:
        assert free == []
    elif held(run, now) != ():
        assert free[0] == due > now


@settings(deadline=None)
@given(run=valid_runs(), now=TIMES, is_here=st.booleans(), is_clog_paused=st.booleans())
def test_an_end_owed_by_any_advance_is_due_and_nothing_holds_it_back(
    run: Run, now: int, is_here: bool, is_clog_paused: bool
) -> None:
    if kernel_end(run, now):
        due = due_at(run)
        assert held(run, now, is_here=is_here, is_clog_paused=is_clog_paused) == ()
        assert due is not None
        assert due <= now


@settings(deadline=None)
@given(run=valid_runs(), now=TIMES)
def test_a_hold_that_names_a_time_is_gone_at_that_time_if_nothing_else_holds(run: Run, now: int) -> None:
    for hold in held(run, now):
        if hold.until is not None:
            assert hold.until > now
            assert hold.code not in {later.code for later in held(run, hold.until)}


@pytest.fixture(scope="module")
def schema() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    yield db
    db.close()


@settings(deadline=None)
@given(run=valid_runs())
def test_the_runs_generated_here_are_rows_the_schema_takes(schema: sqlite3.Connection, run: Run) -> None:
    schema.execute("BEGIN")
    try:
        transaction = Transaction(schema)
        Unit(transaction, NOW).insert(changed(run, run_id="r-generated"))
        transaction.write()
    finally:
        schema.execute("ROLLBACK")
