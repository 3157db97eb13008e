"""Defects of admission that a review found: one test for each."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from ocean import BulkProgress, Clog, Done, InvalidValue
from ocean.testing.manual_clock import START
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start, start_idle
from tests.stores.dump import of_sqlite

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("queue", ["\ud800", b"gpu", float("nan"), ["gpu"], "", "a\x00b"])
async def test_a_queue_that_is_no_name_is_refused_before_it_is_hashed(queue: Any) -> None:
    async with stage(Script(), Clog("outside", external=True)) as w:
        for clog_id in ("c", "outside"):
            with pytest.raises(InvalidValue, match=r"queue must"):
                await w.ocean.create_run(session_id="s", clog_id=clog_id, input=1, queue=queue)
        assert (await w.ocean.count_runs()).count == 0


@pytest.mark.parametrize("after", [[], {}, None, 0, False, b""])
async def test_an_empty_value_is_no_valid_cursor_for_the_list_of_keys(after: Any) -> None:
    async with stage(Script()) as w:
        with pytest.raises(InvalidValue, match="after must be a non-empty string"):
            await w.ocean.list_keys(after=after)


async def test_pausing_a_clog_returns_its_whole_record() -> None:
    async with stage(Clog("outside", external=True, inputs="all")) as w:
        paused = await w.ocean.pause_clog("outside")
        assert await w.ocean.list_clogs() == [paused]
        assert paused.external


async def test_a_queue_named_twice_is_served_once() -> None:
    """The one due run of a queue named twice was found twice, and the claim failed looking for a second one."""
    async with stage(Clog("outside", external=True)) as w:
        run_id = await start(w, 1, clog_id="outside")
        leases = await w.ocean.claim_work("outside", worker_id="w", queues=["default", "default"], limit=2)
        assert [lease.run_id for lease in leases] == [run_id]


async def test_a_queue_without_workers_does_not_block_a_free_slot() -> None:
    """The slot of a key shared by two queues was free, and the woken run was in the queue without a worker."""
    async with stage(Clog("outside", external=True)) as w:
        options: dict[str, Any] = {"clog_id": "outside", "concurrency_keys": ["k"]}
        await start(w, 1, queue="gpu", **options)
        (held,) = await w.ocean.claim_work("outside", worker_id="g", queues=["gpu"])
        unserved = await start(w, 2, queue="gpu", **options)
        served = await start(w, 3, queue="cpu", **options)
        assert [(await look(w, run_id)).parked_on for run_id in (unserved, served)] == ["k", "k"]
        await w.ocean.complete_work(held.lease_id, Done())
        (lease,) = await w.ocean.claim_work("outside", worker_id="c", queues=["cpu"])
        assert lease.run_id == served
        assert await w.ocean.claim_work("outside", worker_id="g", queues=["gpu"]) == []
        await w.ocean.complete_work(lease.lease_id, Done())
        (lease,) = await w.ocean.claim_work("outside", worker_id="g", queues=["gpu"])
        assert lease.run_id == unserved


async def test_work_leased_to_a_cancelled_caller_is_given_back(tmp_path: Path) -> None:
    """A long poll was cancelled while its lease was written: its id was lost, and the lease had to expire."""
    async with stage(Clog("outside", external=True), url=f"sqlite:///{tmp_path}/o.db") as w:
        run_id = await start(w, 1, clog_id="outside")
        writer_is_free = threading.Event()
        database = of_sqlite(w.store)
        blocked = asyncio.create_task(database.on_writer(lambda _: writer_is_free.wait()))
        poll = asyncio.create_task(w.ocean.claim_work("outside", worker_id="w", wait_ms=60_000))
        while not database._queue:
            await anyio.lowlevel.checkpoint()
        poll.cancel()
        writer_is_free.set()
        with pytest.raises(asyncio.CancelledError):
            await poll
        await blocked
        assert (await look(w, run_id)).status == "pending"
        (lease,) = await w.ocean.claim_work("outside", worker_id="w")
        assert (lease.run_id, lease.run.attempt) == (run_id, 0)


async def test_a_refused_claim_of_work_raises_a_plain_error() -> None:
    async with stage(Script()) as w:
        with pytest.raises(InvalidValue, match="must be external"):
            await w.ocean.claim_work("c", worker_id="w")


async def test_a_verb_for_many_runs_includes_those_created_by_a_faster_clock() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        w.clock.jump(-5_000)
        assert (await w.ocean.cancel_runs(clog_id="c")).done == 1
        assert (await look(w, run_id)).status == "failed"


async def test_a_clock_that_is_set_back_does_not_stop_a_verb_for_many_runs() -> None:
    async with stage(Script()) as w:
        for _ in range(2):
            await start_idle(w)

        def set_back(progress: BulkProgress) -> None:
            if progress.seen == 1:
                w.clock.jump(-3_600_000)

        cancelling = asyncio.create_task(w.ocean.cancel_runs(clog_id="c", per_second=1, on_progress=set_back))
        while w.clock.now() > START - 3_600_000:
            await anyio.lowlevel.checkpoint()
        await let_others_go_on(w)
        w.clock.advance(1_000)
        assert (await cancelling).done == 2


async def test_a_debounced_creation_that_leaves_out_the_queue_does_not_inherit_it() -> None:
    async with stage(Clog("outside", external=True)) as w:
        options: dict[str, Any] = {"clog_id": "outside", "dedupe_key": "d", "debounce_ms": 100}
        run_id = await start(w, 1, queue="gpu", **options)
        assert await start(w, 2, **options) == run_id
        assert (await look(w, run_id)).queue == "default"
