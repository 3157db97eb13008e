"""Plain creations are written before their group has the writers' lock: no writer waits for them, and the effect is as
if they had been written under it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ocean.compose import open_test_store
from ocean.kernel.store import Store
from ocean.state.effects import NewRun
from ocean.state.errors import RunEnded
from ocean.state.outcomes import Done
from ocean.state.records import DEFAULT_QUEUE, RunInfo, RunStatus
from ocean.stores.postgres.client.payloads import run_payload
from ocean.testing import ManualClock
from tests.conformance.kit import a_run, a_signal, an_ask, claim, ended_run, events, run_tick, the_run
from tests.postgres.rivals import PATIENCE_S, Rival, rival

pytestmark = pytest.mark.anyio

HAS_ROWS = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND relation = 'runs'::regclass AND mode = 'RowExclusiveLock'"
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
TABLE_WANTED = "SELECT count(*) FROM pg_locks WHERE relation = 'runs'::regclass AND NOT granted"


def plain(run_id: str, session_id: str = "s", **given: Any) -> NewRun:
    return a_run(run_id, session_id=session_id, input={"n": 1}, **given)._replace(is_id_given=False)


async def created(store: Store, *news: NewRun) -> list[RunInfo]:
    """Run these as one group."""
    return await asyncio.gather(*(store.create_run(new, None) for new in news))


@asynccontextmanager
async def waiting(database: str, store: Store, *news: NewRun) -> AsyncIterator[Rival]:
    """Another client holds the writers' lock, and a group that creates these runs waits for it."""
    async with rival(database) as other:
        await other.lock()
        made = asyncio.ensure_future(created(store, *news))
        pid = await other.is_waited_for()
        assert await other.db.fetchval(HAS_ROWS, pid) == 1, "the rows are written while it waits"
        yield other
        with anyio.fail_after(PATIENCE_S):
            for run, new in zip(await made, news, strict=True):
                assert await store.get_run(new.run_id) == run, "its creator got this run as the result"


async def test_early_rows_are_invisible_before_their_group_runs(database: str, store: Store) -> None:
    async with waiting(database, store, plain("a"), plain("b")) as other:
        assert await other.db.fetchval("SELECT count(*) FROM runs") == 0
        assert await store.claim_due(an_ask()) == []
        await other.commit()
    assert sorted([(await claim(store)).run.run_id, (await claim(store)).run.run_id]) == ["a", "b"]
    assert [event.type for event in await events(store)] == ["run.created", "run.created"]


async def test_the_session_of_early_rows_can_be_deleted_while_they_wait(database: str, store: Store) -> None:
    """With a foreign key that is checked when they are written, each would wait for the other."""
    await created(store, plain("old"), plain("older"))
    async with waiting(database, store, plain("a"), plain("b")) as other:
        with anyio.fail_after(PATIENCE_S):
            await other.write(("delete_session", {"session_id": "s", "actor": None}))
        await other.commit()
    assert (await the_run(store, "a")).session_id == "s"
    assert await store.get_run("old") is None


async def test_the_session_of_early_rows_can_be_created_by_another_writer_while_they_wait(
    database: str, store: Store
) -> None:
    async with waiting(database, store, plain("a", "new"), plain("b", "new")) as other:
        with anyio.fail_after(PATIENCE_S):
            await other.db.execute("INSERT INTO ocean_sessions (session_id, created_at) VALUES ('new', 1)")
        await other.commit()
    assert (await the_run(store, "b")).session_id == "new"


async def test_two_waiting_groups_do_not_wait_for_each_other(database: str, store: Store, clock: ManualClock) -> None:
    second = await open_test_store(database, clock)
    async with waiting(database, store, plain("a", "x"), plain("b", "y")) as other:
        made = asyncio.ensure_future(created(second, plain("c", "y"), plain("d", "x")))
        with anyio.fail_after(PATIENCE_S):
            while (
                await other.db.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") < 2
            ):
                pass
        await other.commit()
        with anyio.fail_after(PATIENCE_S):
            await made
    await second.close()
    assert {event.run_id for event in await events(store)} == {"a", "b", "c", "d"}


