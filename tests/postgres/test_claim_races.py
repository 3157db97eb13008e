"""Claims concurrent with writers and with each other: which waits for which, and that no run is claimed twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg
import pytest

from ocean.compose import open_test_store
from ocean.kernel.store import Store
from ocean.state.errors import StoreFailed
from ocean.state.outcomes import Done, Ok, Retry
from ocean.state.records import ClogRecord, SignalReceipt
from ocean.stores.postgres.claims import claim_from
from ocean.stores.postgres.client.payloads import signal_payload
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    LOCK_MS,
    OTHER_CLOG,
    a_run,
    a_signal,
    an_ask,
    claimed_run,
    commit,
    pending,
    run_tick,
    the_run,
    types,
)
from tests.invariants import check_store
from tests.postgres.rivals import PATIENCE_S, rival
from tests.postgres.server import blank_database
from tests.postgres.tables import of_postgres

pytestmark = pytest.mark.anyio

RUNS = [f"r{number}" for number in range(5)]


@asynccontextmanager
async def meanwhile(work: Awaitable[Any]) -> AsyncIterator["asyncio.Future[Any]"]:
    """A background task that has ended when the test ends."""
    task = asyncio.ensure_future(work)
    try:
        yield task
        with anyio.fail_after(PATIENCE_S):
            await task
    finally:
        task.cancel()


async def claimed_ids(store: Store, **given: Any) -> list[str]:
    """Must return at once: what it would wait for never happens."""
    with anyio.fail_after(PATIENCE_S / 4):
        return [claim.run.run_id for claim in await store.claim_due(an_ask(**given))]


async def test_a_plain_claim_does_not_wait_for_a_writer(store: Store, database: str) -> None:
    for run_id in RUNS:
        await pending(store, run_id)
    async with rival(database) as writer:
        await writer.lock()
        assert await claimed_ids(store) == RUNS


async def test_a_plain_claim_skips_rows_locked_by_a_writer(store: Store, database: str) -> None:
    for run_id in RUNS:
        await pending(store, run_id)
    async with rival(database) as writer:
        await writer.write(("deliver_signal", signal_payload(a_signal("r1"))))
        assert await claimed_ids(store, limit=3) == ["r0", "r2", "r3"]
        await writer.commit()
    assert sorted(await claimed_ids(store)) == ["r1", "r4"]


async def test_a_claim_takes_rows_that_a_concurrent_claim_has_not(store: Store, database: str) -> None:
    for run_id in RUNS:
        await pending(store, run_id)
    async with rival(database) as other:
        assert await other.claim(an_ask(limit=2, instance_id="i-b")) == ["r0", "r1"]
        assert await claimed_ids(store, limit=2) == ["r2", "r3"]
        assert await claimed_ids(store) == ["r4"]
        await other.commit()
    holders = {run_id: (await the_run(store, run_id)).locked_by for run_id in RUNS}
    assert holders == {"r0": "i-b", "r1": "i-b", "r2": "i-a", "r3": "i-a", "r4": "i-a"}


async def test_a_claim_whose_rows_are_all_taken_returns_nothing_at_once(store: Store, database: str) -> None:
    for run_id in RUNS:
        await pending(store, run_id)
    async with rival(database) as other:
        await other.claim(an_ask(instance_id="i-b"))
        trips = of_postgres(store).pool.round_trips
        assert await claimed_ids(store) == []
        assert of_postgres(store).pool.round_trips == trips + 1
        await other.rollback()
    assert await claimed_ids(store) == RUNS


async def test_a_claim_reads_again_after_it_has_waited(store: Store, database: str, clock: ManualClock) -> None:
    await pending(store, "plain", clog_id=OTHER_CLOG)
    await with_a_key(store, clock)
    async with rival(database) as writer, rival(database) as other:
        await writer.lock()
        async with meanwhile(store.claim_due(an_ask())) as claim:
            await writer.is_waited_for()
            assert await other.claim(an_ask(OTHER_CLOG, instance_id="i-b")) == ["plain"]
            await other.commit()
            await writer.commit()
    assert [found.run.run_id for found in await claim] == ["r"]
    assert (await the_run(store, "plain")).locked_by == "i-b"


async def test_two_instances_never_hold_the_same_run(store: Store, database: str, clock: ManualClock) -> None:
    run_ids = [f"r{number:02}" for number in range(60)]
    for run_id in run_ids:
        await pending(store, run_id)
    other = await open_test_store(database, clock)
    found: list[str] = []

    async def take_all(from_store: Store, name: str) -> None:
        while claims := await from_store.claim_due(an_ask(limit=7, instance_id=name)):
            found.extend(claim.run.run_id for claim in claims)

    async with anyio.create_task_group() as tasks:
        for name in ("i-a", "i-b", "i-c"):
            tasks.start_soon(take_all, store, name)
            tasks.start_soon(take_all, other, f"{name}-other")
    await take_all(store, "i-last")
    await other.close()
    assert sorted(found) == run_ids


async def crashed(store: Store, clock: ManualClock) -> None:
    await claimed_run(store)
    clock.advance(LOCK_MS)


async def retrying(store: Store, clock: ManualClock) -> None:
    await commit(store, await claimed_run(store), Retry("no", after_ms=10))
    clock.advance(10)


async def with_a_key(store: Store, clock: ManualClock) -> None:
    await pending(store, concurrency_keys=["k"])


async def past_its_deadline(store: Store, clock: ManualClock) -> None:
    await pending(store, deadline_at=clock.now() + 10)
    clock.advance(10)


Arrange = Callable[[Store, ManualClock], Awaitable[None]]


@pytest.mark.parametrize("arrange", [crashed, retrying, with_a_key, past_its_deadline])
@pytest.mark.parametrize("run_id", [None, "r"], ids=["any", "named"])
async def test_a_claim_that_must_write_takes_the_writers_lock_before_any_row(
    store: Store, database: str, clock: ManualClock, arrange: Arrange, run_id: str | None
) -> None:
    await arrange(store, clock)
    async with rival(database) as writer:
        await writer.lock()
        async with meanwhile(store.claim_due(an_ask(run_id=run_id))) as claim:
            await writer.is_waited_for()
            assert await writer.has_nobody_locked("r")
            # In the other order this would be a deadlock: the claim with the row, waiting for the writer.
            results = await writer.write(("deliver_signal", signal_payload(a_signal("r", 1))))
            assert "answer" in results[0]
            await writer.commit()
    claims = await claim
    assert [found.run.run_id for found in claims] == ([] if arrange is past_its_deadline else ["r"])
    assert "run.signalled" in await types(store, "r")


@pytest.mark.parametrize("is_kept", [True, False], ids=["commits", "rolls back"])
async def test_a_signal_to_a_run_locked_by_a_plain_claim_waits_and_is_not_lost(
    store: Store, database: str, is_kept: bool
) -> None:
    await pending(store, "r")
    async with rival(database) as other:
        assert await other.claim(an_ask()) == ["r"]
        async with meanwhile(store.deliver_signal(a_signal("r", "hello"), None)) as signal:
            await other.is_waited_for()
            await (other.commit() if is_kept else other.rollback())
        assert (await signal).status == ("active" if is_kept else "pending")
    assert (await the_run(store)).pending_count == 2
    if is_kept:
        (held,) = await _settled(store, database, "rival")
        assert await commit(store, held, Ok()) is not None
    else:
        await run_tick(store, "r", Ok())
    (claim,) = await store.claim_due(an_ask())
    assert [(each.kind, each.body) for each in claim.inputs] == [("signal", "hello")]


async def test_signals_in_bulk_apply_to_the_run_as_a_claim_has_left_it(store: Store, database: str) -> None:
    await pending(store, "r")
    await store.create_run(a_run("idle"), None)

    async def both() -> list[SignalReceipt]:
        return await asyncio.gather(*(store.deliver_signal(a_signal(run_id), None) for run_id in ("idle", "r")))

    async with rival(database) as other:
        assert await other.claim(an_ask()) == ["r"]
        async with meanwhile(both()) as signals:
            await other.is_waited_for()
            await other.commit()
        assert [receipt.status for receipt in await signals] == ["pending", "active"]
    run = await the_run(store, "r")
    assert (run.status, run.pending_count, run.tick) == ("active", 2, 1)
    assert (await the_run(store, "idle")).pending_count == 1


async def _settled(store: Store, database: str, token: str) -> list[Any]:
    """The claims of a token, as a caller that lost the result gets them."""
    async with rival(database) as asking:
        found = await asking.ask("SELECT ocean_settle_claim($1)::text", token)
        await asking.commit()
    return [claim_from(claim) for claim in found["claims"]]


@pytest.mark.parametrize("is_kept", [True, False], ids=["commits", "rolls back"])
async def test_a_named_claim_waits_for_the_row(store: Store, database: str, is_kept: bool) -> None:
    await pending(store, "r")
    async with rival(database) as other:
        assert await other.claim(an_ask(instance_id="i-b")) == ["r"]
        async with meanwhile(store.claim_due(an_ask(run_id="r"))) as named:
            await other.is_waited_for()
            await (other.commit() if is_kept else other.rollback())
        assert [claim.run.run_id for claim in await named] == ([] if is_kept else ["r"])
    assert (await the_run(store)).locked_by == ("i-b" if is_kept else "i-a")


async def test_a_named_claim_of_an_unclaimable_run_is_one_round_trip(store: Store) -> None:
    """Its clog is paused: nothing was done for the run, so the claim is not repeated."""
    await pending(store, "r")
    await store.set_clog_paused(CLOG, True, None, None)
    trips = of_postgres(store).pool.round_trips
    assert await claimed_ids(store, run_id="r") == []
    assert of_postgres(store).pool.round_trips == trips + 1


async def test_a_claim_whose_result_is_lost_returns_the_same_claims(store: Store, database: str) -> None:
    for run_id in RUNS:
        await pending(store, run_id, input={"n": run_id})
    async with rival(database) as other:
        await other.claim(an_ask(limit=3))
        await other.commit()
    again = await _settled(store, database, "rival")
    assert [claim.run.run_id for claim in again] == RUNS[:3]
    assert [claim.inputs[0].body for claim in again] == [{"n": run_id} for run_id in RUNS[:3]]
    assert again == await _settled(store, database, "rival")
    for claim in again:
        await commit(store, claim, Done())
    assert await _settled(store, database, "rival") == []


async def test_a_claim_whose_result_is_lost_omits_runs_taken_over_since(
    store: Store, database: str, clock: ManualClock
) -> None:
    for run_id in RUNS[:3]:
        await pending(store, run_id)
    async with rival(database) as other:
        await other.claim(an_ask())
        await other.commit()
    clock.advance(LOCK_MS)
    assert await claimed_ids(store, run_id="r1", instance_id="i-b") == ["r1"]
    await store.cancel_run("r2", None, None, None)
    assert [claim.run.run_id for claim in await _settled(store, database, "rival")] == ["r0"]


async def test_looking_up_a_claim_in_progress_waits_for_it(store: Store, database: str) -> None:
    await pending(store, "r")
    async with rival(database) as other:
        await other.claim(an_ask())
        async with meanwhile(_settled(store, database, "rival")) as settled:
            await other.is_waited_for()
            await other.commit()
        assert [claim.run.run_id for claim in await settled] == ["r"]


async def test_a_claim_whose_token_is_void_takes_nothing_when_it_arrives_late(store: Store, database: str) -> None:
    await pending(store, "r")
    async with rival(database) as asking:
        assert await asking.ask("SELECT ocean_settle_claim($1)::text", "late") is None
        await asking.commit()
    async with rival(database) as late:
        with pytest.raises(asyncpg.UniqueViolationError):
            await late.claim(an_ask(), token="late")
    assert await claimed_ids(store) == ["r"]


async def test_a_claim_that_only_ended_runs_is_repeated_if_its_result_is_lost(
    store: Store, database: str, clock: ManualClock
) -> None:
    await past_its_deadline(store, clock)
    assert (await the_run(store)).status == "pending"
    async with rival(database) as other:
        assert await other.claim(an_ask()) == []
        await other.commit()
    async with rival(database) as asking:
        found = await asking.ask("SELECT ocean_settle_claim($1)::text", "rival")
    assert found == {"claims": [], "again": True}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_writer_sees_what_it_waited_for_at_any_default_isolation(level: str, clock: ManualClock) -> None:
    url = blank_database()
    async with rival(url) as owner:
        name = await owner.db.fetchval("SELECT current_database()")
        await owner.db.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{level}'")
        await owner.commit()
    store = await open_test_store(url, clock)
    await store.register_clogs([ClogRecord(CLOG, "1", False)])
    await pending(store, "r")
    async with rival(url) as writer:
        await writer.write(("deliver_signal", signal_payload(a_signal("r", 1, signal_id="same"))))
        async with meanwhile(store.deliver_signal(a_signal("r", 1, signal_id="same"), None)) as signal:
            await writer.is_waited_for()
            await writer.commit()
        assert (await signal).number == 2
    await check_store(store, clock.now())
    await store.close()
    pooled = await open_test_store(f"{url}?pooler=on", clock)
    with pytest.raises(StoreFailed, match=f"must be read committed, got {level}"):
        await pooled.deliver_signal(a_signal("r", 2), None)
    await pooled.close()
