"""A process is killed at every point of a tick; the next poke calls the tick again, and every effect happens once."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Event, Ocean, RunStatus, Tick
from tests.crash.ferry_clog import (
    CALLED,
    CLAIMED,
    COMMITTING,
    POINTS,
    RETURNED,
    STEPPING,
    STREAMED,
    WORKED,
    At,
    ferry,
    noted,
    nowhere,
)
from tests.crash.places import Place, history_of, is_postgres, url_of
from tests.crash.processes import Start, Victim

pytestmark = pytest.mark.anyio

LAPSE_MS = 5_000


@dataclass(frozen=True)
class Seen:
    """A call as the surviving process's handler got it."""

    tick: int
    call: int
    attempt: int
    reason: str
    bodies: tuple[Any, ...]
    signal_id: str | None


@asynccontextmanager
async def survivor(db: Place, then: At = nowhere) -> AsyncIterator[tuple[Ocean, list[Seen]]]:
    """An instance in the test process, and the calls it makes."""
    seen: list[Seen] = []

    def at(here: str, tick: Tick) -> None:
        if here == CALLED:
            bodies = tuple(entry.body for entry in tick.inputs)
            call = Seen(tick.number, tick.call_number, tick.attempt, tick.reason, bodies, tick.signal_id)
            seen.append(call)
        then(here, tick)

    async with Ocean.open(url_of(db), clogs=[ferry(history_of(db), at)]) as ocean:
        yield ocean, seen


async def log_of(ocean: Ocean, run_id: str) -> list[Event]:
    events = await ocean.read_events(run_id, limit=1_000)
    assert [event.run_seq for event in events] == list(range(1, len(events) + 1))
    return events


async def renewal(ocean: Ocean, run_id: str) -> None:
    """The holder's event loop is blocked, and its lock is still renewed."""
    times = set[int | None]()
    with anyio.fail_after(LAPSE_MS / 1000):
        while len(times) < 2:
            run = await ocean.get_run(run_id)
            assert run is not None
            times.add(run.lock_expires_at)


