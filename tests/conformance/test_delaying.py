"""Runs with a delayed start, in a store."""

from typing import Any

import pytest

from ocean.kernel.store import Store
from ocean.state.counters import Take
from ocean.state.effects import Debounce, Effects, NewRun
from ocean.state.outcomes import Done, Ok
from ocean.testing import ManualClock
from tests.conformance.kit import (
    TablesOf,
    a_run,
    an_ask,
    claim,
    claimed_run,
    commit,
    pending,
    the_run,
)

pytestmark = pytest.mark.anyio

RATE: dict[str, Any] = {"rate_key": "k", "rate_limit": 2, "rate_per_ms": 1_000}


def debounced(run_id: str, input: Any, ms: int = 500, max_ms: int | None = None) -> NewRun:
    """Create a debounced run as the kernel does, with a new id."""
    new = a_run(run_id, input=input, dedupe_key="page")
    return new._replace(is_id_given=False, debounce=Debounce(ms, max_ms), body_hash=f"{input} debounced")


async def test_the_runs_of_a_rate_are_due_one_after_another(store: Store, clock: ManualClock) -> None:
    begin = clock.now()
    runs = [await pending(store, f"r{i}", **RATE) for i in range(5)]
    assert [(run.due_at or 0) - begin for run in runs] == [0, 0, 500, 1_000, 1_500]
    assert [run.wake_at is not None for run in runs] == [False, False, True, True, True]
    rows = [await the_run(store, run.run_id) for run in runs]
    assert [(row.delayed_by, row.delay_key) for row in rows] == [(None, None)] * 2 + [("rate", "k")] * 3


async def test_a_claim_takes_a_delayed_run_at_its_time_and_clears_what_delayed_it(
    store: Store, clock: ManualClock
) -> None:
    for i in range(3):
        await pending(store, f"r{i}", **RATE)
    assert [each.run.run_id for each in await store.claim_due(an_ask())] == ["r0", "r1"]
    clock.advance(499)
    assert await store.claim_due(an_ask(run_id="r2")) == []
    clock.advance(1)
    await claim(store, "r2")
    row = await the_run(store, "r2")
    assert (row.status, row.wake_at, row.delayed_by, row.delay_key) == ("active", None, None, None)


async def test_a_commit_promises_tokens_to_the_runs_it_creates_after_its_own_takes(
    store: Store, clock: ManualClock
) -> None:
    held = await claimed_run(store)
    effects = Effects(runs=[a_run(f"child{i}", input=i, **RATE) for i in range(2)], takes=[Take("k", 1, 2, 1_000)])
    await commit(store, held, Done(), effects)
    assert [(await the_run(store, f"child{i}")).wake_at for i in range(2)] == [None, clock.now() + 500]


async def test_a_further_creation_before_the_first_claim_replaces_the_run(store: Store, clock: ManualClock) -> None:
    begin = clock.now()
    first = await store.create_run(debounced("first", 1), None)
    clock.advance(100)
    again = await store.create_run(debounced("second", 2, max_ms=550), None)
    assert (first.run_id, again.run_id) == ("first", "first")
    assert (first.wake_at, again.wake_at) == (begin + 500, begin + 550)
    assert again.pending_count == 1
    assert [each.body for each in await store.list_inputs("first", 0, 10)] == [2]
    assert await store.find_run("counter", "s", "page") == ("first", "2 debounced")
    assert await store.get_run("second") is None


async def test_from_the_first_claim_on_a_debounced_key_is_free(store: Store, clock: ManualClock) -> None:
    await store.create_run(debounced("first", 1), None)
    clock.advance(500)
    held = await claim(store, "first")
    assert await store.find_run("counter", "s", "page") is None
    second = await store.create_run(debounced("second", 2), None)
    assert second.run_id == "second"
    await commit(store, held, Ok())
    assert await store.find_run("counter", "s", "page") == ("second", "2 debounced")


async def test_a_debounced_run_that_ends_leaves_no_key_behind(store: Store, tables: TablesOf) -> None:
    await store.create_run(debounced("first", 1), None)
    await store.cancel_run("first", None, None, None)
    assert await store.find_run("counter", "s", "page") is None
    await store.create_run(a_run("plain", input=1, dedupe_key="page"), None)
    assert await store.find_run("counter", "s", "page") is not None
    held = [row for row in (await tables())["ocean_dedupe"][1:] if "page" in row]
    assert len(held) == 1
