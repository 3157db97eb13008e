"""`create_run`, `find_run`, and the result for a repeated id, dedupe key or request key."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.runs import Request
from ocean.state.effects import Effects
from ocean.state.errors import DedupeKeyReused, InvalidValue, RequestKeyReused, RunExists, UnknownClog
from ocean.state.outcomes import Ok
from ocean.state.records import RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import OTHER_CLOG, TablesOf, a_run, events, pending, run_tick, types

pytestmark = pytest.mark.anyio


async def test_a_run_without_input_is_idle_and_never_due(store: Store) -> None:
    run = await store.create_run(a_run(), None)
    assert (run.status, run.due_at, run.pending_count) == (RunStatus.IDLE, None, 0)
    assert await types(store, "r") == ["run.created"]


async def test_a_run_with_the_input_null_is_pending_and_due_now(store: Store, clock: ManualClock) -> None:
    run = await store.create_run(a_run(input=None), None)
    assert (run.status, run.due_at, run.pending_count) == (RunStatus.PENDING, clock.now(), 1)


async def test_the_result_is_what_get_run_returns(store: Store, clock: ManualClock) -> None:
    made = await store.create_run(
        a_run(
            input=1, priority=2, attributes={"a": 1, "b": "x", "c": True}, deadline_at=clock.now() + 5, dedupe_key="k"
        ),
        None,
    )
    assert made == await store.get_run("r")
    assert made.attributes == {"a": 1, "b": "x", "c": True}
    assert (made.priority, made.dedupe_key, made.correlation_id) == (2, "k", "r")


async def test_an_unknown_run_is_none(store: Store) -> None:
    assert await store.get_run("nobody") is None
    assert await store.survey("nobody", ()) is None


async def test_the_same_id_with_the_same_body_returns_the_first_run(store: Store, tables: TablesOf) -> None:
    first = await pending(store)
    before = await tables()
    assert await pending(store) == first
    assert await tables() == before


async def test_the_same_id_with_another_body_is_refused(store: Store, tables: TablesOf) -> None:
    await pending(store)
    before = await tables()
    with pytest.raises(RunExists):
        await pending(store, priority=1)
    assert await tables() == before


async def test_an_unknown_clog_is_refused_with_the_near_name_and_nothing_written(
    store: Store, tables: TablesOf
) -> None:
    before = await tables()
    with pytest.raises(UnknownClog, match="counter"):
        await pending(store, clog_id="countre")
    assert await tables() == before


async def test_a_deadline_in_the_past_is_refused(store: Store, clock: ManualClock, tables: TablesOf) -> None:
    before = await tables()
    with pytest.raises(InvalidValue):
        await pending(store, deadline_at=clock.now())
    assert await tables() == before


async def test_a_dedupe_key_returns_its_holder_for_the_same_body(store: Store, tables: TablesOf) -> None:
    first = await pending(store, "a", dedupe_key="k")
    before = await tables()
    assert await pending(store, "b", dedupe_key="k") == first
    assert await tables() == before
    found = await store.find_run(first.clog_id, "s", "k")
    assert found == ("a", a_run("a", input={}).body_hash)


async def test_a_dedupe_key_is_refused_for_another_body(store: Store, tables: TablesOf) -> None:
    await pending(store, "a", dedupe_key="k")
    before = await tables()
    with pytest.raises(DedupeKeyReused):
        await pending(store, "b", dedupe_key="k", input={"other": True})
    assert await tables() == before


async def test_a_dedupe_key_is_held_per_clog_and_session(store: Store) -> None:
    await pending(store, "a", dedupe_key="k")
    other_session = await pending(store, "b", dedupe_key="k", session_id="t")
    other_clog = await pending(store, "c", dedupe_key="k", clog_id=OTHER_CLOG)
    assert (other_session.run_id, other_clog.run_id) == ("b", "c")


async def test_a_dedupe_key_lapses_at_its_time_and_not_before(store: Store, clock: ManualClock) -> None:
    first = await pending(store, "a", dedupe_key="k", dedupe_ms=1_000)
    clock.advance(999)
    assert (await pending(store, "b", dedupe_key="k", dedupe_ms=1_000)).run_id == "a"
    clock.advance(1)
    assert await store.find_run(first.clog_id, "s", "k") is None
    assert (await pending(store, "b", dedupe_key="k", dedupe_ms=1_000)).run_id == "b"
    lapsed = await store.get_run("a")
    assert lapsed is not None
    assert lapsed.dedupe_key is None


async def test_a_dedupe_key_is_still_held_after_the_run_ended_until_a_commit_releases_it(store: Store) -> None:
    await pending(store, "a", dedupe_key="k")
    await run_tick(store, "a", Ok(), Effects(release_dedupe_key=True))
    assert (await pending(store, "b", dedupe_key="k")).run_id == "b"


async def test_a_request_key_returns_the_first_result_and_creates_nothing(
    store: Store,
    tables: TablesOf,
) -> None:
    request = Request("key", "hash")
    first = await store.create_run(a_run("a", input=1, attributes={"n": 1.5}), request)
    await run_tick(store, "a")
    before = await tables()
    assert await store.create_run(a_run("b", input=1), request) == first
    assert await tables() == before


async def test_a_request_key_with_another_hash_is_refused(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run("a"), Request("key", "hash"))
    before = await tables()
    with pytest.raises(RequestKeyReused):
        await store.create_run(a_run("b"), Request("key", "another"))
    with pytest.raises(RequestKeyReused):
        await store.stored_answer(Request("key", "another"))
    assert await tables() == before
    assert await store.stored_answer(Request("unused", "hash")) is None


async def test_a_refused_creation_does_not_keep_its_request_key(store: Store) -> None:
    request = Request("key", "hash")
    with pytest.raises(UnknownClog):
        await store.create_run(a_run("a", clog_id="nobody"), request)
    assert await store.stored_answer(request) is None


async def test_a_child_inherits_the_correlation_of_its_parent(store: Store) -> None:
    await pending(store, "mother")
    child = await pending(store, "child", parent_run_id="mother")
    grandchild = await pending(store, "grandchild", parent_run_id="child")
    assert (child.correlation_id, grandchild.correlation_id) == ("mother", "mother")
    assert {event.correlation_id for event in await events(store)} == {"mother"}


async def test_registering_again_renews_the_version_and_keeps_the_pause(store: Store) -> None:
    first, _ = await store.list_clogs()
    await store.set_clog_paused(first.clog_id, True, None, None)
    await store.register_clogs([type(first)(first.clog_id, "2", True)])
    again, _ = await store.list_clogs()
    assert (again.version, again.has_on_end, again.paused) == ("2", True, True)