def freeze_between_transactions(victim: Victim, db: Place) -> None:
    """Frozen during a renewal, it would hold SQLite's write lock, and no process could take over."""
    is_free = is_postgres(db)
    if is_free:
        # On PostgreSQL its transactions are single statements, which the server ends without it.
        victim.freeze()
    while not is_free:
        victim.freeze()
        connection = sqlite3.connect(db, timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            is_free = True
        except sqlite3.OperationalError:
            victim.thaw()
        finally:
            connection.close()


def of_type(events: list[Event], type: str) -> list[Event]:
    return [event for event in events if event.type == type]


@pytest.mark.parametrize("point", POINTS)
async def test_a_tick_whose_process_is_killed_is_called_again_and_has_its_effects_once(
    point: str, db: Place, history: Path, start: Start
) -> None:
    async with survivor(db) as (ocean, seen):
        run = (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": 1})).run_id
        await ocean.signal(run, {"cargo": 10}, signal_id="a")
        victim = start("halt", db, point, run, 2)
        assert victim.read_line() == point
        held = await ocean.get_run(run)
        assert held is not None
        assert (held.status, held.locked_by, held.tick, held.attempt) == (RunStatus.ACTIVE, victim.instance, 2, 0)
        if point == COMMITTING:  # the victim holds the write lock until it is killed
            victim.kill()
            await ocean.signal(run, {"cargo": 100, "last": True}, signal_id="b")
        else:
            await ocean.signal(run, {"cargo": 100, "last": True}, signal_id="b")
            victim.kill()

        half = await ocean.get_run(run)
        assert half is not None
        assert (half.status, half.pending_count) == (RunStatus.ACTIVE, 2), "both signals are still in the inbox"
        assert (await ocean.call_clog(run_id=run, method="row"))["cargo"] == 1
        assert len(of_type(await log_of(ocean, run), "crossed")) == 1

        await ocean.advance(run_id=run, budget_ms=LAPSE_MS)

        ended = await ocean.get_run(run)
        assert ended is not None
        assert (ended.status, ended.attempt, ended.pending_count) == (RunStatus.DONE, 0, 0)
        assert ended.output["cargo"] == 111
        assert await ocean.call_clog(clog_id="ferry", session_id="s", method="crossings") == 3
        assert seen == [
            Seen(2, 2, 1, "signal", ({"cargo": 10},), "a"),
            Seen(3, 1, 0, "signal", ({"cargo": 100, "last": True},), "b"),
        ]

        events = await log_of(ocean, run)
        assert [event.tick for event in of_type(events, "crossed")] == [1, 2, 3]
        assert [(event.tick, event.call) for event in of_type(events, "tick.committed")] == [(1, 1), (2, 2), (3, 1)]
        [restart] = of_type(events, "tick.restarted")
        assert (restart.tick, restart.call) == (2, 2)
        assert restart.payload == {"because": "crash", "attempt": 1, "previous": victim.instance}
        has_streamed = POINTS.index(point) >= POINTS.index(STREAMED)
        splashes = [event.call for event in of_type(events, "splash") if event.tick == 2]
        assert splashes == ([1, 2] if has_streamed else [2])
        paid = [key for _, number, key in noted(history, "pay") if number == "2"]
        assert len(paid) == (2 if point == STEPPING else 1), "a stored step is not repeated, an unstored one is"
        assert len(set(paid)) == 1, "and the outside world gets the same key both times"
        was_paid_by_victim = POINTS.index(point) > POINTS.index(STEPPING)
        assert (ended.output["paid_by"][1] == str(victim.pid)) == was_paid_by_victim


async def test_a_run_killed_in_its_first_tick_keeps_its_first_input(db: Place, start: Start) -> None:
    async with survivor(db) as (ocean, seen):
        run = (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": 7, "last": True})).run_id
        victim = start("halt", db, CLAIMED, run, 1)
        victim.read_line()
        victim.kill()
        await ocean.advance(run_id=run, budget_ms=LAPSE_MS)
        assert seen == [Seen(1, 2, 1, "created", ({"cargo": 7, "last": True},), None)]
        assert (await ocean.result(run))["cargo"] == 7


@pytest.mark.parametrize("wakes", ["while another works on its run", "after another has committed"])
async def test_a_frozen_process_that_was_taken_over_changes_nothing_when_it_wakes(
    wakes: str, db: Place, history: Path, start: Start
) -> None:
    victim: Victim

    def wake(here: str, tick: Tick) -> None:
        """The frozen process continues to its commit, and is refused."""
        if here == WORKED and wakes == "while another works on its run":
            victim.thaw()
            victim.go_on()
            assert victim.read_line() == "lock_lost"

    async with survivor(db, wake) as (ocean, seen):
        run = (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": 1})).run_id
        victim = start("halt", db, RETURNED, run, 1, 1_000)
        assert victim.read_line() == RETURNED
        await renewal(ocean, run)
        freeze_between_transactions(victim, db)
        await ocean.advance(run_id=run, budget_ms=LAPSE_MS)
        if wakes == "after another has committed":
            before = await log_of(ocean, run)
            victim.thaw()
            victim.go_on()
            assert victim.read_line() == "lock_lost"
            assert await log_of(ocean, run) == before

        assert [(call.tick, call.call) for call in seen] == [(1, 2)]
        [commit] = of_type(await log_of(ocean, run), "tick.committed")
        assert (commit.call, commit.payload["instance"]) == (2, ocean.instance_id)
        assert (await ocean.call_clog(run_id=run, method="row"))["cargo"] == 1
        assert await ocean.call_clog(clog_id="ferry", session_id="s", method="crossings") == 1
        assert len(noted(history, "call")) == 2


async def test_a_killed_group_keeps_what_it_had_committed_and_repeats_only_the_rest(
    db: Place, history: Path, start: Start
) -> None:
    async with survivor(db) as (ocean, seen):
        runs = [
            (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": i, "last": True})).run_id
            for i in range(5)
        ]
        held = runs[2:]
        victim = start("group", db, *held)
        assert victim.read_line() == "held"
        victim.kill()
        assert {run.run_id for run in (await ocean.list_runs(status="done")).runs} == set(runs[:2])
        for run in held:
            await ocean.advance(run_id=run, budget_ms=LAPSE_MS)

        assert sorted((call.tick, call.call, call.bodies[0]["cargo"]) for call in seen) == [
            (1, 2, i) for i in (2, 3, 4)
        ]
        assert [(await ocean.result(run))["cargo"] for run in runs] == list(range(5))
        assert await ocean.call_clog(clog_id="ferry", session_id="s", method="crossings") == 5
        assert len(noted(history, "pay")) == 5
        for run in runs:
            assert len(of_type(await log_of(ocean, run), "tick.committed")) == 1


async def test_a_shared_commit_that_dies_halfway_leaves_each_run_whole(db: Place, start: Start) -> None:
    async with survivor(db) as (ocean, _):
        runs = [
            (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": 1, "last": True})).run_id
            for _ in range(6)
        ]
        victim = start("together", db, runs[3])
        assert victim.read_line() == COMMITTING
        victim.kill()
        committed = 0
        for run in runs:
            row = await ocean.call_clog(run_id=run, method="row")
            info = await ocean.get_run(run)
            assert info is not None
            assert (row is not None) == (info.status is RunStatus.DONE)
            assert len(of_type(await log_of(ocean, run), "crossed")) == (row is not None)
            committed += row is not None
        assert await ocean.call_clog(run_id=runs[3], method="row") is None
        assert await ocean.call_clog(clog_id="ferry", session_id="s", method="crossings") == committed

        for run in runs:
            await ocean.advance(run_id=run, budget_ms=LAPSE_MS)
        assert [(await ocean.result(run))["cargo"] for run in runs] == [1] * 6
        assert await ocean.call_clog(clog_id="ferry", session_id="s", method="crossings") == 6


@pytest.mark.parametrize("point", [WORKED, COMMITTING, "after the commit"])
async def test_a_direct_call_whose_process_is_killed_happens_once_when_it_is_repeated(
    point: str, db: Place, history: Path, start: Start
) -> None:
    async with survivor(db) as (ocean, _):
        run = (await ocean.create_run(session_id="s", clog_id="ferry")).run_id
        victim = start("call", db, point, run)
        assert victim.read_line() == point
        victim.kill()
        is_committed = point == "after the commit"
        row = await ocean.call_clog(run_id=run, method="row")
        assert row == ({"cargo": 5, "paid_by": []} if is_committed else None)
        assert len(of_type(await log_of(ocean, run), "loaded")) == is_committed

        answer = await ocean.call_clog(run_id=run, method="load", payload={"cargo": 5}, request_key="load-once")

        assert (answer["by"] == victim.pid) == is_committed, "the stored result, or a call by this process"
        assert (await ocean.call_clog(run_id=run, method="row"))["cargo"] == 5
        assert len(noted(history, "load")) == (1 if is_committed else 2)
        events = await log_of(ocean, run)
        assert len(of_type(events, "loaded")) == len(of_type(events, "call.committed")) == 1
        info = await ocean.get_run(run)
        assert info is not None
        assert (info.status, info.attempt, info.locked_by) == (RunStatus.IDLE, 0, None), "a call holds no run"
