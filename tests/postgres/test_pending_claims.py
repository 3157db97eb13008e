"""Pending claims: the transaction that makes a run due also claims it, and no claim is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings

from ocean import SystemClock
from ocean.kernel.store.claims import Committed
from ocean.state.outcomes import Done
from ocean.state.records import Claim, ClogRecord, RunStatus
from ocean.stores.postgres.store import PostgresStore
from tests.conformance.kit import CLOG, a_run, a_signal, an_ask, commit, pending, the_run
from tests.postgres.proxy import Cut, Proxy, proxied
from tests.postgres.test_groups import Scene
from tests.postgres.test_plain import ALMOST_ALL_PLAIN, arrange
from tests.stores.group_verbs import Item, answer

pytestmark = pytest.mark.anyio

WORD = "zanzibar"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """A store with an idle run."""
    store = PostgresStore(url, SystemClock())
    await store.open()
    try:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await store.create_run(a_run("r"), None)
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def cut_off(url: str) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    async with proxied(f"{url}?statement_ms=1000") as (there, proxy), opened(there) as store:
        yield store, proxy


async def test_a_signal_and_the_claim_of_its_run_are_one_statement(real_database: str) -> None:
    async with opened(real_database) as store:
        await pending(store, "other")
        await store.claim_due(an_ask(limit=2))
        claims: list[Claim] = []
        assert store.order_claims(an_ask(limit=2), claims.extend) is not None
        before = store.pool.round_trips
        receipt = await store.deliver_signal(a_signal("r", 7), None)
        (claim,) = claims
        assert store.pool.round_trips == before + 1
        assert (receipt.status, claim.run.run_id, claim.inputs[0].body) == (RunStatus.PENDING, "r", 7)
        assert (await the_run(store, "r")).status is RunStatus.ACTIVE
        assert isinstance(await commit(store, claim, Done()), Committed)


async def test_a_withdrawn_claim_claims_nothing(real_database: str) -> None:
    async with opened(real_database) as store:
        claims: list[Claim] = []
        order = store.order_claims(an_ask(), claims.extend)
        assert order is not None
        await order.withdraw()
        await store.deliver_signal(a_signal("r"), None)
        assert (await the_run(store, "r")).status is RunStatus.PENDING
        assert not claims


async def test_a_claim_with_limit_zero_is_not_pending(real_database: str) -> None:
    async with opened(real_database) as store:
        assert store.order_claims(an_ask(limit=0), list[Claim]().extend) is None


async def test_a_claim_stays_pending_until_something_is_due(real_database: str) -> None:
    async with opened(real_database) as store:
        claims: list[Claim] = []
        assert store.order_claims(an_ask(), claims.extend) is not None
        await store.create_run(a_run("idle"), None)
        await store.deliver_signal(a_signal("idle"), None)
        await store.deliver_signal(a_signal("r"), None)
        assert [claim.run.run_id for claim in claims] == ["idle"]
        assert (await the_run(store, "r")).status is RunStatus.PENDING


@pytest.mark.parametrize("cut", ["before", "after", "swallow"])
async def test_the_claims_of_a_group_that_is_cut_off_are_found_with_its_result(real_database: str, cut: Cut) -> None:
    async with cut_off(real_database) as (store, proxy):
        claims: list[Claim] = []
        assert store.order_claims(an_ask(), claims.extend) is not None
        proxy.arm(cut, WORD.encode())
        await store.deliver_signal(a_signal("r", WORD), None)
        assert proxy.has_cut.is_set()
        (claim,) = claims
        assert [given.body for given in claim.inputs] == [WORD]
        assert isinstance(await commit(store, claim, Done()), Committed)
        ended = await the_run(store, "r")
        assert (ended.status, ended.tick) == (RunStatus.DONE, 1)


async def test_a_cancelled_withdrawal_first_reports_what_was_claimed(real_database: str) -> None:
    async with cut_off(real_database) as (store, proxy):
        claims: list[Claim] = []
        order = store.order_claims(an_ask(), claims.extend)
        assert order is not None
        known: list[Claim] = []

        async def withdraw() -> None:
            await order.withdraw()
            known.extend(claims)

        proxy.arm("held", WORD.encode())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.deliver_signal, a_signal("r", WORD), None)
            await proxy.has_cut.wait()
            tasks.start_soon(withdraw)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            proxy.lets_go.set()
        assert [claim.run.run_id for claim in known] == ["r"]


@asynccontextmanager
async def without(url: str, function: str) -> AsyncIterator[None]:
    db = await asyncpg.connect(url)
    definition = await db.fetchval("SELECT pg_get_functiondef($1::regproc)", function)
    await db.execute(f"DROP FUNCTION {function}")
    try:
        yield
    finally:
        await db.execute(definition)
        await db.close()


async def test_no_verb_fails_because_of_a_claim_sent_with_it(real_database: str) -> None:
    async with opened(real_database) as store:
        await pending(store, "other")
        claims: list[Claim] = []
        assert store.order_claims(an_ask(), claims.extend) is not None
        async with without(real_database, "ocean_claim_after_write"):
            await store.deliver_signal(a_signal("r"), None)
            assert not claims
            assert (await the_run(store, "r")).status is RunStatus.PENDING


async def test_a_signal_that_cannot_be_claimed_on_arrival_is_claimed_afterwards(real_database: str) -> None:
    async with opened(real_database) as store:
        claims: list[Claim] = []
        assert store.order_claims(an_ask(), claims.extend) is not None
        async with without(real_database, "ocean_signal_and_claim"):
            await store.deliver_signal(a_signal("r"), None)
            assert [claim.run.run_id for claim in claims] == ["r"]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    made.arrange(arrange)
    yield made
    made.close()


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(items=ALMOST_ALL_PLAIN)
def test_a_claim_sent_with_a_group_equals_a_claim_after_it(scene: Scene, items: list[Item]) -> None:
    ask = replace(an_ask(limit=9), slot=5)

    async def done(store: PostgresStore) -> list[object]:
        return await asyncio.gather(*(answer(item, store, scene.claims) for item in items))

    async def along(store: PostgresStore) -> list[object]:
        claims: list[Claim] = []
        order = store.order_claims(ask, claims.extend)
        assert order is not None
        results = await done(store)
        await order.withdraw()
        return [results, claims or await store.claim_due(ask)]

    async def after(store: PostgresStore) -> list[object]:
        return [await done(store), await store.claim_due(ask)]

    async def both() -> None:
        (found, rows), (expected, expected_rows) = await scene.visited(along), await scene.visited(after)
        assert found == expected
        for name in expected_rows:
            assert rows[name] == expected_rows[name], name

    scene.runner.run(both())
