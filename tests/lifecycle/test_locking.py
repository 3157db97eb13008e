"""Locks: an epoch per claim, renewed while the handler runs, worthless once another process has the run."""

from functools import partial

import anyio
import pytest

from ocean import Continue, Done, Ok, Outcome, Retry, Tick
from ocean.testing import ManualClock
from tests.lifecycle.acting import LOCK_MS, Script, let_others_go_on, log, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_slow_handler_keeps_its_run_for_as_long_as_it_works() -> None:
    """L3: the lock is renewed; a call longer than the lock's time is made once."""
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        began.set()
        await go_on.wait()
        return Done("slow but once")

    script = Script(slow)
    async with stage(script) as w:
        run_id = await start(w)
        rival = await w.instance([script])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            for _ in range(7):
                w.clock.advance(LOCK_MS - 1)
                assert (await rival.advance()).outcomes == ()
            go_on.set()
        assert (await look(w, run_id)).output == "slow but once"
        assert len(script.seen) == 1


@pytest.mark.parametrize("late", [Done("late"), Ok(), Continue(), Retry("late")], ids=str)
async def test_a_holder_that_outlived_its_lock_commits_nothing_over_the_new_one(late: Outcome) -> None:
    """D7, L1: its outcome neither overwrites nor unlocks the run."""
    began, go_on = anyio.Event(), anyio.Event()
    successor_began, successor_go_on = anyio.Event(), anyio.Event()

    async def frozen(tick: Tick) -> Outcome:
        began.set()
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return late

    async def successor_works(tick: Tick) -> Outcome:
        successor_began.set()
        await successor_go_on.wait()
        return Done("heir")

    script = Script(frozen, successor_works)
    async with stage(script) as w:
        run_id = await start(w)
        successor = await w.instance([script])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            w.clock.jump(LOCK_MS)
            tasks.start_soon(successor.advance)
            await successor_began.wait()
            go_on.set()
            await let_others_go_on(w)
            held = await look(w, run_id)
            assert (held.status, held.locked_by) == ("active", successor.instance_id)
            successor_go_on.set()
        assert (await look(w, run_id)).output == "heir"
        committed = await log(w, run_id, "tick.committed")
        assert [(event.payload["epoch"], event.payload["instance"]) for event in committed] == [
            (2, successor.instance_id)
        ]


async def test_the_epoch_distinguishes_two_pokes_of_one_instance() -> None:
    """L5: the same instance id on both sides; the token of the claim decides."""
    began, go_on = anyio.Event(), anyio.Event()
    results: list[str] = []

    async def first_frozen(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            began.set()
            with anyio.CancelScope(shield=True):
                await go_on.wait()
        return Done(tick.call_number)

    script = Script(first_frozen)
    async with stage(script) as w:
        run_id = await start(w)

        async def poke() -> None:
            results.extend(result.outcome for result in (await w.ocean.advance()).outcomes)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke)
            await began.wait()
            w.clock.jump(LOCK_MS)
            await poke()
            go_on.set()
        assert results == ["done", "lock_lost"]
        assert (await look(w, run_id)).output == 2


async def test_an_instance_with_a_wrong_clock_steals_no_lock() -> None:
    """D11: the database decides what is due and expired; a caller's clock an hour ahead changes nothing."""
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        began.set()
        await go_on.wait()
        return Done("mine")

    script = Script(slow)
    async with stage(script) as w:
        run_id = await start(w)
        ahead = await w.instance([script], clock=ManualClock(w.clock.now() + 3_600_000))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            assert (await ahead.advance()).outcomes == ()
            go_on.set()
        assert (await look(w, run_id)).output == "mine"
        assert len(script.seen) == 1


async def test_concurrent_pokes_share_transactions_without_touching_each_other() -> None:
    """L8: refused and accepted work side by side; each run is called once, each refusal leaves no trace."""
    script = Script(Done())
    async with stage(script) as w:
        runs = [await start(w) for _ in range(20)]
        others = [await w.instance([script]) for _ in range(3)]
        refused: list[str] = []

        async def wrong() -> None:
            try:
                await w.ocean.signal("nobody")
            except Exception as error:
                refused.append(type(error).__name__)

        async with anyio.create_task_group() as tasks:
            for ocean in (w.ocean, *others):
                tasks.start_soon(partial(ocean.advance, concurrency=4))
                tasks.start_soon(wrong)
        assert refused == ["RunNotFound"] * 4
        assert len(script.seen) == 20
        assert {(await look(w, run_id)).status for run_id in runs} == {"done"}
        await w.ocean.create_run(session_id="s", clog_id="c")


async def test_every_claim_raises_the_epoch_by_one() -> None:
    async with stage(Script(Continue(), Retry("no"), Done())) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        epochs = [event.payload["epoch"] for event in await log(w, run_id) if "epoch" in (event.payload or {})]
        assert epochs == [1, 2, 3]
