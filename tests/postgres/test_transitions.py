"""The state machine in SQL equals the one in Python: both are applied to the same random runs."""

import sqlite3
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from ocean.state import ends, suspects
from ocean.state import transitions as t
from ocean.state.backoff import RetryPolicy, delay_for
from ocean.state.eligibility import is_lapsed_lease, kernel_end, pick
from ocean.state.errors import RunEnded
from ocean.state.ids import even_roll
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait, outcome_name
from ocean.state.records import Delay, Ending, LastTick, Run, RunStatus, changed
from ocean.stores.shared.rows import run_from
from ocean.stores.sqlite.engine.write_buffer import QUERIES
from ocean.stores.sqlite.migrate import migrate
from tests.postgres.sql_calls import SqlCalls, asking

MANY = 2_000
"""Cases in one statement: enough for rare combinations of a few fields to occur."""
LATEST = 12
"""Few different times, so that they are often equal; `now` is one of them, and clocks go backwards."""
OUTCOMES: list[Any] = [Ok(), Done(1), Failed("no"), Continue(2), Wait(until=5), Wait(for_ms=3), Wait(until=20)]
COLUMNS = ", ".join([*Run._fields, "due_at", "last_call"])


@pytest.fixture(scope="module")
def ask() -> Iterator[SqlCalls]:
    with asking() as found:
        yield found


@pytest.fixture
def dice() -> Random:
    return Random(1)


def a_time(dice: Random) -> int:
    return dice.randint(0, LATEST)


def sometimes(dice: Random) -> int | None:
    return a_time(dice) if dice.random() < 0.6 else None


def is_so(dice: Random) -> bool:
    return dice.random() < 0.5


def a_run(dice: Random) -> Run:
    """Any run that the table's constraints allow, even if no history leads to it."""
    status = dice.choice(list(RunStatus))
    is_ended, is_active = status in (RunStatus.DONE, RunStatus.FAILED), status is RunStatus.ACTIVE
    has_keys = is_so(dice)
    wake_at = a_time(dice) if status is RunStatus.WAITING else sometimes(dice)
    if is_ended or status is RunStatus.IDLE:
        wake_at = None
    ready_at = sometimes(dice)
    if status is RunStatus.PENDING:
        ready_at = a_time(dice) if wake_at is None else None
    is_parked = has_keys and status in (RunStatus.PENDING, RunStatus.WAITING) and is_so(dice)
    is_delayed = status is RunStatus.PENDING and wake_at is not None and is_so(dice)
    ending = None if is_ended or is_so(dice) else dice.choice(list(Ending))
    company = dice.choice([None, 0, 1, 2, 5])
    return Run(
        run_id=dice.choice(["r", "a b", "ü\x1f%s'\\"]),
        session_id="s",
        clog_id="c",
        parent_run_id=None,
        correlation_id="r",
        priority=dice.randint(0, 9),
        status=status,
        attempt=dice.randint(0, 4),
        max_attempts=dice.choice([None, 1, 2, 3, 4]),
        ready_at=ready_at,
        wake_at=wake_at,
        deadline_at=sometimes(dice),
        locked_by="i" if is_active else None,
        lock_expires_at=a_time(dice) if is_active else None,
        lock_epoch=dice.randint(0, 3),
        tick=dice.randint(0, 9),
        tick_open=not is_ended and is_so(dice),
        paused=is_so(dice),
        ending=ending,
        event_count=1,
        inbox_count=dice.randint(0, 2),
        pending_count=dice.randint(0, 2),
        created_at=0,
        updated_at=a_time(dice),
        ended_at=a_time(dice) if is_ended else None,
        wait_until=sometimes(dice) if status is RunStatus.WAITING else None,
        key_count=int(has_keys),
        parked_on="k" if is_parked else None,
        parked_at=a_time(dice) if is_parked else sometimes(dice),
        leased=is_active and is_so(dice),
        delayed_by=dice.choice(list(Delay)) if is_delayed else None,
        delay_key="d" if is_delayed else None,
        end_attempt=dice.randint(0, 3),
        end_max_attempts=dice.choice([None, 1, 2, 3]),
        end_incomplete=status is RunStatus.FAILED and is_so(dice),
        stop_by=a_time(dice) if is_active and ending is not None and is_so(dice) else None,
        crash_company=company,
        crash_epoch=None if company is None else dice.randint(0, 3),
    )


