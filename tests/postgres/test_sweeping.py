"""What is swept is compared first: an old counter that is taken from at the last moment stays."""

import pytest

from ocean.compose import open_test_store
from ocean.kernel.counters import Take
from ocean.kernel.store import SweepAsk
from ocean.stores.postgres.store import PostgresStore
from ocean.testing import ManualClock

pytestmark = pytest.mark.anyio


async def test_a_counter_that_is_taken_from_while_it_is_swept_stays(database: str) -> None:
    clock = ManualClock()
    store, other = await open_test_store(database, clock), await open_test_store(database, clock)
    assert isinstance(store, PostgresStore)
    takes = Take("k", 1, 1, 1_000)
    try:
        assert await store.take(takes, None)
        clock.advance(2_000)
        commit, looks = store.link.commit, 0

        async def commit_late(items):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += 1
            if looks == 1:
                assert await other.take(takes, None)
            return await commit(items)

        store.link.commit = commit_late  # type: ignore[method-assign]
        swept = await store.sweep(SweepAsk(None, None, None, 10))
        assert (swept.counters, looks) == (0, 1)
        assert not await store.take(takes, None)
        clock.advance(2_000)
        assert (await store.sweep(SweepAsk(None, None, None, 10))).counters == 1
    finally:
        await store.close()
        await other.close()
