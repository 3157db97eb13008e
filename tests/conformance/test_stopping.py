"""Giving back a run whose process stops: it never counts, however often it happens."""

import pytest

from ocean.kernel.store import Store
from ocean.state.records import RunStatus
from tests.conformance.kit import claim, pending

pytestmark = pytest.mark.anyio


async def test_an_orderly_stop_spends_no_attempt_however_often(store: Store) -> None:
    await pending(store)
    for _ in range(5):
        held = await claim(store)
        assert held.tick == 1
        assert await store.give_back(held.lock, held.tick, counts=False) is RunStatus.PENDING
    run = await store.get_run("r")
    assert run is not None
    assert (run.status, run.attempt, run.locked_by) == (RunStatus.PENDING, 0, None)


async def test_stops_between_do_not_bring_the_attempt_of_a_callers_limit_nearer(store: Store) -> None:
    await pending(store)
    for counts in (True, False, True, False, False, True, False):
        held = await claim(store)
        await store.give_back(held.lock, held.tick, counts=counts)
    run = await store.get_run("r")
    assert run is not None
    assert run.attempt == 1


async def test_a_give_back_after_the_lock_was_lost_changes_nothing(store: Store) -> None:
    await pending(store)
    old = await claim(store)
    await store.give_back(old.lock, old.tick, counts=False)
    await claim(store)
    assert await store.give_back(old.lock, old.tick, counts=False) is None
    run = await store.get_run("r")
    assert run is not None
    assert run.status is RunStatus.ACTIVE