def a_policy(dice: Random) -> RetryPolicy:
    def delay() -> int:
        return dice.choice([dice.randint(0, 5), dice.randint(0, 2**40)])

    return RetryPolicy(
        backoff_ms=delay(),
        backoff_max_ms=delay(),
        delays_ms=dice.choice([None, tuple(delay() for _ in range(dice.randint(1, 3)))]),
        jitter=dice.choice([0, 1, 0.1, 1e-7, 2.5, 10.0, dice.uniform(0, 10)]),
    )


Case = dict[str, Any]


def cases(dice: Random, **parts: Callable[[Random], Any]) -> list[Case]:
    """Cases, each with a run and a time."""
    made = {"run": a_run, "now": a_time} | parts
    return [{name: make(dice) for name, make in made.items()} for _ in range(MANY)]


def evaluate(ask: SqlCalls, wanted: str, given: list[Case]) -> list[Any]:
    """The value of the expression `wanted` for each case: `r` is its run, `now` its time, `c` the whole case."""
    sent = [case | {"run": case["run"]._asdict()} for case in given]
    statement = (
        f"SELECT jsonb_agg({wanted} ORDER BY place)::text"
        " FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(c, place),"
        " LATERAL jsonb_populate_record(NULL::runs, c->'run') r, LATERAL (SELECT (c->>'now')::bigint AS now) n"
    )
    found: list[Any] = ask((statement, sent))
    return found


def following(ask: SqlCalls, wanted: str, given: list[Case]) -> list[Run | None]:
    return [None if row is None else run_from(row) for row in evaluate(ask, wanted, given)]


def test_predicates_of_a_run(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice)
    wanted = """jsonb_build_array(ocean_due_at(r), ocean_next_call_at(r), ocean_wants_slots(r, now),
        ocean_is_last_call(r), ocean_kernel_end(r, now), ocean_is_lapsed_lease(r, now),
        ocean_is_ended(r), ocean_is_held(r, 2), ocean_needs_note(r, now))"""
    for case, found in zip(given, evaluate(ask, wanted, given), strict=True):
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
            suspects.needs_note(run, now),
        ]


def test_an_input_arrives_or_timers_change(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice, at=a_time, next_at=sometimes)
    arrived = following(ask, "pg_temp.arrived(r, (c->>'at')::bigint, now)", given)
    rearranged = following(ask, "pg_temp.rearranged(r, (c->>'next_at')::bigint, now)", given)
    for case, one, other in zip(given, arrived, rearranged, strict=True):
        run, now = case["run"], case["now"]
        try:
            assert one == t.input_arrived(run, case["at"], now)
            assert other == t.inbox_changed(run, case["next_at"], now)
        except RunEnded:
            assert one is other is None


def test_a_claim(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice, lock_ms=a_time, is_lease=is_so)
    wanted = "to_jsonb(ocean_claimed(r, 'h', (c->>'lock_ms')::bigint, (c->>'is_lease')::boolean, now))"
    for case, found in zip(given, following(ask, wanted, given), strict=True):
        expected = t.claimed(case["run"], "h", case["lock_ms"], case["now"], is_lease=case["is_lease"])
        # Whether the run is overdue is checked elsewhere: see kernel_end.
        assert isinstance(expected, t.EndNow) or found == expected


def test_a_commit(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice, outcome=lambda dice: dice.choice(range(len(OUTCOMES))), next_at=sometimes)
    for case in given:
        outcome = OUTCOMES[case["outcome"]]
        case["answered"] = outcome_name(outcome)
        case["until"] = outcome.wake_at(case["now"]) if isinstance(outcome, Wait) else None
    wanted = "to_jsonb(ocean_settled(r, c->>'answered', (c->>'until')::bigint, (c->>'next_at')::bigint, now))"
    for case, found in zip(given, following(ask, wanted, given), strict=True):
        assert found == t.settled(case["run"], OUTCOMES[case["outcome"]], case["next_at"], case["now"])


def test_a_retry_and_how_long_it_waits(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice, policy=a_policy, after_ms=sometimes)
    sent = [case | {"policy": case["policy"].as_json()} for case in given]
    delay = "ocean_delay_for(c->'policy', r.run_id, r.tick, ocean_attempts(r) + 1)"
    delays = evaluate(ask, delay, sent)
    retried = following(ask, f"to_jsonb(ocean_retried(r, coalesce((c->>'after_ms')::bigint, {delay}), now))", sent)
    for case, waits, found in zip(given, delays, retried, strict=True):
        run, attempt = case["run"], t.attempts(case["run"]) + 1
        assert waits == delay_for(case["policy"], attempt, even_roll(run.run_id, run.tick, attempt))
        expected = t.retried(run, Retry("no", case["after_ms"]), case["policy"], case["now"], case["now"])
        assert isinstance(expected, t.EndNow) or found == expected


