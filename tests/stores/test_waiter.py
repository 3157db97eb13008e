"""Waiting for a result that must be known."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from ocean.stores.shared.waiter import Waiter

pytestmark = pytest.mark.anyio

PATIENCE_S = 20


async def test_a_waiter_in_a_cancelled_scope_waits_and_is_cancelled_afterwards() -> None:
    waiter, steps = Waiter(), []

    async def wait() -> None:
        await waiter.wait()
        steps.append("told")
        await anyio.lowlevel.checkpoint()
        steps.append("not cancelled")

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
            assert steps == []
            waiter.set()
    assert steps == ["told"]


async def test_a_waiter_set_in_the_round_of_its_cancellation_returns() -> None:
    waiter, steps = Waiter(), []

    async def wait() -> None:
        await waiter.wait()
        steps.append("told")

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            waiter.set()
    assert steps == ["told"]


async def test_cancelling_the_task_itself_raises_at_once() -> None:
    task = asyncio.ensure_future(Waiter().wait())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with anyio.fail_after(PATIENCE_S), pytest.raises(asyncio.CancelledError):
        await task