async def test_a_lock_on_the_table_does_not_block_a_waiting_group_forever(database: str, store: Store) -> None:
    """A migration or a new index waits for the early rows, these wait for the writers' lock, and its holder would wait
    for the migration. The server detects the deadlock and lets the writer go first."""
    async with rival(database) as changing, waiting(database, store, plain("a"), plain("b")) as other:
        locking = asyncio.ensure_future(changing.db.execute("LOCK TABLE runs IN SHARE ROW EXCLUSIVE MODE"))
        with anyio.fail_after(PATIENCE_S):
            while not await other.db.fetchval(TABLE_WANTED):
                pass
            # Otherwise the server would detect the deadlock only after a second.
            await other.db.execute("SET LOCAL deadlock_timeout = '1ms'")
            await other.write(("create_run", run_payload(plain("c"))))
        await other.commit()
        with anyio.fail_after(PATIENCE_S):
            await locking
            await changing.rollback()
    assert {event.run_id for event in await events(store)} == {"a", "b", "c"}


async def test_early_rows_have_the_time_of_their_request_however_long_they_wait(
    database: str, store: Store, clock: ManualClock
) -> None:
    began = clock.now()
    async with waiting(database, store, plain("a"), plain("b")) as other:
        await other.db.execute("UPDATE ocean_test_clock SET now = now + 5000")
        await other.commit()
    assert (await the_run(store, "a")).created_at == began


async def test_early_rows_of_a_clog_that_becomes_external_are_in_its_queue(database: str, store: Store) -> None:
    await created(store, plain("old"), plain("older"))
    async with waiting(database, store, plain("a"), plain("b")) as other:
        await other.db.execute("UPDATE ocean_clogs SET external = true")
        await other.commit()
    assert [(await the_run(store, run_id)).queue for run_id in ("a", "b")] == [DEFAULT_QUEUE, DEFAULT_QUEUE]


async def test_a_refused_verb_after_early_rows_does_not_undo_them(store: Store) -> None:
    await ended_run(store, "over", Done())
    first, second, refused = await asyncio.gather(
        store.create_run(plain("a"), None),
        store.create_run(plain("b"), None),
        store.deliver_signal(a_signal("over"), None),
        return_exceptions=True,
    )
    assert isinstance(refused, RunEnded)
    assert isinstance(first, RunInfo)
    assert isinstance(second, RunInfo)
    assert await store.get_run("a") == first
    assert [event.type for event in await events(store, "b")] == ["run.created"]


async def test_an_early_row_whose_id_is_taken_is_refused_in_its_turn(store: Store) -> None:
    """A generated id never is, but the database must not depend on that."""
    await created(store, plain("a"), plain("other"))
    groups = store.batch_sizes.count
    taken, free = await asyncio.gather(
        store.create_run(plain("a", priority=1), None), store.create_run(plain("b"), None), return_exceptions=True
    )
    assert store.batch_sizes.count == groups + 1
    assert isinstance(taken, Exception)
    assert isinstance(free, RunInfo)
    assert (await the_run(store, "a")).priority == 5
    assert (await the_run(store, "b")).status is RunStatus.PENDING


async def test_a_group_whose_token_is_void_leaves_no_early_rows(database: str, store: Store) -> None:
    async with rival(database) as other:
        await other.lock()
        async with rival(database) as late:
            words = [("create_run", run_payload(plain("a"))), ("create_run", run_payload(plain("b")))]
            writing = asyncio.ensure_future(late.write(*words, token="late"))
            await other.is_waited_for()
            await other.db.execute("SELECT ocean_settle('late')")
            await other.commit()
            with anyio.fail_after(PATIENCE_S), pytest.raises(Exception, match="was given up"):
                await writing
    assert await store.get_run("a") is None


async def test_a_run_written_early_has_the_same_ticks_as_any_other(store: Store) -> None:
    await created(store, plain("a"), plain("b"))
    await run_tick(store, "a", Done(1))
    assert (await the_run(store, "a")).status is RunStatus.DONE
