"""Threads in virtual time: one runs while everything else stands still, and the seed decides which."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from random import Random

import anyio
import pytest
from anyio import from_thread, to_thread

from ocean.state.clock import sleep
from ocean.testing import VirtualClock, VirtualLoop
from tests.simulation import threads
from tests.simulation.threads import one_at_a_time

HOUR = 3_600_000


async def _tool() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await sleep(VirtualClock(loop), HOUR)


async def _story() -> str:
    log: list[str] = []

    def work(name: str) -> None:
        for part in range(3):
            log.append(f"{name}{part}")
            from_thread.run(_tool)

    async with anyio.create_task_group() as tasks:
        for name in "abcd":
            tasks.start_soon(to_thread.run_sync, work, name)
    return " ".join(log)


def run(seed: int, main: Callable[[], Awaitable[str]]) -> str:
    with one_at_a_time(), asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(seed))) as runner:
        return runner.run(main())  # type: ignore[arg-type]


def test_the_seed_decides_which_thread_continues() -> None:
    traces = [run(seed, _story) for seed in range(20)]
    assert traces == [run(seed, _story) for seed in range(20)]
    assert len(set(traces)) > 10


def test_an_abandoned_thread_continues_to_its_next_tool_and_ends_there() -> None:
    log: list[str] = []

    def work() -> None:
        log.append("begins")
        try:
            from_thread.run(_tool)
        finally:
            log.append("is notified")

    async def main() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: to_thread.run_sync(work, abandon_on_cancel=True))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return " ".join(log)

    assert run(1, main).startswith("begins")
    assert log == ["begins", "is notified"]


def test_a_thread_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE_S", 0.05)
    end = threading.Event()

    async def main() -> str:
        try:
            await to_thread.run_sync(end.wait)
        finally:
            end.set()
        return ""

    with pytest.raises(RuntimeError, match="has it hung"):
        run(1, main)