def test_a_delay_after_many_attempts(ask: SqlCalls, dice: Random) -> None:
    given = [(a_policy(dice), dice.choice([dice.randint(30, 50), dice.randint(1, 10**6)])) for _ in range(MANY)]
    query = """SELECT jsonb_agg(ocean_delay_for(c->0, 'r', 7, (c->>1)::bigint) ORDER BY place)::text
        FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(c, place)"""
    found = ask((query, [(policy.as_json(), attempt) for policy, attempt in given]))
    assert found == [delay_for(policy, attempt, even_roll("r", 7, attempt)) for policy, attempt in given]


def test_a_run_is_given_back_taken_back_or_ended(ask: SqlCalls, dice: Random) -> None:
    given = cases(
        dice,
        give_backs=lambda dice: dice.randint(1, 4),
        reason=lambda dice: dice.choice(list(Ending)),
        ended=lambda dice: dice.choice(["done", "failed"]),
        grace_ms=lambda dice: dice.randint(0, 2),
    )
    attempt = "ocean_attempts(r) + CASE WHEN (c->>'give_backs')::int > 2 THEN 1 ELSE 0 END"
    given_back = following(ask, f"to_jsonb(ocean_given_back(r, {attempt}, now))", given)
    taken_back = following(ask, "to_jsonb(ocean_lease_lapsed(r, now))", given)
    ending = following(ask, "to_jsonb(ocean_ending(r, c->>'reason', 4, (c->>'grace_ms')::bigint, now))", given)
    stopped = following(ask, "to_jsonb(ocean_stopped(r, now))", given)
    again = following(ask, "to_jsonb(ocean_end_retried(r, c->>'reason', 4, now))", given)
    ended = following(ask, "to_jsonb(ocean_ended(r, c->>'ended', now))", given)
    rows = zip(given, given_back, taken_back, ending, ended, stopped, again, strict=True)
    for case, back, lapsed, last, end, stop, retried in rows:
        run, now = case["run"], case["now"]
        expected = t.given_back(run, case["give_backs"], now)
        assert isinstance(expected, t.EndNow) or back == expected
        assert lapsed == t.lease_lapsed(run, now)
        assert end == ends.ended(run, RunStatus(case["ended"]), now)
        assert stop == ends.stopped(run, now)
        last_tick = LastTick(4, case["grace_ms"])
        assert retried == ends.end_retried(run, case["reason"], last_tick, now)
        if not run.is_ended and run.ending is None:
            assert last == ends.end_requested(run, case["reason"], last_tick, now)
            at_once = ends.end_requested(run, case["reason"], None, now)
            assert end == changed(at_once, status=RunStatus(case["ended"]))


def test_a_run_is_parked_woken_or_delayed(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice, until=a_time, by=lambda dice: dice.choice(list(Delay)))
    parked = following(ask, "to_jsonb(ocean_parked(r, 'other', now))", given)
    unparked = following(ask, "to_jsonb(ocean_unparked(r, now))", given)
    delayed = following(ask, "to_jsonb(ocean_delayed(r, c->>'by', 'key', (c->>'until')::bigint, now))", given)
    for case, one, two, three in zip(given, parked, unparked, delayed, strict=True):
        run, now = case["run"], case["now"]
        assert one == t.parked(run, "other", now)
        assert two == t.unparked(run, now)
        assert three == t.delayed(run, case["by"], "key", case["until"], now)


def test_the_lock_of_a_dead_process_expires_now(ask: SqlCalls, dice: Random) -> None:
    given = cases(dice)
    for case, found in zip(given, following(ask, "to_jsonb(ocean_lock_released(r, now))", given), strict=True):
        assert found == t.lock_released(case["run"], case["now"])


def numbered(dice: Random, count: int) -> list[Run]:
    return [changed(a_run(dice), run_id=f"{place:04}") for place in range(count)]


