"""`claim_work(wait_ms=…)`: woken by a commit or a time, never by another queue's work, never losing a lease."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Done, Lease, Ocean, Retry, RunStatus
from ocean.testing import World
from tests.lifecycle.acting import dump, let_others_go_on, look, stage, start, start_idle
from tests.lifecycle.outside import LEASE_MS, lease, leases, outside
from tests.races.arranging import busy_writer, queued, until

pytestmark = pytest.mark.anyio

WAIT_MS = 5_000


class Poll:
    """A claim in progress; `found` is None until it returns."""

    def __init__(self) -> None:
        self.found: list[Lease] | None = None
        self.scope = anyio.CancelScope()

    async def run(self, w: World, options: dict[str, Any]) -> None:
        with self.scope:
            self.found = await leases(w, **({"wait_ms": WAIT_MS} | options))


@asynccontextmanager
async def polling(w: World, count: int = 1, **options: Any) -> AsyncIterator[list[Poll]]:
    """Start claims that find nothing and wait; they must return before the block ends."""
    polls = [Poll() for _ in range(count)]
    before = w.clock.timers
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for poll in polls:
                tasks.start_soon(poll.run, w, options)
            # Each poll sets one timer for its total time and one for the next query.
            await until(lambda: w.clock.timers == before + 2 * count)
            assert [poll.found for poll in polls] == [None] * count
            yield polls


async def test_a_creation_wakes_a_poller() -> None:
    async with stage(outside()) as w:
        async with polling(w) as [poll]:
            run_id = await start(w, 1, clog_id="e")
        assert poll.found is not None
        assert [(each.run_id, each.input, each.expires_at) for each in poll.found] == [
            (run_id, 1, w.clock.now() + LEASE_MS)
        ]


async def test_a_delayed_signal_and_a_back_off_wake_a_poller_at_their_time() -> None:
    async with stage(outside()) as w:
        run_id = await start_idle(w, clog_id="e")
        await w.ocean.signal(run_id, "later", deliver_at=w.clock.now() + 300)
        async with polling(w) as [poll]:
            w.clock.advance(299)
            await let_others_go_on(w)
            assert poll.found is None
            w.clock.advance(1)
        assert poll.found is not None
        assert poll.found[0].input == "later"
        await w.ocean.complete_work(poll.found[0].lease_id, Retry("no", after_ms=400))
        async with polling(w) as [poll]:
            w.clock.advance(400)
        assert poll.found is not None
        assert poll.found[0].call == 2


async def test_a_lease_that_lapses_wakes_a_poller() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        await lease(w, lease_ms=200)
        async with polling(w, worker_id="w2") as [poll]:
            w.clock.advance(200)
        assert poll.found is not None
        assert [(each.run_id, each.run.attempt) for each in poll.found] == [(run_id, 1)]


async def test_a_completion_that_frees_a_key_wakes_a_poller() -> None:
    async with stage(outside()) as w:
        for _ in range(2):
            await start(w, clog_id="e", concurrency_keys=["one"])
        first = await lease(w)
        async with polling(w) as [poll]:
            await w.ocean.complete_work(first.lease_id, Done())
        assert poll.found is not None
        assert len(poll.found) == 1


async def test_another_queues_work_is_not_claimed_and_the_poll_ends_at_its_time() -> None:
    async with stage(outside(), outside("f")) as w:
        async with polling(w, queues=["gpu"]) as [poll]:
            for clog_id in ("e", "f"):
                await start(w, clog_id=clog_id, queue="cpu")
            for _ in range(4):
                w.clock.advance(1_000)
                await let_others_go_on(w)
                assert poll.found is None
            w.clock.advance(999)
            await let_others_go_on(w)
            assert poll.found is None
            w.clock.advance(1)
        assert poll.found == []
        assert len(await leases(w, queues=["cpu"])) == 1


async def test_own_work_that_falls_due_beside_another_queues_is_found_within_a_second() -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e", queue="cpu")
        mine = await start_idle(w, clog_id="e", queue="gpu")
        await w.ocean.signal(mine, deliver_at=w.clock.now() + 300)
        async with polling(w, queues=["gpu"]) as [poll]:
            w.clock.advance(1_000)
        assert poll.found is not None
        assert [each.run_id for each in poll.found] == [mine]


async def test_a_poll_of_nothing_ends_at_its_time_and_has_written_nothing() -> None:
    async with stage(outside()) as w:
        before = await dump(w)
        async with polling(w) as [poll]:
            w.clock.advance(WAIT_MS - 1)
            await let_others_go_on(w)
            assert poll.found is None
            w.clock.advance(1)
        assert poll.found == []
        assert await dump(w) == before


async def test_a_resumed_clog_wakes_a_poller() -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e")
        await w.ocean.pause_clog("e")
        async with polling(w) as [poll]:
            await w.ocean.resume_clog("e")
        assert poll.found is not None
        assert len(poll.found) == 1


async def test_one_run_goes_to_exactly_one_of_two_pollers() -> None:
    async with stage(outside()) as w:
        async with polling(w, count=2) as polls:
            await start(w, clog_id="e")
            await until(lambda: any(poll.found for poll in polls))
            await let_others_go_on(w)
            assert sorted(len(poll.found or []) for poll in polls) == [0, 1]
            assert None in [poll.found for poll in polls], "the other one goes on waiting"
            w.clock.advance(WAIT_MS)
        assert [] in [poll.found for poll in polls]


async def test_a_cancelled_poll_leaves_nothing_behind() -> None:
    async with stage(outside()) as w:
        async with polling(w) as [poll]:
            poll.scope.cancel()
        assert poll.found is None
        run_id = await start(w, clog_id="e")
        await let_others_go_on(w)
        assert (await look(w, run_id)).status is RunStatus.PENDING
        assert (await lease(w)).run_id == run_id


@pytest.mark.parametrize("how", ["its scope", "its task"])
async def test_a_poll_cancelled_while_its_claim_commits_gives_back_its_leases(tmp_path: Path, how: str) -> None:
    async with stage(outside(), url=f"sqlite:///{tmp_path / 'ocean.db'}") as w:
        run_id = await start(w, clog_id="e")
        poll = Poll()
        async with busy_writer(w):
            task = asyncio.ensure_future(poll.run(w, {}))
            await queued(w, 1)
            if how == "its scope":
                poll.scope.cancel()
            else:
                task.cancel()
        if how == "its scope":
            await task
        else:
            with pytest.raises(asyncio.CancelledError):
                await task
        assert poll.found is None
        again = await lease(w, worker_id="w2")
        assert (again.run_id, again.call, again.run.attempt) == (run_id, 2, 0)
        await w.ocean.complete_work(again.lease_id, Done())


async def test_a_poller_sees_runs_that_another_process_creates(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    found: list[Lease] = []
    async with Ocean.open(url, clogs=[outside()]) as here, Ocean.open(url) as there:

        async def poll() -> None:
            found.extend(await there.claim_work("e", worker_id="w1", wait_ms=20_000))

        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll)
                for _ in range(20):
                    await there.get_run("nobody")
                run = await here.create_run(session_id="s", clog_id="e", input=1)
        assert [each.run_id for each in found] == [run.run_id]
        await there.complete_work(found[0].lease_id, Done())
