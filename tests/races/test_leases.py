"""A worker that competes with other writers: the first commit counts, the other changes nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import (
    Conflict,
    Done,
    Lease,
    LeaseCompleted,
    LeaseLost,
    OceanError,
    Ok,
    RowChanged,
    RunEnded,
    RunStatus,
    WorkDone,
)
from ocean.state.effects import RowKey
from ocean.state.records import Claim
from ocean.testing import World
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, let_others_go_on, log, look, stage, start, types
from tests.lifecycle.outside import LEASE_MS, lease, leases, outside, row_of
from tests.races.arranging import busy_writer, queued, until

pytestmark = pytest.mark.anyio

Act = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def leased(tmp_path: Path) -> AsyncIterator[tuple[World, Lease]]:
    async with stage(outside(), Script(), url=f"sqlite:///{tmp_path / 'ocean.db'}") as w:
        await start(w, 1, clog_id="e", run_id="r")
        yield w, await lease(w)


async def in_order(w: World, *acts: Act) -> list[Any]:
    """Return the result or error of each act when they reach the database in this order, in one transaction."""
    results: list[Any] = [None] * len(acts)

    async def run(number: int, act: Act) -> None:
        try:
            results[number] = await act()
        except OceanError as error:
            results[number] = type(error)

    async with anyio.create_task_group() as tasks, busy_writer(w):
        for number, act in enumerate(acts):
            tasks.start_soon(run, number, act)
            await queued(w, number + 1)
    return results


def completing(w: World, taken: Lease, outcome: Any = None, **options: Any) -> Act:
    return lambda: w.ocean.complete_work(taken.lease_id, outcome or Done("worker"), **options)


async def test_a_completion_before_the_take_back_counts(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        w.clock.advance(LEASE_MS)
        done, poked = await in_order(w, completing(w, taken), w.ocean.advance)
        assert (done.status, poked.outcomes) == (RunStatus.DONE, ())
        assert "tick.given_back" not in await types(w, "r")


async def test_a_completion_behind_the_take_back_is_late(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        w.clock.advance(LEASE_MS)
        _, done = await in_order(w, w.ocean.advance, completing(w, taken, row="late", events=[("late", 1)]))
        assert done is LeaseLost
        run = await look(w, "r")
        assert (run.status, run.attempt) == (RunStatus.PENDING, 1)
        assert await row_of(w, "r") == [False, None]
        assert "late" not in await types(w, "r")


async def test_a_completion_behind_the_next_lease_is_late_and_the_next_holder_continues(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        w.clock.advance(LEASE_MS)
        heirs, late = await in_order(w, lambda: leases(w, worker_id="w2"), completing(w, taken))
        assert late is LeaseLost
        done = await w.ocean.complete_work(heirs[0].lease_id, Done("heir"))
        assert done.status is RunStatus.DONE
        assert await w.ocean.result("r") == "heir"


async def test_a_renewal_before_the_take_back_keeps_the_lease(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        w.clock.advance(LEASE_MS)
        until, _ = await in_order(w, lambda: w.ocean.renew_work(taken.lease_id), w.ocean.advance)
        assert until == w.clock.now() + LEASE_MS
        assert (await look(w, "r")).status is RunStatus.ACTIVE
        await w.ocean.complete_work(taken.lease_id, Done())


async def test_a_renewal_behind_the_take_back_is_late(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        w.clock.advance(LEASE_MS)
        late = [("late", 1)]
        _, until = await in_order(w, w.ocean.advance, lambda: w.ocean.renew_work(taken.lease_id, events=late))
        assert until is LeaseLost
        assert (await look(w, "r")).status is RunStatus.PENDING
        assert "late" not in await types(w, "r")


async def test_of_a_completion_and_a_cancellation_the_first_ends_the_run(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        done, _ = await in_order(w, completing(w, taken), lambda: w.ocean.cancel_run("r"))
        assert done.status is RunStatus.DONE
        assert ((await look(w, "r")).status, await w.ocean.result("r")) == (RunStatus.DONE, "worker")

        await start(w, clog_id="e", run_id="r2")
        second = await lease(w)
        _, late = await in_order(w, lambda: w.ocean.cancel_run("r2"), completing(w, second))
        assert late is LeaseLost
        run = await look(w, "r2")
        assert (run.status, run.error and run.error["code"]) == (RunStatus.FAILED, "cancelled")


async def test_two_equal_completions_at_once_are_one_with_one_result(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        options: dict[str, Any] = {"row": 1, "events": [("made", 1)]}
        results = await in_order(w, *[completing(w, taken, **options) for _ in range(3)])
        assert results == [WorkDone("r", 1, "done", RunStatus.DONE)] * 3
        assert (len(await log(w, "r", "made")), len(await log(w, "r", "tick.committed"))) == (1, 1)


async def test_of_two_different_completions_at_once_the_first_counts(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        first, second = await in_order(w, completing(w, taken, Ok()), completing(w, taken, Done()))
        assert (first.outcome, second) == ("ok", LeaseCompleted)
        assert (await look(w, "r")).status is RunStatus.IDLE


async def test_two_workers_claim_at_once_and_one_of_them_gets_the_run(tmp_path: Path) -> None:
    async with stage(outside(), url=f"sqlite:///{tmp_path / 'ocean.db'}") as w:
        await start(w, clog_id="e")
        results = await in_order(w, lambda: leases(w, worker_id="w1"), lambda: leases(w, worker_id="w2"))
        assert [[each.worker_id for each in found] for found in results] == [["w1"], []]


async def test_a_direct_call_before_the_completion_makes_a_conflict_of_it(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        put = lambda: w.ocean.call_clog(run_id="r", method="put", payload="theirs")  # noqa: E731
        _, done = await in_order(w, put, completing(w, taken, row="mine"))
        assert done is RowChanged
        assert await row_of(w, "r") == [True, "theirs"]
        assert (await look(w, "r")).status is RunStatus.ACTIVE


async def test_a_direct_call_behind_the_completion_sees_the_run_as_it_left_it(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        put = lambda: w.ocean.call_clog(run_id="r", method="put", payload="theirs")  # noqa: E731
        _, call = await in_order(w, completing(w, taken, row="mine"), put)
        assert call is RunEnded
        assert await row_of(w, "r") == [True, "mine"]


@asynccontextmanager
async def behind(w: World, taken: Lease) -> AsyncIterator[tuple[Claim, list[Any]]]:
    """Start a completion that waits because another run's tick has its turn on the leased run's row."""
    await start(w, run_id="other")
    claim = await die_holding(w, Script())
    assert await w.store.take_turn(claim.lock, [RowKey("run", "e", run_id="r")])
    results: list[Any] = []

    async def complete() -> None:
        try:
            results.append(await w.ocean.complete_work(taken.lease_id, Done(), row="mine"))
        except OceanError as error:
            results.append(type(error))

    timers = w.clock.timers
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(complete)
            # The completion sets a timer when it waits.
            await until(lambda: w.clock.timers > timers)
            assert results == []
            yield claim, results


async def test_a_completion_waits_behind_a_turn_on_its_row(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        async with behind(w, taken) as (claim, results):
            assert (await look(w, "r")).status is RunStatus.ACTIVE
            await w.store.give_back(claim.lock, claim.tick)
        assert results == [WorkDone("r", 1, "done", RunStatus.DONE)]
        assert await row_of(w, "r") == [True, "mine"]


async def test_a_turn_ends_with_its_lock_and_the_completion_goes_on(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        await w.ocean.renew_work(taken.lease_id, lease_ms=10 * LOCK_MS)
        async with behind(w, taken) as (_, results):
            w.clock.advance(LOCK_MS)
        assert results == [WorkDone("r", 1, "done", RunStatus.DONE)]


async def test_a_completion_loses_patience_behind_a_turn_and_its_lease_goes_on(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        await w.ocean.renew_work(taken.lease_id, lease_ms=10 * LOCK_MS)
        async with behind(w, taken) as (claim, results):
            for _ in range(10):
                assert results == []
                w.clock.advance(1_000)
                await let_others_go_on(w)
        assert results == [Conflict]
        await w.store.give_back(claim.lock, claim.tick)
        assert (await w.ocean.complete_work(taken.lease_id, Done(), row="mine")).status is RunStatus.DONE


async def test_a_completion_behind_a_turn_whose_lease_is_taken_back_is_late(tmp_path: Path) -> None:
    async with leased(tmp_path) as (w, taken):
        w.clock.advance(LEASE_MS - 1)
        async with behind(w, taken) as (_, results):
            w.clock.advance(1)
            await (await w.instance()).advance()
        assert results == [LeaseLost]
        assert await row_of(w, "r") == [False, None]
