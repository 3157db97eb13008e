"""A process that is killed: what it does, by scenario.

It prints where it is and then waits for a line on its standard input. If the test dies, the input ends, and the
process with it.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel

from ocean import Clog, Done, Lease, Ocean, Outcome, SystemClock, Tick
from tests.crash.ferry_clog import CALLED, CLAIMED, COMMITTING, RETURNED, TICK_MS, At, ferry, note, nowhere
from tests.crash.places import history_of, slower, url_of
from tests.crash.porter_worker import carry
from tests.linearizability.deciding import decide

LOCK_MS = 200
POLL_MS = 50


def instance() -> str:
    return f"victim-{os.getpid()}"


def stand_still(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201
    if not sys.stdin.readline():
        os._exit(3)


def halt_at(point: str, run_id: str, number: int) -> At:
    def at(here: str, tick: Tick) -> None:
        if (here, tick.run_id, tick.number) == (point, run_id, number):
            stand_still(here)

    return at


class HaltingClock(SystemClock):
    """Stops where only the clock is read: around the n-th call of a handler."""

    def __init__(self, point: str, nth: int) -> None:
        self._point = point
        self._calls_left = nth

    def call_later(self, ms: int, then: Callable[[], None]) -> Callable[[], None]:
        cancel = super().call_later(ms, then)
        if ms != TICK_MS:
            return cancel
        self._calls_left -= 1
        is_it = self._calls_left == 0
        if is_it and self._point == CLAIMED:
            stand_still(CLAIMED)

        def over() -> None:
            cancel()
            if is_it and self._point == RETURNED:
                stand_still(RETURNED)

        return over


async def halt(db: str, point: str, run_id: str, number: str, budget_ms: str = "10000", lock_ms: str = "") -> None:
    """Advance one run, and stop at a point of its n-th tick; if released, print the result."""
    lock = int(lock_ms) if lock_ms else slower(db, LOCK_MS)
    clog = ferry(history_of(db), halt_at(point, run_id, int(number)), lock_ms=lock)
    clock = HaltingClock(point, int(number))
    async with Ocean.open(url_of(db), clogs=[clog], instance_id=instance(), clock=clock) as ocean:
        poked = await ocean.advance(run_id=run_id, budget_ms=int(budget_ms))
        stand_still(*(result.outcome for result in poked.outcomes))


async def group(db: str, *halting: str) -> None:
    """Advance all runs at once; stop when the named ones have committed and every other run has ended."""
    missing, all_there = set(halting), anyio.Event()

    async def linger(tick: Tick) -> None:
        if tick.run_id in halting:
            missing.discard(tick.run_id)
            if not missing:
                all_there.set()
            await anyio.sleep_forever()

    clog = ferry(history_of(db), linger=linger, lock_ms=slower(db, LOCK_MS))
    opened = Ocean.open(url_of(db), clogs=[clog], instance_id=instance())
    async with opened as ocean, anyio.create_task_group() as tasks:
        tasks.start_soon(ocean.advance)
        for run in (await ocean.list_runs()).runs:
            if run.run_id not in halting:
                await ocean.result(run.run_id)
        await all_there.wait()
        stand_still("held")


async def together(db: str, halting: str) -> None:
    """Let all handlers return at the same time, and stop in the commit of one of them."""
    all_there = anyio.Event()
    missing = 0

    async def linger(tick: Tick) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            all_there.set()
        await all_there.wait()

    clog = ferry(history_of(db), halt_at(COMMITTING, halting, 1), linger=linger, lock_ms=slower(db, LOCK_MS))
    async with Ocean.open(url_of(db), clogs=[clog], instance_id=instance()) as ocean:
        missing = (await ocean.count_runs()).count
        await ocean.advance()


async def call(db: str, point: str, run_id: str) -> None:
    """Make a direct call with a request key, and stop in it, or after it if it gets that far."""

    def at(here: str, tick: Tick) -> None:
        if here == point:
            stand_still(here)

    clog = ferry(history_of(db), at)
    async with Ocean.open(url_of(db), clogs=[clog], instance_id=instance()) as ocean:
        await ocean.call_clog(run_id=run_id, method="load", payload={"cargo": 5}, request_key="load-once")
        stand_still("after the commit")


async def crew(db: str, lock_ms: str, concurrency: str, pace: str) -> None:
    """Poke until nothing is left. `first`: stop once, in the first call; `each`: in every call; or `free`."""
    has_stood = False

    def at(here: str, tick: Tick) -> None:
        nonlocal has_stood
        if here == CALLED and (pace == "each" or not has_stood):
            has_stood = True
            stand_still(tick.run_id, tick.number)

    clog = ferry(history_of(db), nowhere if pace == "free" else at, lock_ms=slower(db, int(lock_ms)))
    async with Ocean.open(url_of(db), clogs=[clog], instance_id=instance()) as ocean:
        while True:
            poked = await ocean.advance(concurrency=int(concurrency))
            for result in poked.outcomes:
                if result.outcome == "lock_lost":
                    note(history_of(db), "lost", result.run_id, result.tick)
            if poked.next_wake_at is None:
                return
            wait_ms = min(max(poked.next_wake_at - SystemClock().now(), 0), POLL_MS)
            await anyio.sleep(wait_ms / 1000)


async def takers(db: str, cap: str, concurrency: str) -> None:
    """Let every run take one of a cap; stop once, when as many as can be at work have read the counter."""
    looked, go = 0, anyio.Event()
    clog = Clog("taker")

    @clog.on_advance
    async def grab(tick: Tick) -> Outcome:
        nonlocal looked
        note(history_of(db), "call", tick.run_id, tick.call_number)
        taken = await tick.take("cap", limit=int(cap))
        looked += 1
        if looked == int(concurrency):
            stand_still("looked")
            go.set()
        await go.wait()
        return Done(taken.ok)

    async with Ocean.open(url_of(db), clogs=[clog], instance_id=instance()) as ocean:
        while True:
            if (await ocean.advance(concurrency=int(concurrency))).next_wake_at is None:
                return
            await anyio.sleep(POLL_MS / 1000)


async def worker(db: str, lease_ms: str, limit: str, pace: str) -> None:
    """Lease and carry until nothing is left, without having the clog. `each`: stop at every point; or `free`."""

    def at(point: str, lease: Lease) -> None:
        note(history_of(db), point, lease.run_id, lease.call, lease.idempotency_key, lease.lease_id)
        if pace == "each":
            stand_still(point, lease.run_id)

    async with Ocean.open(url_of(db), instance_id=instance()) as ocean:
        ask: dict[str, Any] = {"worker_id": instance(), "lease_ms": int(lease_ms), "limit": int(limit)}
        while True:
            leases = await ocean.claim_work("porter", **ask, wait_ms=POLL_MS)
            for lease in leases:
                await carry(ocean, lease, at)
            poked = await ocean.advance()
            if not leases and poked.next_wake_at is None and not poked.unclaimable:
                return


async def company(db: str) -> None:
    """Advance all runs until they have ended. The one with input "poison" ends the process."""
    clog = Clog("company", lock_ms=slower(db, LOCK_MS))

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        for _ in range(400 if tick.input == "poison" else 1_600):
            await anyio.lowlevel.checkpoint()
        if tick.input == "poison":
            os._exit(137)
        return Done()

    async with Ocean.open(url_of(db), clogs=[clog], instance_id=instance()) as ocean:
        while (await ocean.count_runs(clog_id="company", status=["pending", "active"])).count:
            await ocean.advance(budget_ms=5_000)
            await anyio.sleep(POLL_MS / 1_000)


SCENARIOS = {
    scenario.__name__: scenario for scenario in (halt, group, together, call, crew, takers, worker, decide, company)
}


def live(args: list[str]) -> None:
    scenario, *rest = args
    anyio.run(lambda: SCENARIOS[scenario](*rest))
