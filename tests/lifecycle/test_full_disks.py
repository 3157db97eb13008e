"""A full disk does not fail a run."""

import pytest

from ocean import Done, Outcome, RunStatus, StoreFailed, Tick
from ocean.stores.sqlite.store import SqliteStore
from tests.lifecycle.acting import Script, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_tick_that_cannot_be_committed_spends_no_attempt() -> None:
    async def fill(tick: Tick) -> Outcome:
        await limit_pages(1)
        return Done("x" * 100_000)

    async with stage(Script(fill)) as w:

        async def limit_pages(pages: int) -> None:
            assert isinstance(w.store, SqliteStore)
            await w.store.database.on_writer(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchall())

        run_id = await start(w)
        with pytest.raises(StoreFailed):
            await w.ocean.advance()
        await limit_pages(1_000_000)
        run = await look(w, run_id)
        assert (run.status, run.attempt) == (RunStatus.PENDING, 0)
