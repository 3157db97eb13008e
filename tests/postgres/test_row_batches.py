"""Reads of rows that share a statement: each returns what it would alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from random import Random

import anyio
import anyio.lowlevel
import pytest

from ocean import SystemClock
from ocean.kernel.store.claims import RowsAnswer, RowsAsk
from ocean.state.effects import Effects, RowKey, RowWrite
from ocean.state.errors import StoreFailed, StoreUnusable
from ocean.state.outcomes import Ok
from ocean.state.records import ClogRecord
from ocean.stores.postgres.client.row_batches import MOST_ROWS
from ocean.stores.postgres.store import PostgresStore
from tests.conformance.kit import CLOG, GLOBAL, SESSION, claim, commit_of, pending, run_row
from tests.postgres.rivals import PATIENCE_S, rival

pytestmark = pytest.mark.anyio

KEYS = [GLOBAL, SESSION, *(run_row(f"r-{number}") for number in range(6))]
UNREADABLE = RowKey("run", CLOG, run_id="\0")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """A store with a row of every second run, and the global row."""
    store = PostgresStore(url, SystemClock())
    await store.open()
    try:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        for number in range(0, 6, 2):
            await pending(store, f"r-{number}")
            writes = [RowWrite(run_row(f"r-{number}"), 0, str(number))]
            await store.commit_tick(commit_of(await claim(store), Ok(), Effects(writes=writes)))
        await pending(store, "r-1")
        await store.commit_tick(commit_of(await claim(store), Ok(), Effects(writes=[RowWrite(GLOBAL, 0, "7")])))
        yield store
    finally:
        await store.close()


def asking(*keys: RowKey) -> RowsAsk:
    return RowsAsk(CLOG, "s", "r-0", keys=keys)


async def test_reads_of_one_round_share_statements(real_database: str) -> None:
    dice = Random(1)
    async with opened(real_database) as store:
        asks = [asking(*dice.sample(KEYS, dice.randint(0, 4))) for _ in range(60)]
        alone = [await store.read_rows(ask) for ask in asks]
        assert any(row.text == "4" for answer in alone for row in answer.rows.values())
        before = store.pool.round_trips
        assert await asyncio.gather(*map(store.read_rows, asks)) == alone
        rows = sum(len(ask.keys) for ask in asks)
        assert ceil(rows / MOST_ROWS) <= store.pool.round_trips - before <= rows // (MOST_ROWS - 4) + 1


async def test_a_read_of_many_rows_gets_them_all(real_database: str) -> None:
    keys = tuple(run_row(f"r-{number}") for number in range(2 * MOST_ROWS))
    async with opened(real_database) as store:
        results = await asyncio.gather(*(store.read_rows(asking(*each)) for each in (keys, keys[:1], keys)))
        assert [len(answer.rows) for answer in results] == [len(keys), 1, len(keys)]
        assert results[0] == results[2]


async def test_a_read_that_cannot_be_sent_fails_alone(real_database: str) -> None:
    async with opened(real_database) as store:
        asks = [asking(GLOBAL), asking(UNREADABLE), asking(run_row("r-2"))]
        first, second, third = await asyncio.gather(*map(store.read_rows, asks), return_exceptions=True)
        assert isinstance(second, StoreFailed)
        assert isinstance(first, RowsAnswer)
        assert isinstance(third, RowsAnswer)
        assert (first.rows[GLOBAL].text, third.rows[run_row("r-2")].text) == ("7", "2")


async def test_a_cancelled_read_does_not_cancel_others(real_database: str) -> None:
    async with opened(real_database) as store:
        first, second = (asyncio.ensure_future(store.read_rows(asking(key))) for key in (SESSION, GLOBAL))
        await anyio.lowlevel.checkpoint()
        first.cancel()
        with anyio.fail_after(PATIENCE_S):
            assert (await second).rows[GLOBAL].text == "7"
        assert first.cancelled()


async def test_a_stuck_read_does_not_block_others(real_database: str) -> None:
    async with opened(real_database) as store, rival(real_database) as other:
        await other.db.execute("LOCK TABLE ocean_storage_global")
        stuck = asyncio.ensure_future(store.read_rows(asking(GLOBAL)))
        await other.is_waited_for()
        with anyio.fail_after(PATIENCE_S):
            assert (await store.read_rows(asking(run_row("r-4")))).rows[run_row("r-4")].text == "4"
        assert not stuck.done()
        await other.rollback()
        assert (await stuck).rows[GLOBAL].text == "7"


async def test_a_read_of_a_closed_store_raises_store_unusable(real_database: str) -> None:
    async with opened(real_database) as store:
        await store.close()
        with pytest.raises(StoreUnusable):
            await store.read_rows(asking(GLOBAL))
