"""A holder that lost its run changes nothing, however late it commits."""

import sqlite3
import threading
from pathlib import Path

import anyio
import pytest

from ocean import Clog, Done, LockLost, Ocean, Ok, RunStatus, Tick, TickResult
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import world
from tests.invariants import check

pytestmark = pytest.mark.anyio


class Gate:
    """A handler that signals when it has begun and continues when released."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.may_go = anyio.Event()

    async def pass_through(self) -> None:
        self.entered.set()
        await self.may_go.wait()


def a_writer(name: str, gate: Gate | None = None) -> tuple[Clog, list[str]]:
    """A clog whose first call waits at the gate between its work and its commit."""
    clog, errors = Clog("writer", version=name), []

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        await tick.read(run=True)
        await tick.write(run={"by": name})
        await tick.emit("wrote", {"by": name})
        if gate is not None:
            try:
                await gate.pass_through()
                stream, step = (lambda: tick.stream("late")), (lambda: tick.step("late", lambda key: 1))
                # The first write is still in flight when the handler continues; the calls after it get its refusal.
                for tool in (stream, step, stream):
                    try:
                        await tool()
                    except LockLost as error:
                        errors.append(error.code)
            except anyio.get_cancelled_exc_class():
                errors.append("cancelled")
                raise
        return Done({"by": name})

    return clog, errors


async def tables(store: SqliteStore) -> dict[str, list[tuple[object, ...]]]:
    names = [
        "runs",
        "ocean_run_details",
        "ocean_inbox",
        "ocean_ticks",
        "ocean_steps",
        "ocean_storage_run",
        "events",
    ]
    return await store.database.read(
        lambda db: {name: list(map(tuple, db.execute(f"SELECT * FROM {name}"))) for name in names}
    )


async def test_a_stale_owner_cannot_commit_stream_or_step_after_it_was_taken_over() -> None:
    """D7, L1, L2: a pause longer than the lock, then a commit under the old epoch."""
    gate = Gate()
    zombie_clog, errors = a_writer("zombie", gate)
    heir_clog, _ = a_writer("heir")
    async with world([zombie_clog]) as w:
        assert isinstance(w.store, SqliteStore)
        run = await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        heir = await w.instance([heir_clog])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await gate.entered.wait()
            w.clock.jump(30_001)
            await heir.advance()
            after = await tables(w.store)
            gate.may_go.set()
        assert await tables(w.store) == after
        assert errors == ["lock_lost", "lock_lost"]
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.output, info.attempt) == (RunStatus.DONE, {"by": "heir"}, 0)
        await check(w)


async def test_a_stale_owner_cannot_commit_while_its_successor_is_at_work() -> None:
    """The run is active again, under a newer epoch: only the epoch distinguishes the two holders."""
    zombie_gate, heir_gate = Gate(), Gate()
    zombie_clog, errors = a_writer("zombie", zombie_gate)
    heir_clog, _ = a_writer("heir", heir_gate)
    async with world([zombie_clog]) as w:
        assert isinstance(w.store, SqliteStore)
        run = await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        heir = await w.instance([heir_clog])
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as zombie:
                zombie.start_soon(w.drain)
                await zombie_gate.entered.wait()
                w.clock.jump(30_001)
                tasks.start_soon(heir.advance)
                await heir_gate.entered.wait()
                before = await tables(w.store)
                zombie_gate.may_go.set()
            assert await tables(w.store) == before
            assert errors == ["lock_lost", "lock_lost"]
            heir_gate.may_go.set()
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.output) == (RunStatus.DONE, {"by": "heir"})
        [tick] = await w.ocean.list_ticks(run.run_id)
        assert (tick.calls, tick.epoch, tick.version) == (2, 2, "heir")
        await check(w)


async def test_a_handler_that_outlives_its_lock_but_was_not_replaced_still_commits() -> None:
    gate = Gate()
    clog, _ = a_writer("slow", gate)
    async with world([clog]) as w, anyio.create_task_group() as tasks:
        run = await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        tasks.start_soon(w.drain)
        await gate.entered.wait()
        w.clock.jump(60_000)
        gate.may_go.set()
        assert await w.ocean.result(run.run_id) == {"by": "slow"}


async def test_a_long_handler_keeps_its_run_because_the_lock_is_renewed() -> None:
    """L3: a handler that works for ten lock times is called once."""
    gate = Gate()
    clog, _ = a_writer("slow", gate)
    rival_clog, _ = a_writer("rival")
    async with world([clog], lock_ms=9_000) as w, anyio.create_task_group() as tasks:
        run = await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        rival = await w.instance([rival_clog], lock_ms=9_000)
        tasks.start_soon(w.drain)
        await gate.entered.wait()
        for _ in range(10):
            w.clock.advance(9_000)
            assert (await rival.advance()).outcomes == ()
        explanation = await rival.explain(run.run_id)
        assert [(hold.code, hold.holder) for hold in explanation.holds] == [("locked", w.ocean.instance_id)]
        gate.may_go.set()
        assert await w.ocean.result(run.run_id) == {"by": "slow"}
        assert [tick.calls for tick in await w.ocean.list_ticks(run.run_id)] == [1]


async def test_a_cancelled_run_stops_its_handler_at_the_next_beat() -> None:
    gate = Gate()
    clog, errors = a_writer("slow", gate)
    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        results: list[TickResult] = []
        async with anyio.create_task_group() as tasks:

            async def advance() -> None:
                results.extend((await w.ocean.advance()).outcomes)

            tasks.start_soon(advance)
            await gate.entered.wait()
            await w.ocean.cancel_run(run.run_id)
            w.clock.advance(10_000)
        assert [result.outcome for result in results] == ["lock_lost"]
        assert errors == ["cancelled"]
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert info.status is RunStatus.FAILED
        assert info.error == {"code": "cancelled", "message": "cancelled", "details": None}
        await check(w)


async def test_a_handler_that_blocks_the_event_loop_cannot_starve_its_own_renewal(tmp_path: Path) -> None:
    """Renewal runs in a thread: real time, a real file, and a handler that blocks until the lock was renewed."""
    path = tmp_path / "ocean.db"
    clog = Clog("blocker", lock_ms=300)
    renewals: list[int] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        done = threading.Event()

        def watch() -> None:
            db = sqlite3.connect(path)
            while len(set(renewals)) < 3:
                renewals.append(db.execute("SELECT lock_expires_at FROM runs").fetchone()[0])
            db.close()
            done.set()

        threading.Thread(target=watch).start()
        assert done.wait(20), "the lock was not renewed while the loop was blocked"
        return Ok()

    async with Ocean.open(f"sqlite:///{path}", clogs=[clog]) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="blocker", input=1)
        result = await ocean.advance()
        assert [(each.run_id, each.outcome) for each in result.outcomes] == [(run.run_id, "ok")]
    assert sorted(set(renewals)) == list(dict.fromkeys(renewals))


async def test_renewals_that_fail_until_the_lock_time_is_over_stop_the_handler() -> None:
    """Only confirmed renewals extend the local deadline."""
    gate = Gate()
    clog, errors = a_writer("cut off", gate)
    async with world([clog], lock_ms=9_000) as w:
        await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        results: list[TickResult] = []
        async with anyio.create_task_group() as tasks:

            async def advance() -> None:
                results.extend((await w.ocean.advance()).outcomes)

            tasks.start_soon(advance)
            await gate.entered.wait()
            assert isinstance(w.store, SqliteStore)
            await w.store.database.on_writer(lambda db: db.execute("ALTER TABLE runs RENAME TO runs_away"))
            w.clock.advance(6_000)
            await anyio.wait_all_tasks_blocked()
            assert errors == []
            w.clock.advance(3_000)
            await w.store.database.on_writer(lambda db: db.execute("ALTER TABLE runs_away RENAME TO runs"))
        assert errors == ["cancelled"]
        assert [result.outcome for result in results] == ["lock_lost"]
