"""`delete_run` and `delete_session`: everything is deleted except the log."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.runs import Request
from ocean.state.effects import SetTimer
from ocean.state.errors import RunNotFound
from ocean.state.outcomes import Ok
from ocean.state.records import RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    SESSION,
    TablesOf,
    a_run,
    a_signal,
    claim,
    claimed_run,
    commit,
    events,
    pending,
    row,
    run_row,
    the_run,
    tick_row,
    types,
    writes,
)

pytestmark = pytest.mark.anyio

STAYS = {"events", "event_cursor", "ocean_log_floor", "ocean_clogs"}


async def _full_run(store: Store, clock: ManualClock) -> None:
    """Create a run with rows in every table."""
    held = await claimed_run(store, dedupe_key="k", attributes={"a": 1}, concurrency_keys=["k"])
    await store.store_step(held.lock, 0, "step", "1")
    effects = writes((SESSION, 0, "1"), (run_row(), 0, "1"), (tick_row(1, "x"), 0, "1"))
    effects.timers.append(SetTimer("t", clock.now() + 100, None))
    await commit(store, held, Ok(), effects)
    await store.deliver_signal(a_signal(), None)
    again = await claim(store)
    await store.take_turn(again.lock, [SESSION])


async def test_deleting_a_session_leaves_nothing_but_the_log(
    store: Store, clock: ManualClock, tables: TablesOf
) -> None:
    await _full_run(store, clock)
    full = await tables()
    elsewhere = [
        "ocean_api_keys",
        "ocean_counters",
        "ocean_instances",
        "ocean_leases",
        "ocean_requests",
        "ocean_storage_global",
        "ocean_web_sessions",
    ]
    assert [name for name, rows in full.items() if len(rows) == 1] == elsewhere
    assert await store.delete_session("s", "someone", None) == 1
    left = await tables()
    assert [name for name, rows in left.items() if len(rows) > 1 and name not in STAYS] == []
    assert (await types(store))[-3:] == ["run.failed", "run.deleted", "session.deleted"]


async def test_deleting_a_run_deletes_its_children_and_keeps_all_their_events(store: Store) -> None:
    await pending(store, "mother")
    await pending(store, "child", parent_run_id="mother", session_id="elsewhere")
    await pending(store, "grandchild", parent_run_id="child")
    await pending(store, "bystander")
    assert await store.delete_run("mother", None, None) == 3
    assert [await store.get_run(run_id) is None for run_id in ("mother", "child", "grandchild", "bystander")] == [
        True,
        True,
        True,
        False,
    ]
    for run_id in ("mother", "child", "grandchild"):
        logged = await events(store, run_id)
        assert logged[-1].type == "run.deleted"
        assert [event.run_seq for event in logged] == list(range(1, len(logged) + 1))


async def test_the_parent_of_a_deleted_child_is_notified(store: Store) -> None:
    await store.create_run(a_run("mother"), None)
    await store.create_run(a_run("child", input=1, parent_run_id="mother", notify_parent=True), None)
    await store.delete_run("child", None, None)
    assert (await the_run(store, "mother")).status is RunStatus.PENDING
    held = await claim(store, "mother")
    assert held.inputs[0].body["error"]["code"] == "deleted"


async def test_an_unknown_run_cannot_be_deleted_and_an_unknown_session_is_empty(store: Store, tables: TablesOf) -> None:
    before = await tables()
    with pytest.raises(RunNotFound):
        await store.delete_run("nobody", None, None)
    assert await store.delete_session("nowhere", None, None) == 0
    assert await tables() == before


async def test_a_request_key_returns_the_result_of_a_deletion_again(store: Store) -> None:
    await pending(store)
    request = Request("key", "hash")
    assert await store.delete_run("r", None, request) == 1
    assert await store.delete_run("r", None, request) == 1


async def test_an_id_used_again_continues_its_numbers_and_nothing_else(store: Store) -> None:
    await pending(store)
    await commit(store, await claim(store), Ok(), writes((run_row(), 0, "1")))
    await store.delete_run("r", None, None)
    numbers = [event.run_seq for event in await events(store, "r")]
    run = await pending(store)
    assert (run.tick, run.pending_count, run.output) == (1, 1, None)
    assert (await row(store, run_row())).version == 0
    assert [event.run_seq for event in await events(store, "r")] == [*numbers, len(numbers) + 1]
    assert (await claim(store)).tick == 2


async def test_a_deleted_run_frees_its_dedupe_key(store: Store) -> None:
    await pending(store, "a", dedupe_key="k")
    await store.delete_run("a", None, None)
    assert (await pending(store, "b", dedupe_key="k", input="other")).run_id == "b"


async def test_pauses_and_ends_return_the_same_result_under_their_request_key(store: Store, tables: TablesOf) -> None:
    await pending(store)
    paused = await store.set_run_paused("r", True, None, Request("pause", "h"))
    ended = await store.cancel_run("r", "enough", None, Request("cancel", "h"))
    clog = await store.set_clog_paused("counter", True, None, Request("clog", "h"))
    before = await tables()
    assert await store.set_run_paused("r", True, None, Request("pause", "h")) == paused
    assert await store.cancel_run("r", "enough", None, Request("cancel", "h")) == ended
    assert await store.set_clog_paused("counter", True, None, Request("clog", "h")) == clog
    assert await tables() == before
    assert paused.paused
    assert clog.paused
