"""The event loop of simulations: virtual time, drawn order, and processes that can be stopped."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from ocean.state.clock import sleep
from ocean.testing import LostWakeUp, Process, VirtualClock, VirtualLoop

HOUR = 3_600_000


def run(seed: int, main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(seed))) as runner:
        return runner.run(main)


def here() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def order_of(names: str) -> str:
    log: list[str] = []

    async def say(name: str) -> None:
        log.append(name)

    await asyncio.gather(*(say(name) for name in names))
    return "".join(log)


def test_hours_pass_at_once() -> None:
    async def main() -> int:
        clock = VirtualClock(here())
        before = clock.now()
        await sleep(clock, 5 * HOUR)
        return clock.now() - before

    assert run(1, main()) == 5 * HOUR


def test_the_seed_decides_which_task_runs_first() -> None:
    assert run(1, order_of("abcdef")) == run(1, order_of("abcdef"))
    assert len({run(seed, order_of("abcdef")) for seed in range(20)}) > 10


def test_a_lost_wake_up_is_reported() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(LostWakeUp):
        run(1, main())


def test_no_task_of_a_killed_process_continues() -> None:
    log: list[str] = []

    async def work(clock: VirtualClock) -> None:
        try:
            log.append("begins")
            await sleep(clock, 10)
            log.append("goes on")
        finally:
            log.append("cleans up")

    async def main() -> list[str]:
        process, clock = Process(here(), "p"), VirtualClock(here())
        task = process.start(work(clock))
        await sleep(clock, 5)
        process.kill()
        await sleep(clock, HOUR)
        before = list(log)
        process.reap()
        await asyncio.wait([task])
        return before

    assert run(1, main()) == ["begins"]


def test_the_heartbeat_of_a_blocked_process_continues_and_that_of_a_paused_one_does_not() -> None:
    async def main() -> tuple[int, int, int]:
        process, outside = Process(here(), "p"), VirtualClock(here())
        clock = VirtualClock(here(), process)
        beats: list[int] = []
        ticks: list[int] = []

        async def tick() -> None:
            while True:
                await sleep(clock, 10)
                ticks.append(clock.now())

        process.start(tick())
        stop = clock.every(10, lambda: beats.append(clock.now()))
        process.block(1_000)
        await sleep(outside, 995)
        blocked, was_held = len(beats), len(ticks)
        process.pause(2_000)
        await sleep(outside, 1_995)
        stop()
        return blocked, was_held, len(beats) - blocked

    assert run(1, main()) == (99, 0, 0)


def test_setting_a_clock_moves_no_timer() -> None:
    async def main() -> float:
        clock = VirtualClock(here(), ahead_ms=500)
        before = here().time()
        waiting = asyncio.ensure_future(sleep(clock, 100))
        clock.ahead_ms -= HOUR
        await waiting
        return here().time() - before

    assert run(1, main()) == pytest.approx(0.1)
