"""Registered instances, and releasing the locks of one whose process is gone."""

import pytest

from ocean import RetryPolicy
from ocean.kernel.store import Store
from ocean.kernel.store.claims import LeaseAsk
from ocean.state.errors import LockLost
from ocean.state.instances import UNKNOWN_PROCESS, InstanceRecord, ProcessIdentity, ProcessPlace
from ocean.state.outcomes import Done
from ocean.state.records import ClogRecord, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    LOCK_MS,
    OTHER_CLOG,
    TablesOf,
    a_run,
    an_ask,
    claim,
    commit,
    pending,
    the_run,
    types,
)

pytestmark = pytest.mark.anyio

HERE = ProcessPlace("boot-1", "pid:[1]")
DAY_MS = 86_400_000


def process(pid: int = 7, start: int = 100, place: ProcessPlace = HERE) -> ProcessIdentity:
    return ProcessIdentity(place.boot_id, place.pid_namespace, pid, start)


async def ids(store: Store, place: ProcessPlace | None = None) -> list[str]:
    return [each.instance_id for each in await store.list_instances(place, 100)]


async def test_an_instance_is_registered_seen_when_it_renews_and_unregistered(store: Store, clock: ManualClock) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    began = clock.now()
    assert await store.get_instance("i-a") == InstanceRecord("i-a", process(), LOCK_MS, began, began)
    await pending(store)
    held = await claim(store)
    clock.advance(LOCK_MS // 3)
    assert store.renew_locks([held.lock]).lost == set()
    assert await store.get_instance("i-a") == InstanceRecord("i-a", process(), LOCK_MS, began, clock.now())
    await store.unregister_instance("i-a", process(pid=8))
    assert await ids(store) == ["i-a"]
    await store.unregister_instance("i-a", process())
    assert (await ids(store), await store.get_instance("i-a")) == ([], None)
    assert (await the_run(store)).locked_by == "i-a"


async def test_a_lost_lock_is_no_sign_of_life(store: Store, clock: ManualClock) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    began = clock.now()
    await pending(store)
    held = await claim(store)
    clock.advance(LOCK_MS)
    await claim(store, instance_id="i-b")
    assert store.renew_locks([held.lock]).lost == {held.lock}
    record = await store.get_instance("i-a")
    assert record is not None
    assert record.seen_at == began


async def test_instances_are_listed_by_place_last_seen_first(store: Store, clock: ManualClock) -> None:
    for name, place in (
        ("a", HERE),
        ("b", ProcessPlace("boot-1", "pid:[2]")),
        ("c", ProcessPlace("boot-2", "pid:[1]")),
        ("d", HERE),
    ):
        await store.register_instance(name, process(place=place), LOCK_MS)
        clock.advance(1)
    await store.register_instance("e", UNKNOWN_PROCESS, LOCK_MS)
    assert await ids(store, HERE) == ["d", "a"]
    assert await ids(store) == ["e", "d", "c", "b", "a"]
    assert [each.instance_id for each in await store.list_instances(HERE, 1)] == ["d"]


async def test_released_locks_expire_at_once_and_the_next_claim_finds_a_crash(store: Store, clock: ManualClock) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    for name in ("one", "two"):
        await pending(store, name)
    await store.create_run(a_run("three", input={}, clog_id=OTHER_CLOG, concurrency_keys=["k"]), None)
    assert len(await store.claim_due(an_ask())) == 3
    before = await the_run(store, "one")
    clock.advance(5)
    assert await store.claim_due(an_ask(instance_id="i-b")) == []
    assert await store.release_instance("i-a", process()) == 3
    released = before._replace(lock_expires_at=clock.now())
    assert await the_run(store, "one") == released._replace(crash_company=3, crash_epoch=before.lock_epoch)
    assert await ids(store) == []
    assert (await store.agenda([CLOG, OTHER_CLOG])).due_now == 3
    claims = await store.claim_due(an_ask(instance_id="i-b"))
    assert sorted((each.run.run_id, each.run.attempt, each.call) for each in claims) == [
        ("one", 0, 2),
        ("three", 0, 2),
        ("two", 0, 2),
    ]
    assert (await types(store, "one"))[-1] == "tick.restarted"


async def test_only_locks_of_that_instance_are_released_and_no_leases(store: Store, clock: ManualClock) -> None:
    await store.register_clogs([ClogRecord("outside", "1", False, external=True)])
    await store.register_instance("i-a", process(), LOCK_MS)
    for name in ("ours", "theirs", "done"):
        await pending(store, name)
    await store.create_run(a_run("leased", input={}, clog_id="outside"), None)
    assert len(await store.lease_work(LeaseAsk("outside", "i-a", LOCK_MS, ("default",), ("hash",), 0))) == 1
    await claim(store, "ours")
    await claim(store, "theirs", instance_id="i-b")
    await commit(store, await claim(store, "done"), Done(1))
    before = {name: await the_run(store, name) for name in ("theirs", "leased", "done")}
    assert await store.release_instance("i-a", process()) == 1
    assert {name: await the_run(store, name) for name in before} == before


async def test_a_release_of_another_process_changes_nothing(store: Store, tables: TablesOf) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    await pending(store)
    await claim(store)
    before = await tables()
    assert await store.release_instance("i-a", process(start=101)) == 0
    assert await store.release_instance("i-a", UNKNOWN_PROCESS) == 0
    assert await store.release_instance("i-b", process()) == 0
    assert await tables() == before


async def test_a_released_instance_that_is_alive_commits_until_another_has_claimed(store: Store) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    await pending(store, "kept")
    await pending(store, "lost")
    kept, lost = await claim(store, "kept"), await claim(store, "lost")
    assert await store.release_instance("i-a", process()) == 2
    await claim(store, "lost", instance_id="i-b")
    await commit(store, kept, Done(1))
    before = await the_run(store, "lost")
    with pytest.raises(LockLost):
        await commit(store, lost, Done(1))
    assert ((await the_run(store, "kept")).status, await the_run(store, "lost")) == (RunStatus.DONE, before)


async def test_a_released_instance_that_is_alive_renews_what_no_other_has_claimed(
    store: Store, clock: ManualClock
) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    await pending(store)
    held = await claim(store)
    await store.release_instance("i-a", process())
    assert store.renew_locks([held.lock]).lost == set()
    assert (await the_run(store)).lock_expires_at == clock.now() + LOCK_MS
    assert await store.claim_due(an_ask(instance_id="i-b")) == []


async def test_the_release_of_a_last_call_lets_any_poke_end_the_run(store: Store) -> None:
    await store.register_instance("i-a", process(), LOCK_MS)
    await pending(store, retry=RetryPolicy(max_attempts=1))
    await claim(store)
    await store.release_instance("i-a", process())
    assert await store.claim_due(an_ask("", instance_id="i-b")) == []
    assert (await the_run(store)).status is RunStatus.FAILED


async def test_an_id_that_two_processes_use_tells_nothing_about_either(store: Store) -> None:
    await store.register_instance("web", process(), LOCK_MS)
    await store.register_instance("web", process(), 2 * LOCK_MS)
    assert await ids(store, HERE) == ["web"], "a process may register twice"
    await store.register_instance("web", process(pid=8), LOCK_MS)
    record = await store.get_instance("web")
    assert record is not None
    assert (record.process.place, record.longest_lock_ms) == (None, 2 * LOCK_MS)
    for each in (process(), process(pid=8)):
        await store.register_instance("web", each, LOCK_MS)
        assert await store.release_instance("web", each) == 0
        await store.unregister_instance("web", each)
    assert (await ids(store, HERE), await ids(store)) == ([], ["web"])


async def test_records_that_were_not_seen_for_a_week_and_hold_nothing_are_deleted(
    store: Store, clock: ManualClock
) -> None:
    for name in ("i-a", "idle"):
        await store.register_instance(name, process(), LOCK_MS)
    await pending(store)
    await claim(store)
    clock.advance(7 * DAY_MS)
    await store.register_instance("new", process(), LOCK_MS)
    assert await ids(store) == ["new", "idle", "i-a"] or await ids(store) == ["new", "i-a", "idle"]
    clock.advance(1)
    await store.register_instance("newer", process(), LOCK_MS)
    assert await ids(store) == ["newer", "new", "i-a"]
