"""API keys, web sessions and the owner of a run, on every kind of store."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import LeaseAsk
from ocean.state.records import ApiKey, ClogRecord
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, TablesOf, a_run

pytestmark = pytest.mark.anyio


def a_key(key_id: str = "k", expires_at: int | None = None) -> ApiKey:
    return ApiKey(key_id, "someone", ("read", "signal"), ("staff",), ("s",), expires_at=expires_at)


async def test_a_key_is_found_until_it_expires_or_is_revoked(store: Store, clock: ManualClock) -> None:
    assert not await store.has_api_keys()
    await store.add_api_key(a_key("a", clock.now() + 10), "hash-a")
    kept = await store.add_api_key(a_key("b"), "hash-b")
    assert kept.created_at == clock.now()
    assert await store.has_api_keys()
    assert await store.find_api_key("b") == (kept, "hash-b")
    assert [key.key_id for key in await store.list_api_keys("", 10)] == ["a", "b"]
    assert [key.key_id for key in await store.list_api_keys("a", 10)] == ["b"]
    clock.advance(10)
    assert await store.find_api_key("a") is None
    revoked = await store.revoke_api_key("b")
    assert revoked is not None
    assert revoked.revoked_at == clock.now()
    assert await store.find_api_key("b") is None
    assert await store.revoke_api_key("nobody") is None


async def test_a_web_session_ends_at_its_expiry_when_ended_and_with_its_key(store: Store, clock: ManualClock) -> None:
    await store.add_api_key(a_key(), "hash")
    assert await store.add_web_session("short", "k", 5) == clock.now() + 5
    await store.add_web_session("left", "k", 1_000)
    await store.add_web_session("kept", "k", 1_000)
    found = await store.find_web_session("short")
    assert found is not None
    assert found.key_id == "k"
    clock.advance(5)
    assert await store.find_web_session("short") is None
    assert await store.end_web_session("left")
    assert not await store.end_web_session("left")
    assert await store.find_web_session("kept") is not None
    await store.revoke_api_key("k")
    assert await store.find_web_session("kept") is None


async def test_a_new_web_session_sweeps_out_those_that_have_ended(
    store: Store, clock: ManualClock, tables: TablesOf
) -> None:
    await store.add_api_key(a_key(), "hash")
    await store.add_web_session("old", "k", 5)
    clock.advance(5)
    await store.add_web_session("new", "k", 5)
    columns, *rows = (await tables())["ocean_web_sessions"]
    assert [row[columns.index("hash")] for row in rows] == ["new"]


async def test_the_standing_of_a_run_and_of_a_lease(store: Store) -> None:
    await store.register_clogs([ClogRecord("outside", "1", False, external=True, allows=("read",))])
    await store.create_run(a_run("r"), None)
    await store.create_run(a_run("w", clog_id="outside", input={}), None)
    (leased,) = await store.lease_work(LeaseAsk("outside", "worker", 1_000, (), ("h",), 0))
    mine, theirs = await store.standing("r"), await store.standing_of_lease("h")
    assert mine is not None
    assert theirs is not None
    assert (mine.run_id, mine.session_id, mine.clog_id) == ("r", "s", CLOG)
    assert (theirs.run_id, theirs.clog_id, theirs.allows) == (leased.claim.run.run_id, "outside", ("read",))
    assert await store.standing("nobody") is None
    assert await store.standing_of_lease("nothing") is None
