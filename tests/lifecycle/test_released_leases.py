"""Work that its worker releases, and clogs that become external while they have runs."""

from collections.abc import Callable

import anyio
import pytest

from ocean import Clog, Done, InvalidValue, Lease, LeaseLost, RunStatus
from ocean.state.clock import Cancel
from ocean.testing import ManualClock
from tests.lifecycle.acting import Script, dump, let_others_go_on, log, look, stage, start
from tests.lifecycle.outside import lease, leases, outside
from tests.lifecycle.test_long_poll import WAIT_MS

pytestmark = pytest.mark.anyio


async def test_released_work_can_be_leased_at_once_and_costs_no_attempt() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        first = await lease(w)
        assert await w.ocean.release_work(first.lease_id) is RunStatus.PENDING
        second = await lease(w, worker_id="w2")
        assert (second.run_id, second.tick, second.call, second.run.attempt) == (run_id, 1, 2, 0)
        assert second.idempotency_key == first.idempotency_key
        for too_late in (w.ocean.release_work(first.lease_id), w.ocean.complete_work(first.lease_id, Done())):
            with pytest.raises(LeaseLost):
                await too_late


async def test_the_third_release_of_a_tick_is_a_failed_attempt_and_the_last_one_ends_the_run() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        for attempt in (0, 0, 1, 2):
            await w.ocean.release_work((await lease(w)).lease_id)
            assert (await look(w, run_id)).attempt == attempt
        assert await w.ocean.release_work((await lease(w)).lease_id) is RunStatus.FAILED
        assert ((await look(w, run_id)).error or {})["code"] == "given_back"


async def test_a_clog_that_becomes_external_puts_its_runs_into_the_default_queue() -> None:
    inside = Script(Done())
    async with stage(inside) as w:
        ended = await start(w, "before")
        await w.drain()
        waiting = await start(w, "after")
        await w.instance([Clog("c", external=True)])
        assert [(await look(w, each)).queue for each in (ended, waiting)] == [None, "default"]
        taken = await lease(w, clog_id="c", queues=["default"])
        assert (taken.run_id, taken.input) == (waiting, "after")
        await w.ocean.complete_work(taken.lease_id, Done())


async def test_a_dry_run_shows_that_an_expired_lease_will_be_taken_back_and_takes_nothing() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        taken = await lease(w)
        w.clock.advance(taken.expires_at - w.clock.now())
        before = await dump(w)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert shown is not None
        assert [(hold.code, hold.message.split(":")[0]) for hold in shown.holds] == [
            ("needs_worker", "the lease has expired")
        ]
        assert await dump(w) == before
        await w.ocean.advance()
        assert [event.payload["because"] for event in await log(w, run_id, "tick.given_back")] == ["lease_lapsed"]


class SetBack:
    """A clock that was set back; its timers still follow the world's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.behind_ms = 0

    def now(self) -> int:
        return self.clock.now() - self.behind_ms

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        return self.clock.call_later(ms, then)

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        return self.clock.every(ms, beat)


async def test_a_clock_that_is_set_back_does_not_prolong_a_long_poll() -> None:
    async with stage(outside()) as w:
        clock = SetBack(w.clock)
        there = await w.instance(clock=clock)
        found: list[list[Lease]] = []

        async def poll() -> None:
            found.append(await there.claim_work("e", "w1", wait_ms=WAIT_MS))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll)
            await let_others_go_on(w)
            clock.behind_ms = 3_600_000
            w.clock.advance(WAIT_MS)
            await let_others_go_on(w)
            assert found == [[]]


async def test_a_claim_names_at_most_a_hundred_queues() -> None:
    async with stage(outside()) as w:
        assert await leases(w, queues=[f"q{number}" for number in range(100)]) == []
        with pytest.raises(InvalidValue, match="queues must have at most 100 names"):
            await leases(w, queues=[f"q{number}" for number in range(101)])
