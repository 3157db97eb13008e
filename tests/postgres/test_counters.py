"""The arithmetic of counters is the same in SQL and in Python, up to the largest numbers that either accepts."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ocean.state.counters import MOST, MOST_OWED, MOST_UNITS, Counter, CounterKind, Take, decide, reserve
from ocean.state.errors import InvalidValue
from tests.postgres.sql_calls import SqlCalls, asking

compared = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

NOW = 1_750_000_000_000
TIMES = st.sampled_from([NOW - 86_400_000, NOW - 1, NOW, NOW + 1, NOW + 86_400_000]) | st.integers(NOW - 50, NOW + 50)
"""Clocks differ, and are set back."""
AMOUNTS = st.integers(1, 5) | st.integers(1, MOST) | st.integers(MOST - 2, MOST)


@pytest.fixture(scope="module")
def ask() -> Iterator[SqlCalls]:
    with asking() as found:
        yield found


@st.composite
def rates(draw: st.DrawFn) -> tuple[int, int]:
    """Limit and `per_ms` of a steady counter: their product is limited, too."""
    limit = draw(AMOUNTS)
    return limit, min(draw(AMOUNTS), MOST_UNITS // limit)


@st.composite
def takes(draw: st.DrawFn, kinds: Any = CounterKind) -> Take:
    kind = draw(st.sampled_from(kinds))
    if kind is CounterKind.TOTAL:
        limit = draw(st.none() | AMOUNTS)
        most = limit or MOST
        return Take("k", draw(st.integers(0, min(most, 3)) | st.integers(0, most)), limit)
    limit, per_ms = draw(rates()) if kind is CounterKind.STEADY else (draw(AMOUNTS), draw(AMOUNTS))
    n = draw(st.sampled_from([0, 1, limit]) | st.integers(0, limit))
    return Take("k", n, limit, per_ms, "steady" if kind is CounterKind.STEADY else "at_once")


@st.composite
def counters(draw: st.DrawFn, kinds: Any = CounterKind) -> Counter | None:
    kind = draw(st.none() | st.sampled_from(kinds))
    at = draw(TIMES)
    match kind:
        case CounterKind.TOTAL:
            return Counter(kind, draw(AMOUNTS), at)
        case CounterKind.STEADY:
            rate, per_ms = draw(rates())
            owed = st.integers(1, MOST_OWED) | st.integers(1, rate * per_ms) | st.just(rate * per_ms)
            return Counter(kind, draw(owed), at, per_ms, rate)
        case CounterKind.AT_ONCE:
            return Counter(kind, draw(AMOUNTS), at, draw(AMOUNTS))
    return None


def cases(kinds: Any = CounterKind) -> st.SearchStrategy[list[tuple[Counter | None, Take, int]]]:
    return st.lists(st.tuples(counters(kinds), takes(kinds), TIMES), min_size=1, max_size=8)


def row(counter: Counter | None, key: str = "k") -> dict[str, Any] | None:
    return None if counter is None else {"key": key, **asdict(counter), "expires_at": counter.expires_at}


@compared
@given(given=cases())
@example(given=[(Counter(CounterKind.TOTAL, MOST, NOW), Take("k", 1), NOW)])
@example(given=[(Counter(CounterKind.TOTAL, MOST - 1, NOW), Take("k", 1), NOW)])
def test_a_take_has_the_same_result(ask: SqlCalls, given: list[tuple[Counter | None, Take, int]]) -> None:
    sent = [(row(counter), asdict(take), now) for counter, take, now in given]
    query = """SELECT jsonb_agg(pg_temp.decided(c->0, c->1, (c->>2)::bigint) ORDER BY place)::text
        FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(c, place)"""
    for (counter, take, now), found in zip(given, ask((query, sent)), strict=True):
        try:
            taken, after = decide(counter, take, now)
        except InvalidValue:
            assert found is None
            continue
        assert (found["ok"], found["used"], found["retry_after_ms"]) == (taken.ok, taken.used, taken.retry_after_ms)
        if taken.ok and take.n:
            assert after is not None
            stored = Counter(CounterKind(found["kind"]), found["owed"], found["at"], found["per_ms"], found["rate"])
            assert stored == after


@compared
@given(cases())
def test_a_counter_expires_at_the_same_time(ask: SqlCalls, given: list[tuple[Counter | None, Take, int]]) -> None:
    stored = [counter for counter, _, _ in given if counter is not None]
    query = """SELECT jsonb_agg(ocean_counter_expires_at(c.kind, c.used, c.at, c.per_ms, c.rate) ORDER BY place)::text
        FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(v, place),
        LATERAL jsonb_populate_record(NULL::ocean_counters, v) c"""
    assert ask((query, [row(counter) for counter in stored])) == ([c.expires_at for c in stored] or None)


@compared
@given(cases([CounterKind.STEADY]))
def test_tokens_are_reserved_for_the_same_time(ask: SqlCalls, given: list[tuple[Counter | None, Take, int]]) -> None:
    given = [(counter, replace(take, key=f"k{place}"), now) for place, (counter, take, now) in enumerate(given)]
    rows = [found for counter, take, _ in given if (found := row(counter, take.key))]
    sent = [(asdict(take), now) for _, take, now in given if take.n]
    insert = "INSERT INTO ocean_counters SELECT * FROM jsonb_populate_recordset(NULL::ocean_counters, $1::text::jsonb)"
    query = """SELECT jsonb_agg(pg_temp.promised(c->0, (c->>1)::bigint) ORDER BY place)::text
        FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY e(c, place)"""
    results = ask((insert, rows), (query, sent)) or []
    for (counter, take, now), found in zip([case for case in given if case[1].n], results, strict=True):
        try:
            free_at, after = reserve(counter, take, now)
        except InvalidValue:
            assert found is None
            continue
        assert found == [free_at, row(after, take.key)]
