"""What runs leave behind: few dead rows, few new index entries, and nothing that grows without limit."""

from typing import Any

import asyncpg
import pytest

from ocean import Continue, Done, Ok, SystemClock
from ocean.compose import open_store
from ocean.kernel.store import Store
from ocean.kernel.store.claims import RowsAsk
from ocean.kernel.store.events import SweepAsk
from ocean.state.effects import NewEvent
from ocean.state.records import ClogRecord
from tests.conformance.kit import CLOG, a_run, a_signal, an_ask, commit_of, pending, run_row, writes
from tests.postgres.costs import measured, together

pytestmark = pytest.mark.anyio

LIVES, TICKS = 20, 4
SIZES = "SELECT c.relname, pg_relation_size(c.oid) FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace"
OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
DEAD = "SELECT relname, n_dead_tup FROM pg_stat_user_tables WHERE n_dead_tup > 0"
FAR = 9_000_000_000_000


async def a_tick(store: Store, outcome: Any) -> None:
    (held,) = await store.claim_due(an_ask(limit=1))
    key = run_row(held.run.run_id)
    found = await store.read_rows(RowsAsk(CLOG, "s", held.run.run_id, keys=(key,)))
    await store.commit_tick(commit_of(held, outcome, writes((key, found.rows[key].version, '{"n": 1}'))))


async def a_life(store: Store, run_id: str) -> None:
    await pending(store, run_id)
    for number in range(1, TICKS):
        await a_tick(store, Continue(number))
    await a_tick(store, Done(1))


async def test_a_run_writes_each_row_no_more_than_needed_and_in_place_where_possible(unused_database: str) -> None:
    async with measured(unused_database) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await pending(store, "first")
        await a_tick(store, Done(1))
        store.measured.written.clear()
        for number in range(LIVES):
            await a_life(store, f"r-{number}")
        per_life = {
            table: {what: count / LIVES for what, count in counts.items()}
            for table, counts in store.measured.written.items()
        }
    assert per_life == {
        "runs": {"inserted": 1, "updated": 2 * TICKS},
        "ocean_run_details": {"inserted": 1, "updated": 1, "hot": 1},
        "ocean_inbox": {"inserted": TICKS, "updated": 2 * TICKS, "hot": TICKS},
        "ocean_ticks": {"inserted": TICKS, "updated": TICKS, "hot": TICKS},
        "ocean_storage_run": {"inserted": 1, "updated": TICKS - 1, "hot": TICKS - 1},
        "ocean_groups": {"inserted": 1 + 2 * TICKS},
        "events": {"inserted": 2 + TICKS},
    }


async def test_a_change_that_moves_no_index_key_updates_in_place(unused_database: str) -> None:
    """Streamed events, steps, and signals to a run that is at work or already due."""
    async with measured(unused_database) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await pending(store, "r")
        await store.deliver_signal(a_signal("r"), None)
        (held,) = await store.claim_due(an_ask(limit=1))
        store.measured.written.clear()
        await store.deliver_signal(a_signal("r"), None)
        for _ in range(5):
            await store.append_streamed(held.lock, held.tick, 1, [NewEvent("x", "1", CLOG)] * 10)
        await store.store_step(held.lock, held.tick, "once", "1")
        assert store.measured.written["runs"] == {"updated": 6, "hot": 6}
        await store.commit_tick(commit_of(held, Ok()))


async def test_the_rows_of_a_group_are_updated_on_their_pages(unused_database: str) -> None:
    """They are updated in sequence, so each page needs free space; without it, all indexes get new entries."""
    async with measured(unused_database) as store:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        for group in range(4):
            news = [a_run(f"{group}-{number}", input={})._replace(is_id_given=False) for number in range(50)]
            await together(*(store.create_run(new, None) for new in news))
            claims = await store.claim_due(an_ask(limit=50))
            await together(*(store.commit_tick(commit_of(held, Done(1))) for held in claims))
        for table in ("ocean_ticks", "ocean_run_details"):
            written = store.measured.written[table]
            assert written["updated"] == 200
            assert written["hot"] > 160, table
        inputs = store.measured.written["ocean_inbox"]
        # Assigned to its tick, which is in an index, and consumed, which is not.
        assert inputs["updated"] == 400
        assert inputs["hot"] > 160


async def emptied(db: Any, store: Store) -> None:
    """Sweep everything that has ended, and let the groups' tokens be an hour old."""
    while (await store.sweep(SweepAsk(FAR, FAR, FAR, 500))).more:
        pass
    await db.execute("DELETE FROM ocean_groups")


async def test_cycles_of_creating_finishing_and_sweeping_leave_no_dead_rows_and_no_growth(unused_database: str) -> None:
    db = await asyncpg.connect(unused_database)
    sizes: list[dict[str, int]] = []
    for _ in range(5):
        store = await open_store(f"{unused_database}?pool=1&notify=off", SystemClock())
        try:
            await store.register_clogs([ClogRecord(CLOG, "1", False)])
            await store.create_run(a_run("sleeper"), None)
            for number in range(LIVES):
                await a_life(store, f"r-{number}")
            await emptied(db, store)
        finally:
            await store.close()
        # A connection reports its counts when it ends, which is a moment after it was closed.
        while await db.fetchval(OTHERS):
            pass
        # And this one at most once a second: dead rows that it reports later would not be counted as removed.
        await db.execute("SELECT pg_stat_force_next_flush()")
        await db.execute("VACUUM")
        assert await db.fetch(DEAD) == []
        sizes.append({row[0]: row[1] for row in await db.fetch(SIZES)})
    await db.close()
    grown = {name: (sizes[1][name], size) for name, size in sizes[-1].items() if size > sizes[1][name]}
    assert grown == {}
