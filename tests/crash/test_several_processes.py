"""Several processes on one file, undisturbed and while they are being killed."""

import random
import select
from collections import Counter
from pathlib import Path

import pytest

from ocean import Event, Ocean, RetryPolicy, RunStatus
from tests.crash.ferry_clog import ferry, noted
from tests.crash.places import Place, url_of
from tests.crash.processes import Start, Victim

pytestmark = pytest.mark.anyio


async def whole_log(ocean: Ocean) -> list[Event]:
    log: list[Event] = []
    while page := await ocean.read_events(after=log[-1].seq if log else 0, limit=1_000):
        log += page
    return log


async def check_history(ocean: Ocean, cargo: dict[str, list[int]]) -> list[Event]:
    """Check that each input was consumed and each tick committed once, sums are right, logs dense; returns the log."""
    log = await whole_log(ocean)
    committed = [event for event in log if event.type == "tick.committed"]
    for run_id, parts in cargo.items():
        mine = [event for event in committed if event.run_id == run_id]
        ticks = list(range(1, len(parts) + 1))
        assert [event.tick for event in mine] == ticks
        assert [number for event in mine for number in event.payload["inputs"]] == ticks
        crossed = [event for event in log if event.run_id == run_id and event.type == "crossed"]
        assert [event.payload["cargo"] for event in crossed] == parts
        info = await ocean.get_run(run_id)
        assert info is not None
        assert (info.status, info.output["cargo"]) == (RunStatus.DONE, sum(parts))
        assert info.output["paid_by"] == [event.payload["paid_by"] for event in crossed]
        seqs = [event.run_seq for event in log if event.run_id == run_id]
        assert seqs == list(range(1, len(seqs) + 1))
    ticks_in_all = sum(map(len, cargo.values()))
    assert await ocean.call_clog(clog_id="ferry", session_id="s", method="crossings") == ticks_in_all
    return log


async def test_three_processes_share_a_file_and_commit_every_tick_once(db: Place, history: Path, start: Start) -> None:
    async with Ocean.open(url_of(db), clogs=[ferry(history)]) as ocean:
        cargo: dict[str, list[int]] = {}
        for i in range(60):
            run = (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": i})).run_id
            await ocean.signal(run, {"cargo": 100})
            await ocean.signal(run, {"cargo": 1_000, "last": True})
            cargo[run] = [i, 100, 1_000]
        crew = [start("crew", db, 30_000, 8, "first") for _ in range(3)]
        for worker in crew:
            assert worker.read_line(), "each holds some runs before any continues"
        for worker in crew:
            worker.go_on()
        for worker in crew:
            assert worker.read_line() == ""

        log = await check_history(ocean, cargo)
        assert {e.payload["instance"] for e in log if e.type == "tick.committed"} == {w.instance for w in crew}
        assert [event for event in log if event.type == "tick.restarted"] == []
        calls = Counter((run, tick) for run, tick, _, _ in noted(history, "call"))
        assert calls == {(run, str(tick)): 1 for run in cargo for tick in (1, 2, 3)}
        assert len(noted(history, "pay")) == 180


async def test_twelve_kills_among_three_processes_lose_and_repeat_nothing(
    db: Place, history: Path, start: Start
) -> None:
    kills, calls_reported, chance = 12, 0, random.Random(7)
    async with Ocean.open(url_of(db), clogs=[ferry(history)]) as ocean:
        cargo: dict[str, list[int]] = {}
        for i in range(40):
            for_ever = RetryPolicy(max_attempts=None)
            run = (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": i}, retry=for_ever)).run_id
            await ocean.signal(run, {"cargo": 100}, signal_id="second")
            cargo[run] = [i, 100]
        unsent = list(cargo)

        async def send() -> None:
            run = unsent.pop()
            await ocean.signal(run, {"cargo": 1_000, "last": True}, signal_id="third")
            cargo[run].append(1_000)

        def worker() -> Victim:
            return start("crew", db, 200, 3, "each" if kills else "free")

        crew = {worker() for _ in range(3)}
        next_kill = chance.randint(4, 9)
        while crew:
            ready, _, _ = select.select(list(crew), [], [], 30)
            assert ready
            ready_victim: Victim = ready[0]
            if not ready_victim.read_line():
                crew.remove(ready_victim)
                continue
            calls_reported += 1
            if unsent:
                await send()
            if kills and calls_reported >= next_kill:
                ready_victim.kill()
                kills -= 1
                next_kill = calls_reported + chance.randint(4, 9)
                crew.remove(ready_victim)
                crew.add(worker())
            else:
                ready_victim.go_on()
        while unsent:
            await send()
        assert start("crew", db, 200, 8, "free").read_line() == ""

        assert kills == 0
        log = await check_history(ocean, cargo)
        restarts = Counter((e.run_id, e.tick) for e in log if e.type == "tick.restarted")
        assert sum(restarts.values()) >= 12, "every kill hit at least one open tick"
        called = Counter((run, int(tick)) for run, tick, _, _ in noted(history, "call"))
        for run in cargo:
            for tick in await ocean.list_ticks(run):
                assert tick.calls == 1 + restarts[run, tick.tick]
                assert 1 <= called[run, tick.tick] <= tick.calls
