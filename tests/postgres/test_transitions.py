"""The state machine in SQL is the one in Python: both are asked about the same made-up runs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocean.kernel import transitions as t
from ocean.kernel.backoff import RetryPolicy, delay_for
from ocean.kernel.eligibility import is_lapsed_lease, kernel_end
from ocean.kernel.errors import RunEnded
from ocean.kernel.ids import even_roll
from ocean.kernel.lanes import pick
from ocean.kernel.outcomes import Continue, Done, Failed, Ok, Retry, Wait, outcome_name
from ocean.kernel.records import Delay, Ending, Run, RunStatus, changed
from ocean.stores.rows import run_from
from tests.postgres.asking import Asking, asking

compared = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

TIMES = st.integers(0, 12)
"""Few of them, so that they are often equal; `now` is one of them, and clocks go backwards."""
SOMETIMES = st.none() | TIMES
OUTCOMES: list[Any] = [Ok(), Done(1), Failed("no"), Continue(2), Wait(until=5), Wait(for_ms=3), Wait(until=20)]
COLUMNS = ", ".join([*Run.__slots__, "due_at", "last_call"])


@pytest.fixture(scope="module")
def ask() -> Iterator[Asking]:
    with asking() as found:
        yield found


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Whatever the table's constraints allow, though no history may ever lead to it."""
    status = draw(st.sampled_from(RunStatus))
    is_ended, is_active = status in (RunStatus.DONE, RunStatus.FAILED), status is RunStatus.ACTIVE
    has_keys = draw(st.booleans())
    wake_at = draw(TIMES if status is RunStatus.WAITING else SOMETIMES)
    if is_ended or status is RunStatus.IDLE:
        wake_at = None
    ready_at = draw(SOMETIMES)
    if status is RunStatus.PENDING:
        ready_at = draw(TIMES) if wake_at is None else None
    can_wait = status in (RunStatus.PENDING, RunStatus.WAITING)
    parked_on = draw(st.none() | st.just("k")) if has_keys and can_wait else None
    can_delay = status is RunStatus.PENDING and wake_at is not None
    delayed_by = draw(st.none() | st.sampled_from(Delay)) if can_delay else None
    return Run(
        run_id=draw(st.sampled_from(["r", "a b", "ü\x1f%s'\\"])),
        session_id="s",
        clog_id="c",
        parent_run_id=None,
        correlation_id="r",
        priority=draw(st.integers(0, 9)),
        status=status,
        attempt=draw(st.integers(0, 4)),
        max_attempts=draw(st.none() | st.integers(1, 4)),
        ready_at=ready_at,
        wake_at=wake_at,
        deadline_at=draw(SOMETIMES),
        locked_by="i" if is_active else None,
        lock_expires_at=draw(TIMES) if is_active else None,
        lock_epoch=draw(st.integers(0, 3)),
        tick=draw(st.integers(0, 9)),
        tick_open=not is_ended and draw(st.booleans()),
        paused=draw(st.booleans()),
        ending=None if is_ended else draw(st.none() | st.sampled_from(Ending)),
        event_count=1,
        inbox_count=draw(st.integers(0, 2)),
        pending_count=draw(st.integers(0, 2)),
        created_at=0,
        updated_at=draw(TIMES),
        ended_at=draw(TIMES) if is_ended else None,
        wait_until=draw(SOMETIMES) if status is RunStatus.WAITING else None,
        key_count=int(has_keys),
        parked_on=parked_on,
        parked_at=draw(TIMES if parked_on else SOMETIMES),
        leased=is_active and draw(st.booleans()),
        delayed_by=delayed_by,
        delay_key="d" if delayed_by else None,
    )


def policies() -> st.SearchStrategy[RetryPolicy]:
    delays = st.integers(0, 2**40) | st.integers(0, 5)
    return st.builds(
        RetryPolicy,
        backoff_ms=delays,
        backoff_max_ms=delays,
        delays_ms=st.none() | st.lists(delays, min_size=1, max_size=3),
        jitter=st.sampled_from([0, 1, 0.1, 1e-7, 2.5, 10.0]) | st.floats(0, 10, allow_subnormal=False),
    )


