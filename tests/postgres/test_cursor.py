"""Nobody who has read up to a cursor later finds an event at or below it, however commits overtake each other."""

import json

import anyio
import asyncpg
import pytest

from ocean import Clog, Ocean
from ocean.kernel.ids import new_token
from ocean.stores.postgres.link import COMMIT

pytestmark = pytest.mark.anyio


def an_event(run_id: str | None, number: int | None) -> dict[str, object]:
    facts = {"session_id": "s", "run_id": run_id, "run_seq": number, "correlation_id": run_id, "clog_id": "c"}
    return {"seq": 1, "ts": 1, "type": "held.up", "payload": "{}", **facts}


async def blocked(db: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Until the server says that somebody waits for a lock."""
    waiting = 0
    while not waiting:
        waiting = await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )


async def test_no_feed_skips_an_event_that_was_numbered_first_and_committed_last(real_database: str) -> None:
    slow = await asyncpg.connect(real_database)
    watcher = await asyncpg.connect(real_database)
    async with Ocean.open(real_database, clogs=[Clog("c")]) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="c")
        feeds = [{"run_id": run.run_id}, {"session_id": "s"}, {}]
        cursors = [max(event.seq for event in await ocean.read_events(**feed)) for feed in feeds]  # type: ignore[arg-type]
        held = slow.transaction()
        await held.start()
        events = [an_event(run.run_id, 99)]
        item = {"reads": [], "put": [], "cut": [], "also": [], "events": events}
        await slow.fetchval(COMMIT, new_token(), json.dumps([item]), False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ocean.signal, run.run_id, {"quick": True})
            with anyio.fail_after(20):
                await blocked(watcher)
            early = [await ocean.read_events(**feed, after=cursor) for feed, cursor in zip(feeds, cursors, strict=True)]  # type: ignore[arg-type]
            assert early == [[], [], []]
            assert await ocean.last_cursor() == max(cursors)
            await held.commit()
        for feed, cursor in zip(feeds, cursors, strict=True):
            found = await ocean.read_events(**feed, after=cursor)  # type: ignore[arg-type]
            assert [event.type for event in found] == ["held.up", "run.signalled"]
            assert [event.seq for event in found] == [cursor + 1, cursor + 2]
    await slow.close()
    await watcher.close()