def test_locks_are_renewed(ask: SqlCalls, dice: Random) -> None:
    """The bulk statement does not call these functions, but must have the same result."""
    runs, now = numbered(dice, MANY), 6
    rows = [run._asdict() | {"due_at": t.due_at(run), "last_call": t.is_last_call(run)} for run in runs]
    locks = [(run.run_id, 1, a_time(dice)) for run in runs]
    (lost, ending), stored = ask(
        ("INSERT INTO ocean_sessions VALUES ('s', 0)", None),
        (
            f"INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM jsonb_populate_recordset(NULL::runs, $1::text::jsonb)",
            rows,
        ),
        (f"CREATE TEMP TABLE lost ON COMMIT DROP AS SELECT ocean_renew_locks($1::text::jsonb, {now}) AS places", locks),
        ("SELECT json_build_array(l.places, (SELECT json_agg(r ORDER BY run_id) FROM runs r))::text FROM lost l", None),
    )
    are_held = [run.status is RunStatus.ACTIVE and run.lock_epoch == 1 for run in runs]
    assert lost == [place for place, is_held in enumerate(are_held) if not is_held]
    must_stop = [is_held and run.stop_by is not None for run, is_held in zip(runs, are_held, strict=True)]
    assert ending == [place for place, is_so in enumerate(must_stop) if is_so]
    for run, row, is_held, (_, _, lock_ms) in zip(runs, stored, are_held, locks, strict=True):
        expected = t.renewed(run, lock_ms, now) if is_held else run
        assert run_from(row) == expected
        assert (row["due_at"], row["last_call"]) == (t.due_at(expected), t.is_last_call(expected))


def test_the_order_of_claims(ask: SqlCalls, dice: Random) -> None:
    sent, expected = [], []
    for _ in range(MANY // 10):
        runs, limit, slot = numbered(dice, dice.randint(0, 12)), dice.randint(0, 10), dice.randint(0, 20)
        by_age = sorted(runs, key=lambda run: (t.due_at(run) or 0, run.lock_epoch, run.run_id))
        by_urgency = sorted(by_age, key=lambda run: run.priority)
        sent.append([[run.run_id for run in by_urgency], [run.run_id for run in by_age], limit, slot])
        expected.append([run.run_id for run in pick(runs, limit, slot)])
    lines = ", ".join(f"ARRAY(SELECT jsonb_array_elements_text(c->{place}))" for place in (0, 1))
    query = f"""SELECT jsonb_agg(ocean_pick({lines}, (c->>2)::bigint, (c->>3)::bigint) ORDER BY place)::text
        FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(c, place)"""
    assert ask((query, sent)) == expected


ODD: dict[str, Any] = {
    "status": "odd",
    "ending": "odd",
    "delayed_by": "odd",
    "priority": 10,
    "attempt": -1,
    "key_count": 4,
}
ODD |= {"max_attempts": 0, "pending_count": -1, "parked_on": "k", "delay_key": "d", "leased": True, "ended_at": 3}


def spoiled(dice: Random) -> Run:
    """A run with some fields of another, or with values that no run has."""
    replaced = {name: getattr(a_run(dice), name) for name in dice.sample(Run._fields, dice.randint(0, 2))}
    replaced |= {name: ODD[name] for name in dice.sample(sorted(ODD), dice.choice([0, 0, 1]))}
    return changed(a_run(dice), **replaced)


def test_both_databases_refuse_the_same_rows(ask: SqlCalls, dice: Random) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    given, taken = cases(dice, run=spoiled), []
    for number, case in enumerate(given):
        case["run"] = changed(case["run"], run_id=f"r-{number}")
        # The rules know no other statuses than `RunStatus` has.
        due_at = t.due_at(case["run"]) if case["run"].status in {*RunStatus} else None
        case["due_at"] = dice.choice([due_at, a_time(dice)])
        columns = case["run"]._asdict() | {"due_at": case["due_at"], "last_call": False}
        try:
            db.execute(QUERIES["insert_run"], columns)
            taken.append(True)
        except sqlite3.IntegrityError:
            taken.append(False)
    db.close()
    arguments = ask(("SELECT to_json(proargnames)::text FROM pg_proc WHERE proname = 'ocean_makes_sense'", None))
    named = ", ".join("(c->>'due_at')::bigint" if name == "due_at" else f"r.{name}" for name in arguments)
    assert evaluate(ask, f"ocean_makes_sense({named})", given) == taken
    assert 200 < sum(taken) < MANY - 200
