"""A day of a database: verbs of every kind, each with a request key, so that it can be repeated.

Repeating it from the start, wherever it was interrupted, must end with the same story.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from ocean import Clog, Done, Ocean, Ok, Outcome, Retry, RetryPolicy, Tick, Wait
from ocean.testing import ManualClock

PATIENT = RetryPolicy(max_attempts=9, backoff_ms=100)
NAP_MS = 1_000
LOCK_MS = 30_000
EFFECTS = ("entered", "added", "carried")


def ledger() -> Clog:
    """Enters each word into its run's row, and counts it in the session's."""
    clog = Clog("ledger", lock_ms=LOCK_MS)

    @clog.on_advance
    async def enter(tick: Tick) -> Outcome:
        if tick.reason == "wake":
            return Ok()
        entry = tick.input
        if entry.get("stumbles") and not tick.attempt:
            return Retry("not at the first attempt")
        rows = await tick.read(run=True, session=True)
        await tick.step("stamp", lambda key: key)
        await tick.stream("entering", {"word": entry["word"]})
        entries = [*(rows.run or []), entry["word"]]
        await tick.write(run=entries, session=lambda old: (old or 0) + 1)
        await tick.take("entries", limit=1_000)
        await tick.emit("entered", {"word": entry["word"]})
        if "child" in entry:
            await tick.create_run(
                session_id="s", clog_id="ledger", run_id=entry["child"], input={"word": "a child's", "ends": True}
            )
        if entry.get("naps"):
            return Wait(for_ms=NAP_MS)
        return Done(entries) if entry.get("ends") else Ok()

    @clog.method
    async def add(tick: Tick, payload: str) -> int:
        rows = await tick.read(run=True)
        await tick.write(run=[*(rows.run or []), payload])
        await tick.emit("added", {"word": payload})
        return len(rows.run or [])

    @clog.method
    async def counted(tick: Tick, payload: Any) -> Any:
        return (await tick.read(session=True)).session

    return clog


def porter() -> Clog:
    return Clog("porter", external=True)


def clogs() -> list[Clog]:
    return [ledger(), porter()]


@dataclass(slots=True)
class Stage:
    ocean: Ocean
    clock: ManualClock

    async def work(self) -> None:
        """Advance until nothing is due now."""
        while (await self.ocean.advance(budget_ms=60_000)).due_now:
            pass

    async def settle(self) -> None:
        """Advance until nothing will be due again: locks of dead processes lapse, timers fire."""
        while (poked := await self.ocean.advance(budget_ms=60_000)).next_wake_at is not None:
            self.clock.advance(max(poked.next_wake_at - self.clock.now(), 0))
        while await self.ocean.claim_work("porter", "looks only", 1_000):
            self.clock.advance(1_000)
            await self.work()


Deed = Callable[[Stage], Awaitable[Any]]


async def make_old(stage: Stage) -> Any:
    return await _create(stage, "old", word="the only", ends=True)


async def make_several(stage: Stage) -> Any:
    return await _all(lambda name: _create(stage, name, word="first", stumbles=name == "b"), "a", "b", "c")


async def signal_several(stage: Stage) -> Any:
    async def send(name: str) -> str:
        receipt = await stage.ocean.signal(name[0], {"word": name}, signal_id=name, request_key=f"signal {name}")
        return receipt.run_id

    return await _all(send, "a-1", "a-2", "b-1", "b-2")


async def call(stage: Stage) -> Any:
    return await stage.ocean.call_clog(run_id="a", method="add", payload="direct", request_key="call")


async def take(stage: Stage) -> Any:
    return (await stage.ocean.take("tickets", limit=3, request_key="take")).left


async def nap(stage: Stage) -> Any:
    return (await stage.ocean.signal("a", {"word": "nap", "naps": True, "child": "kid"}, signal_id="nap")).number


async def pass_time(stage: Stage) -> Any:
    stage.clock.advance(NAP_MS)
    await stage.work()


async def lease(stage: Stage) -> Any:
    options: Any = {"input": {"word": "a parcel"}, "request_key": "create porter", "retry": PATIENT}
    await stage.ocean.create_run(session_id="s", clog_id="porter", run_id="p", **options)
    for leased in await stage.ocean.claim_work("porter", "worker", LOCK_MS):
        await stage.ocean.complete_work(leased.lease_id, Done("there"), [("carried", leased.input)])


async def pause(stage: Stage) -> Any:
    await stage.ocean.pause_run("b", request_key="pause")
    return (await stage.ocean.resume_run("b", request_key="resume")).run_id


async def sweep(stage: Stage) -> Any:
    """Delete the one run that has ended by now. If repeated later, there would be others."""
    if await stage.ocean.get_run("old"):
        stage.clock.advance(1)
        await stage.ocean.sweep(runs_older_than_ms=0, batch=1)


async def delete(stage: Stage) -> Any:
    return await stage.ocean.delete_run("c", request_key="delete")


async def end(stage: Stage) -> Any:
    for name in ("a", "b"):
        await stage.ocean.signal(name, {"word": "last", "ends": True}, signal_id=f"last {name}")
    await stage.work()


DEEDS: dict[str, Deed] = {
    "make old": make_old,
    "work": Stage.work,
    "make several": make_several,
    "signal several": signal_several,
    "work again": Stage.work,
    "sweep": sweep,
    "call": call,
    "take": take,
    "nap": nap,
    "fall asleep": Stage.work,
    "pass time": pass_time,
    "lease": lease,
    "pause": pause,
    "delete": delete,
    "end": end,
}


async def _create(stage: Stage, name: str, **input: Any) -> str:
    made = await stage.ocean.create_run(
        session_id="s", clog_id="ledger", run_id=name, input=input, request_key=f"create {name}", retry=PATIENT
    )
    return made.run_id


async def _all(deed: Callable[[str], Awaitable[str]], *names: str) -> list[str]:
    """Run these concurrently, so that their commits share transactions."""
    results: list[str] = []

    async def one(name: str) -> None:
        results.append(await deed(name))

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
    return sorted(results)


async def story(stage: Stage) -> dict[str, Any]:
    """The story: every effect of the day, as often as it exists."""
    await stage.settle()
    effects = []
    after = 0
    while page := await stage.ocean.read_events(after=after, limit=500):
        effects += [f"{event.run_id} {event.type} {event.payload['word']}" for event in page if event.type in EFFECTS]
        after = page[-1].seq
    runs = {name: await stage.ocean.get_run(name) for name in ("a", "b", "c", "old", "kid")}
    return {
        "told": sorted(effects),
        "ends": {name: run.status if run else None for name, run in runs.items() if name != "kid"},
        "entries": {name: sorted(run.output) for name, run in runs.items() if run and isinstance(run.output, list)},
        "counted": await stage.ocean.call_clog(clog_id="ledger", session_id="s", method="counted"),
        "tickets": (await stage.ocean.take("tickets", 0, limit=3)).left,
        "taken": (await stage.ocean.take("entries", 0, limit=1_000)).used,
    }
