"""Keys, web sessions, and whose a run is."""

import pytest

from ocean.kernel.access import ApiKey, Standing
from ocean.kernel.records import GENERIC_VERBS, ClogRecord
from ocean.kernel.store import Store
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, TablesOf, a_run

pytestmark = pytest.mark.anyio


def a_key(key_id: str = "k", expires_at: int | None = None) -> ApiKey:
    return ApiKey(key_id, "ann", ("read", "signal"), ("owner",), ("s", "t"), expires_at=expires_at)


async def test_a_key_is_found_as_it_was_kept(store: Store, clock: ManualClock) -> None:
    assert not await store.has_api_keys()
    kept = await store.add_api_key(a_key(), "hash")
    assert kept.created_at == clock.now()
    assert await store.find_api_key("k") == (kept, "hash")
    assert await store.find_api_key("other") is None
    assert await store.has_api_keys()


async def test_a_revoked_key_is_listed_but_not_found(store: Store, clock: ManualClock) -> None:
    await store.add_api_key(a_key(), "hash")
    clock.advance(5)
    revoked = await store.revoke_api_key("k")
    assert revoked is not None
    assert revoked.revoked_at == clock.now()
    clock.advance(5)
    assert await store.revoke_api_key("k") == revoked, "once revoked it stays so, since then"
    assert await store.find_api_key("k") is None
    assert await store.list_api_keys("", 10) == [revoked]
    assert await store.has_api_keys(), "a house whose last key is revoked is closed, not open"


async def test_to_revoke_what_is_not_there_changes_nothing(store: Store, tables: TablesOf) -> None:
    await store.add_api_key(a_key(), "hash")
    before = await tables()
    assert await store.revoke_api_key("other") is None
    assert await tables() == before


async def test_a_key_expires_at_its_time(store: Store, clock: ManualClock) -> None:
    await store.add_api_key(a_key(expires_at=clock.now() + 10), "hash")
    clock.advance(9)
    assert await store.find_api_key("k") is not None
    clock.advance(1)
    assert await store.find_api_key("k") is None


async def test_keys_are_listed_in_pages(store: Store) -> None:
    for key_id in ("b", "a", "c"):
        await store.add_api_key(a_key(key_id), "hash")
    assert [key.key_id for key in await store.list_api_keys("", 2)] == ["a", "b"]
    assert [key.key_id for key in await store.list_api_keys("b", 2)] == ["c"]


async def test_a_web_session_ends_at_its_time_by_itself_or_with_its_key(
    store: Store, clock: ManualClock, tables: TablesOf
) -> None:
    key = await store.add_api_key(a_key(), "hash")
    assert await store.add_web_session("w", "k", 10) == clock.now() + 10
    assert await store.find_web_session("w") == key
    assert await store.find_web_session("x") is None
    assert await store.end_web_session("w")
    assert not await store.end_web_session("w")
    assert await store.find_web_session("w") is None

    await store.add_web_session("w", "k", 10)
    clock.advance(10)
    assert await store.find_web_session("w") is None
    await store.add_web_session("x", "k", 10)
    assert len((await tables())["ocean_web_sessions"]) == 2, "what has ended is forgotten"
    await store.revoke_api_key("k")
    assert await store.find_web_session("x") is None
    assert len((await tables())["ocean_web_sessions"]) == 1


async def test_a_web_session_is_no_better_than_its_key(store: Store, clock: ManualClock) -> None:
    await store.add_api_key(a_key(expires_at=clock.now() + 5), "hash")
    await store.add_web_session("w", "k", 10)
    clock.advance(5)
    assert await store.find_web_session("w") is None


async def test_a_run_stands_in_its_session_under_its_clog(store: Store) -> None:
    await store.create_run(a_run("r", session_id="t"), None)
    assert await store.standing("r") == Standing("r", "t", CLOG, GENERIC_VERBS)
    assert await store.standing("nope") is None
    assert await store.standing_of_lease("nope") is None
    await store.register_clogs([ClogRecord(CLOG, "2", False, allows=("cancel",))])
    assert await store.standing("r") == Standing("r", "t", CLOG, ("cancel",))
    assert {clog.clog_id: clog.allows for clog in await store.list_clogs()}[CLOG] == ("cancel",)


@pytest.mark.parametrize("has_handler", [True, False])
async def test_an_instance_that_only_has_methods_does_not_change_what_a_clog_allows(
    store: Store, has_handler: bool
) -> None:
    await store.register_clogs([ClogRecord(CLOG, "2", False, allows=("cancel",))])
    await store.register_clogs([ClogRecord(CLOG, "2", False, has_handler=has_handler, allows=())])
    found = {clog.clog_id: clog.allows for clog in await store.list_clogs()}
    assert found[CLOG] == (() if has_handler else ("cancel",))
