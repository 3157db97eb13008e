"""An instance whose process is gone: another one on the same host takes its runs at once, and no other one does."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from ocean import Done, LockLost, RunStatus
from ocean.kernel.instances import ASK_MS, LOOK_MS, ProcessTable
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk, TickCommit
from ocean.state.effects import Effects
from ocean.state.records import Claim
from ocean.testing import World
from ocean.ticker import ticker
from tests.lifecycle.acting import LOCK_MS, Script, let_others_go_on, log, look, stage, start
from tests.lifecycle.hosts import Host, Unknown

pytestmark = pytest.mark.anyio

C = ClaimableClog("c", LOCK_MS, "1", False)


async def dead_holding(w: World, processes: ProcessTable) -> tuple[str, Claim]:
    """An instance on this host claims a run, and does nothing more."""
    dead = await w.instance([Script()], processes=processes, instance_id="i-dead")
    run_id = await start(w)
    (claim,) = await w.store.claim_due(ClaimAsk({"c": C}, dead.instance_id, 1, 0, None))
    return run_id, claim


async def ids(w: World) -> set[str]:
    return {each.instance_id for each in await w.store.list_instances(None, 100)}


async def test_a_restart_on_the_same_host_takes_the_runs_of_the_dead_process_at_once() -> None:
    host, script = Host(), Script(Done("again"))
    async with stage(Script()) as w:
        dead = host.spawn(10)
        run_id, _ = await dead_holding(w, dead)
        host.kill(dead)
        restarted = await w.instance([script], processes=host.spawn(11))
        assert (await restarted.explain(run_id)).is_claimable
        await restarted.advance()
        run = await look(w, run_id)
        assert (run.status, run.output, script.seen[0].attempt, script.seen[0].call) == (RunStatus.DONE, "again", 1, 2)
        (event,) = await log(w, run_id, "tick.restarted")
        assert event.payload == {"because": "crash", "attempt": 1, "previous": "i-dead"}
        assert await ids(w) == {restarted.instance_id}


async def test_an_instance_beside_it_takes_them_at_its_next_poke() -> None:
    host, script = Host(), Script(Done())
    async with stage(Script()) as w:
        dead = host.spawn(10)
        run_id, _ = await dead_holding(w, dead)
        beside = await w.instance([script], processes=host.spawn(11))
        assert (await beside.advance()).advanced == 0
        host.kill(dead)
        w.clock.advance(ASK_MS)
        assert (await beside.advance()).advanced == 1
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_an_instance_that_was_started_later_than_the_one_beside_it_is_found_too() -> None:
    host = Host()
    async with stage(Script()) as w:
        beside = await w.instance([Script(Done())], processes=host.spawn(11))
        dead = host.spawn(10)
        run_id, _ = await dead_holding(w, dead)
        host.kill(dead)
        w.clock.advance(LOOK_MS - 1)
        assert (await beside.advance()).advanced == 0
        w.clock.advance(1)
        assert (await beside.advance()).advanced == 1
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_the_pid_of_the_dead_process_is_used_again() -> None:
    host = Host()
    async with stage(Script()) as w:
        dead = host.spawn(10)
        run_id, _ = await dead_holding(w, dead)
        host.kill(dead)
        host.spawn(10)
        restarted = await w.instance([Script(Done())], processes=host.spawn(11))
        assert (await restarted.explain(run_id)).is_claimable


async def test_the_new_process_may_have_the_id_and_the_pid_of_the_dead_one() -> None:
    host = Host()
    async with stage(Script()) as w:
        dead = host.spawn(1)
        run_id, _ = await dead_holding(w, dead)
        host.kill(dead)
        restarted = await w.instance([Script(Done())], processes=host.spawn(1), instance_id="i-dead")
        assert (await restarted.explain(run_id)).is_claimable
        record = await w.store.get_instance("i-dead")
        assert record is not None
        assert record.process == restarted.instances.here


async def test_a_process_that_is_alive_keeps_its_runs_until_its_lock_expires() -> None:
    host = Host()
    async with stage(Script()) as w:
        run_id, _ = await dead_holding(w, host.spawn(10))
        beside = await w.instance([Script(Done())], processes=host.spawn(11))
        w.clock.advance(LOCK_MS - 1)
        assert (await beside.advance()).advanced == 0
        w.clock.advance(1)
        assert (await beside.advance()).advanced == 1
        assert (await look(w, run_id)).status is RunStatus.DONE


def elsewhere() -> dict[str, tuple[ProcessTable, ProcessTable]]:
    """The process table of the holder, and that of another instance which does not see its process."""
    one, host, other_boot = Host(), Host(), Host("boot-2")
    return {
        "another pid namespace": (host.spawn(10), host.spawn(10, "pid:[2]")),
        "another boot or machine": (one.spawn(10), other_boot.spawn(11)),
        "a system that tells nothing about the holder": (Unknown(), host.spawn(11)),
        "a system that tells nothing here": (host.spawn(12), Unknown()),
        "two systems that tell nothing": (Unknown(), Unknown()),
    }


@pytest.mark.parametrize("where", elsewhere())
async def test_elsewhere_only_the_time_of_the_lock_decides(where: str) -> None:
    theirs, ours = elsewhere()[where]
    async with stage(Script()) as w:
        run_id, _ = await dead_holding(w, theirs)
        other = await w.instance([Script(Done())], processes=ours)
        w.clock.advance(LOCK_MS - 1)
        assert (await other.advance()).advanced == 0
        (hold,) = (await other.explain(run_id)).holds
        assert hold.message == (
            "held by i-dead, last seen 29 s ago, for tick 1 (on another host or in another container); "
            "if it is dead, its lock expires in 1 ms"
        )
        w.clock.advance(1)
        assert (await other.explain(run_id)).is_claimable
        assert (await other.advance()).advanced == 1


async def test_explain_tells_when_the_holder_was_last_seen_and_its_process() -> None:
    host = Host()
    async with stage(Script()) as w:
        run_id, claim = await dead_holding(w, host.spawn(4711))
        beside = await w.instance([Script(Done())], processes=host.spawn(11))

        async def held() -> str:
            (hold,) = (await beside.explain(run_id)).holds
            assert (hold.code, hold.holder) == ("locked", "i-dead")
            return hold.message

        w.clock.advance(12_000)
        assert await held() == (
            "held by i-dead, last seen 12 s ago, for tick 1 (process 4711 on this host); "
            "if the process is killed, the next poke on this host takes the run"
        )
        assert w.store.renew_locks([claim.lock]).lost == set()
        w.clock.advance(250)
        assert "last seen 250 ms ago" in await held()


async def test_a_claim_is_a_sign_of_life() -> None:
    host = Host()
    async with stage(Script()) as w:
        await w.instance([Script()], processes=host.spawn(10), instance_id="i-dead")
        w.clock.advance(3_600_000)
        run_id = await start(w)
        await w.store.claim_due(ClaimAsk({"c": C}, "i-dead", 1, 0, None))
        beside = await w.instance([Script()], processes=host.spawn(11))
        (hold,) = (await beside.explain(run_id)).holds
        assert "last seen 0 ms ago" in hold.message


async def test_explain_of_a_run_whose_holder_is_gone_releases_it() -> None:
    host = Host()
    async with stage(Script()) as w:
        dead = host.spawn(10)
        run_id, _ = await dead_holding(w, dead)
        beside = await w.instance([Script(Done())], processes=host.spawn(11))
        host.kill(dead)
        assert (await beside.explain(run_id)).is_claimable
        assert (await beside.advance()).advanced == 1


async def test_a_process_that_was_taken_for_dead_changes_nothing_once_its_run_was_claimed() -> None:
    host = Host()
    async with stage(Script()) as w:
        alive = host.spawn(10)
        run_id, claim = await dead_holding(w, alive)
        host.kill(alive)  # a process table that is wrong
        restarted = await w.instance([Script(Done("ours"))], processes=host.spawn(11))
        await restarted.advance()
        before = await look(w, run_id)
        late = TickCommit(claim.lock, "c", 1, 1, Done("late"), Effects(), "i-dead", "1", claim.claimed_at)
        with pytest.raises(LockLost):
            await w.store.commit_tick(late)
        assert (await look(w, run_id), before.output) == (before, "ours")


async def test_an_instance_that_was_taken_for_dead_registers_again() -> None:
    host = Host()
    async with stage(Script()) as w:
        mine = host.spawn(10)
        one = await w.instance([Script()], processes=mine)
        assert await w.store.release_instance(one.instance_id, mine.here()) == 0
        w.clock.advance(LOOK_MS)
        await one.advance()
        assert await ids(w) == {one.instance_id}


async def test_an_orderly_close_deletes_the_record() -> None:
    host = Host()
    async with stage(Script()) as w:
        one = await w.instance([Script()], processes=host.spawn(10))
        assert await ids(w) == {one.instance_id}
        await one.instances.stop()
        assert await ids(w) == set()


async def test_an_instance_without_clogs_registers_nothing() -> None:
    async with stage(Script()) as w:
        await w.instance([], processes=Host().spawn(10))
        assert await ids(w) == set()


async def acting_until(w: World, is_reached: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not is_reached():
            await let_others_go_on(w)


@pytest.mark.parametrize("waits", ["in a ticker", "for a result"])
async def test_who_waits_notices_a_death_without_a_poke(waits: str) -> None:
    host, script = Host(), Script(Done("ours"))
    async with stage(Script()) as w:
        dead = host.spawn(10)
        run_id, claim = await dead_holding(w, dead)
        beside = await w.instance([script], processes=host.spawn(11))

        async def wait() -> None:
            if waits == "for a result":
                assert await beside.result(run_id) == "ours"
                return
            async with ticker(beside):
                await acting_until(w, lambda: bool(script.seen))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await let_others_go_on(w)
            asked = host.asked
            w.clock.advance(ASK_MS)
            await acting_until(w, lambda: host.asked > asked)
            assert script.seen == []
            host.kill(dead)
            w.clock.advance(ASK_MS)
            await acting_until(w, lambda: bool(script.seen))
        assert w.clock.now() < claim.lock_expires_at


def count_units(w: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the name of each verb that this world's store executes, except waits."""
    units: list[str] = []

    def recorded(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def call(*positional: Any, **named: Any) -> Awaitable[Any]:
            units.append(name)
            return verb(*positional, **named)

        return call

    for name in dir(Store):
        verb = getattr(w.store, name, None)
        if inspect.iscoroutinefunction(verb) and name not in ("next_commit", "close", "get_run"):
            monkeypatch.setattr(w.store, name, recorded(name, verb))
    return units


async def test_pokes_read_the_list_of_instances_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    host, script = Host(), Script()
    async with stage(Script()) as w:
        await w.instance([Script()], processes=host.spawn(10))
        beside = await w.instance([script], processes=host.spawn(11))
        run_id = await start(w)
        units = count_units(w, monkeypatch)
        for _ in range(20):
            await beside.signal(run_id)
            await beside.advance(run_id=run_id)
            w.clock.advance(LOOK_MS // 10)
        assert (len(script.seen), units.count("list_instances")) == (21, 1)
        assert not {"register_instance", "release_instance", "get_instance"} & set(units)


async def test_an_idle_ticker_beside_another_instance_makes_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    async with stage(Script()) as w:
        await w.instance([Script()], processes=host.spawn(10))
        beside = await w.instance([Script()], processes=host.spawn(11))
        async with ticker(beside):
            await let_others_go_on(w)
            w.clock.advance(LOOK_MS)
            await let_others_go_on(w)
            units = count_units(w, monkeypatch)
            for _ in range(20):
                host.asked = 0
                w.clock.advance(ASK_MS)
                await acting_until(w, lambda: host.asked > 0)
            assert units == []