def cases(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Many in one statement. Each has a run and a time."""
    return st.lists(st.fixed_dictionaries({"run": runs(), "now": TIMES} | parts), min_size=1, max_size=5)


def answers(ask: Asking, wanted: str, given: list[dict[str, Any]]) -> list[Any]:
    """What `wanted` says of each case: `r` is its run, `now` its time, `c` the whole of it."""
    sent = [case | {"run": asdict(case["run"])} for case in given]
    statement = (
        f"SELECT jsonb_agg({wanted} ORDER BY place)::text"
        " FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(c, place),"
        " LATERAL jsonb_populate_record(NULL::runs, c->'run') r, LATERAL (SELECT (c->>'now')::bigint AS now) n"
    )
    found: list[Any] = ask((statement, sent))
    return found


def following(ask: Asking, wanted: str, given: list[dict[str, Any]]) -> list[Run | None]:
    return [None if row is None else run_from(row) for row in answers(ask, wanted, given)]


@compared
@given(cases())
def test_what_is_asked_of_a_run(ask: Asking, given: list[dict[str, Any]]) -> None:
    wanted = """jsonb_build_array(ocean_due_at(r), ocean_next_call_at(r), ocean_wants_slots(r, now),
        ocean_is_last_call(r), ocean_kernel_end(r, now), ocean_is_lapsed_lease(r, now),
        ocean_is_ended(r), ocean_is_held(r, 2))"""
    for case, found in zip(given, answers(ask, wanted, given), strict=True):
        run, now = case["run"], case["now"]
        assert found == [
            t.due_at(run),
            t.next_call_at(run),
            t.wants_slots(run, now),
            t.is_last_call(run),
            kernel_end(run, now),
            is_lapsed_lease(run, now),
            run.is_ended,
            run.status is RunStatus.ACTIVE and run.lock_epoch == 2,
        ]


@compared
@given(cases(at=TIMES, next_at=SOMETIMES))
def test_an_input_arrives_or_timers_change(ask: Asking, given: list[dict[str, Any]]) -> None:
    arrived = following(ask, "pg_temp.arrived(r, (c->>'at')::bigint, now)", given)
    rearranged = following(ask, "pg_temp.rearranged(r, (c->>'next_at')::bigint, now)", given)
    for case, one, other in zip(given, arrived, rearranged, strict=True):
        run, now = case["run"], case["now"]
        try:
            assert one == t.input_arrived(run, case["at"], now)
            assert other == t.inbox_changed(run, case["next_at"], now)
        except RunEnded:
            assert one is other is None


@compared
@given(cases(lock_ms=TIMES, is_lease=st.booleans()))
def test_a_claim(ask: Asking, given: list[dict[str, Any]]) -> None:
    wanted = "to_jsonb(ocean_claimed(r, 'h', (c->>'lock_ms')::bigint, (c->>'is_lease')::boolean, now))"
    for case, found in zip(given, following(ask, wanted, given), strict=True):
        expected = t.claimed(case["run"], "h", case["lock_ms"], case["now"], is_lease=case["is_lease"])
        # Whether an end is owed instead was asked before: see kernel_end.
        assert isinstance(expected, t.EndNow) or found == expected


@compared
@given(cases(outcome=st.integers(0, len(OUTCOMES) - 1), next_at=SOMETIMES))
def test_a_commit(ask: Asking, given: list[dict[str, Any]]) -> None:
    for case in given:
        outcome = OUTCOMES[case["outcome"]]
        case["answered"] = outcome_name(outcome)
        case["until"] = outcome.wake_at(case["now"]) if isinstance(outcome, Wait) else None
    wanted = "to_jsonb(ocean_settled(r, c->>'answered', (c->>'until')::bigint, (c->>'next_at')::bigint, now))"
    for case, found in zip(given, following(ask, wanted, given), strict=True):
        assert found == t.settled(case["run"], OUTCOMES[case["outcome"]], case["next_at"], case["now"])


@compared
@given(cases(policy=policies(), after_ms=SOMETIMES))
def test_a_retry_and_how_long_it_waits(ask: Asking, given: list[dict[str, Any]]) -> None:
    sent = [case | {"policy": case["policy"].as_json()} for case in given]
    delay = "ocean_delay_for(c->'policy', r.run_id, r.tick, r.attempt + 1)"
    delays = answers(ask, delay, sent)
    retried = following(ask, f"to_jsonb(ocean_retried(r, coalesce((c->>'after_ms')::bigint, {delay}), now))", sent)
    for case, waits, found in zip(given, delays, retried, strict=True):
        run, attempt = case["run"], case["run"].attempt + 1
        assert waits == delay_for(case["policy"], attempt, even_roll(run.run_id, run.tick, attempt))
        expected = t.retried(run, Retry("no", case["after_ms"]), case["policy"], case["now"], case["now"])
        assert isinstance(expected, t.EndNow) or found == expected


@compared
@given(policies(), st.integers(1, 10**6))
def test_a_delay_after_many_attempts(ask: Asking, policy: RetryPolicy, attempt: int) -> None:
    sent = {"policy": policy.as_json(), "attempt": attempt}
    delay = "ocean_delay_for(c->'policy', 'r', 7, (c->>'attempt')::bigint)"
    asked = f"SELECT to_json({delay})::text FROM (SELECT $1::text::jsonb c) v"
    assert ask((asked, sent)) == delay_for(policy, attempt, even_roll("r", 7, attempt))


@compared
@given(cases(give_backs=st.integers(1, 4), reason=st.sampled_from(Ending), ended=st.sampled_from(["done", "failed"])))
def test_a_run_is_given_back_taken_back_or_ended(ask: Asking, given: list[dict[str, Any]]) -> None:
    attempt = "r.attempt + CASE WHEN (c->>'give_backs')::int > 2 THEN 1 ELSE 0 END"
    given_back = following(ask, f"to_jsonb(ocean_given_back(r, {attempt}, now))", given)
    taken_back = following(ask, "to_jsonb(ocean_given_back(r, r.attempt + 1, now))", given)
    ending = following(ask, "to_jsonb(ocean_ending(r, c->>'reason', now))", given)
    ended = following(ask, "to_jsonb(ocean_ended(r, c->>'ended', now))", given)
    for case, back, lapsed, last, end in zip(given, given_back, taken_back, ending, ended, strict=True):
        run, now = case["run"], case["now"]
        expected = t.given_back(run, case["give_backs"], now)
        assert isinstance(expected, t.EndNow) or back == expected
        assert lapsed == t.lease_lapsed(run, now)
        assert end == t.ended(run, RunStatus(case["ended"]), now)
        if not run.is_ended and run.ending is None:
            assert last == t.end_requested(run, case["reason"], True, now)
            assert end == changed(t.end_requested(run, case["reason"], False, now), status=RunStatus(case["ended"]))


@compared
@given(cases(until=TIMES, by=st.sampled_from(Delay)))
def test_a_run_is_parked_woken_or_delayed(ask: Asking, given: list[dict[str, Any]]) -> None:
    parked = following(ask, "to_jsonb(ocean_parked(r, 'other', now))", given)
    unparked = following(ask, "to_jsonb(ocean_unparked(r, now))", given)
    delayed = following(ask, "to_jsonb(ocean_delayed(r, c->>'by', 'key', (c->>'until')::bigint, now))", given)
    for case, one, two, three in zip(given, parked, unparked, delayed, strict=True):
        run, now = case["run"], case["now"]
        assert one == t.parked(run, "other", now)
        assert two == t.unparked(run, now)
        assert three == t.delayed(run, case["by"], "key", case["until"], now)


def numbered(found: list[Run]) -> list[Run]:
    return [changed(run, run_id=f"{place}-{run.run_id}") for place, run in enumerate(found)]


def inserted(found: list[Run]) -> tuple[tuple[str, Any], ...]:
    rows = [asdict(run) | {"due_at": t.due_at(run), "last_call": t.is_last_call(run)} for run in found]
    return (
        ("INSERT INTO ocean_sessions VALUES ('s', length($1::text))", 0),
        (
            f"INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM jsonb_populate_recordset(NULL::runs, $1::text::jsonb)",
            rows,
        ),
    )


@compared
@given(st.lists(runs(), min_size=1, max_size=5).map(numbered), st.lists(TIMES, min_size=5, max_size=5), TIMES)
def test_locks_are_renewed(ask: Asking, found: list[Run], lock_ms: list[int], now: int) -> None:
    """One statement for all, that does not call the functions: it says the same."""
    locks = [(run.run_id, 1, ms) for run, ms in zip(found, lock_ms, strict=False)]
    renew = f"SELECT ocean_renew_locks($1::text::jsonb, {now})::text"
    rows = "SELECT jsonb_agg(r)::text FROM runs r WHERE length($1::text) > 0"
    are_held = [run.status is RunStatus.ACTIVE and run.lock_epoch == 1 for run in found]
    assert ask(*inserted(found), (renew, locks)) == [place for place, is_held in enumerate(are_held) if not is_held]
    stored = {row["run_id"]: row for row in ask(*inserted(found), (renew, locks), (rows, 0))}
    for run, is_held, ms in zip(found, are_held, lock_ms, strict=False):
        row = stored[run.run_id]
        expected = t.renewed(run, ms, now) if is_held else run
        assert run_from(row) == expected
        assert row["due_at"] == t.due_at(expected)
        assert row["last_call"] == t.is_last_call(expected)


@compared
@given(st.lists(runs(), max_size=12).map(numbered), st.integers(0, 10), st.integers(0, 20))
def test_who_goes_first(ask: Asking, found: list[Run], limit: int, slot: int) -> None:
    by_age = sorted(found, key=lambda run: (t.due_at(run) or 0, run.lock_epoch, run.run_id))
    by_urgency = sorted(by_age, key=lambda run: run.priority)
    sent = {"urgent": [run.run_id for run in by_urgency], "aged": [run.run_id for run in by_age]}
    lists = [f"ARRAY(SELECT jsonb_array_elements_text($1::text::jsonb->'{name}'))" for name in sent]
    chosen = ask((f"SELECT to_json(ocean_pick({lists[0]}, {lists[1]}, {limit}, {slot}))::text", sent))
    assert chosen == [run.run_id for run in pick(found, limit, slot)]
