"""Regression tests for defects found in reviews of the kernel."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from ocean import Clog, ClogError, DedupeKeyReused, Done, InvalidValue, Ok, Outcome, Retry, RunInfo, Tick, Wait
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio

T = TypeVar("T")

PATIENCE_S = 20


async def within(awaitable: Awaitable[T]) -> T:
    """Await with the event loop's time limit: a write that hangs is shielded from anyio's."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


def message_of(run: RunInfo) -> str:
    assert run.error is not None
    return str(run.error["message"])


def forgetful(*acts: Any) -> Script:
    """A clog with a method that deletes the first tick of its run."""
    script = Script(*acts)

    @script.method
    async def forget(tick: Tick, payload: Any) -> None:
        await tick.read(ticks=[1])
        await tick.write(delete_ticks=[1])

    return script


async def test_a_direct_call_cannot_delete_a_tick_that_is_to_be_tried_again() -> None:
    """Without its row, neither the tick nor any run of the same claim could be called or committed."""
    script = forgetful(Retry("no"), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        before = await dump(w)
        with pytest.raises(ClogError, match=f"tick 1 of run {run_id} must be committed before it is deleted"):
            await within(w.ocean.call_clog(run_id=run_id, method="forget"))
        assert await dump(w) == before
        w.clock.advance(1_000)
        other = await start(w)
        await within(w.drain())
        assert [(await look(w, each)).status for each in (run_id, other)] == ["idle", "idle"]
        assert sorted((seen.number, seen.call) for seen in script.seen) == [(1, 1), (1, 1), (1, 2)]
        await within(w.ocean.call_clog(run_id=run_id, method="forget"))
        assert await w.ocean.list_ticks(run_id) == []


async def test_a_direct_call_cannot_delete_a_tick_at_work() -> None:
    async def act(tick: Tick) -> Outcome:
        with pytest.raises(ClogError, match="must be committed before it is deleted"):
            await w.ocean.call_clog(run_id=tick.run_id, method="forget")
        return Done("committed")

    async with stage(forgetful(act)) as w:
        run_id = await start(w)
        assert await within(w.ocean.result(run_id)) == "committed"
        assert [tick.outcome for tick in await w.ocean.list_ticks(run_id)] == ["done"]


async def by_its_tick(w: World) -> None:
    await w.ocean.signal("x", "go")
    await w.drain()


ENDS_OF_LIFE: dict[str, Callable[[World], Awaitable[object]]] = {
    "delete_run": lambda w: w.ocean.delete_run("x"),
    "delete_session": lambda w: w.ocean.delete_session("s"),
    "its own tick": by_its_tick,
}


@pytest.mark.parametrize("end", ENDS_OF_LIFE)
async def test_a_run_id_used_again_is_another_run_to_the_outside_world(end: str) -> None:
    """The second run with the id must not reuse the first one's idempotency keys, which identify its effects."""
    keys_seen: list[tuple[int, str, str, str]] = []

    async def create_child(tick: Tick) -> Outcome:
        if tick.input == "go":
            await tick.read(run=True)
            await tick.write(delete_runs=[tick.run_id])
            return Ok()
        step_key = await tick.step("pay", lambda key: key)
        child = await tick.create_run(clog_id="d", input=1)
        keys_seen.append((tick.number, tick.idempotency_key, step_key, child))
        return Ok()

    async with stage(Script(create_child), Script(clog_id="d")) as w:
        for _ in range(2):
            await start(w, run_id="x")
            await within(w.drain())
            assert (await look(w, "x")).status == "idle"
            assert (await look(w, keys_seen[-1][-1])).parent_run_id == "x"
            if len(keys_seen) == 1:
                await ENDS_OF_LIFE[end](w)
        first, second = keys_seen
        assert all(one != other for one, other in zip(first, second, strict=True))
        assert second[0] > first[0]
        events = await log(w, "x")
        assert [event.run_seq for event in events] == list(range(1, len(events) + 1))
        assert [event.type for event in events].count("run.created") == 2


async def test_a_run_deleted_during_a_tick_does_not_reuse_the_key_of_that_tick() -> None:
    """No event of that tick was committed, but its number must not be used again."""
    keys_seen: list[tuple[int, str]] = []

    async def act(tick: Tick) -> Outcome:
        keys_seen.append((tick.number, tick.idempotency_key))
        if len(keys_seen) == 1:
            await w.ocean.delete_run("x")
        return Ok()

    async with stage(Script(act)) as w:
        await start(w, run_id="x")
        assert [result.outcome for result in await within(w.drain())] == ["lock_lost"]
        await start(w, run_id="x")
        await within(w.drain())
        assert (await look(w, "x")).status == "idle"
        assert [number for number, _ in keys_seen] == [1, 2]
        assert keys_seen[0][1] == "x:1"
        assert keys_seen[1][1].startswith("x~")


async def test_a_nested_clog_can_delete_its_own_run() -> None:
    """A nested call has the rights of its own clog, not the caller's."""
    other = Script(clog_id="o")

    @other.method
    async def remove(tick: Tick, payload: Any) -> None:
        await tick.read(runs=[payload])
        await tick.write(delete_runs=[payload])

    async def act(tick: Tick) -> Outcome:
        await tick.call("o", "remove", other_id)
        return Done()

    async with stage(Script(act), other) as w:
        other_id = await start_idle(w, clog_id="o")
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).status == "done"
        assert await w.ocean.get_run(other_id) is None


@pytest.mark.parametrize(
    ("what", "refusal"),
    [
        ("run", "clog 'o' must not delete it"),
        ("ticks", "'o' cannot delete them"),
        ("session", "clog 'o' must not delete session"),
    ],
)
async def test_a_nested_clog_cannot_delete_what_is_its_caller_s(what: str, refusal: str) -> None:
    other = Clog("o")

    @other.method
    async def grab(tick: Tick, payload: Any) -> None:
        await tick.read(run=True, session=True, ticks=[1])
        match what:
            case "run":
                await tick.write(delete_runs=[tick.run_id])
            case "ticks":
                await tick.write(delete_ticks=[1])
            case _:
                await tick.write(delete_session=True)

    async def act(tick: Tick) -> Outcome:
        if tick.number == 2:
            await tick.call("o", "grab")
        return Ok()

    async with stage(Script(act), other) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == ("pending", 1)
        assert refusal in message_of(run)
        assert [tick.tick for tick in await w.ocean.list_ticks(run_id)] == [1, 2]
        assert [row[0] for row in (await dump(w))["ocean_sessions"]] == ["s"]


async def test_a_nested_clog_can_delete_a_session_of_its_own_runs() -> None:
    """A call on a clog has no run in the session that would prevent the deletion."""
    caller, other = Clog("c"), Script(clog_id="o")

    @caller.method
    async def ask(tick: Tick, payload: Any) -> None:
        await tick.call("o", "clear")

    @other.method
    async def clear(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(delete_session=True)

    async with stage(caller, other) as w:
        run_id = await start_idle(w, clog_id="o")
        await w.ocean.call_clog(clog_id="c", session_id="s", method="ask")
        assert await w.ocean.get_run(run_id) is None


async def test_one_dedupe_key_twice_in_a_tick_is_one_run() -> None:
    ids: list[str] = []

    async def act(tick: Tick) -> Outcome:
        for _ in range(2):
            ids.append(await tick.create_run(clog_id="d", input=1, dedupe_key="k"))
        with pytest.raises(DedupeKeyReused, match=f"held by run {ids[0]}"):
            await tick.create_run(clog_id="d", input=2, dedupe_key="k")
        ids.append(await tick.create_run(clog_id="d", input=2, dedupe_key="k", session_id="another"))
        return Ok()

    async with stage(Script(act), Script(clog_id="d")) as w:
        run_id = await start(w)
        await w.drain()
        assert ids[0] == ids[1] != ids[2]
        assert (await look(w, run_id)).status == "idle"
        assert {run.run_id for run in (await w.ocean.list_runs(clog_id="d")).runs} == set(ids)


async def test_runs_of_a_clog_without_a_handler_are_not_due_here() -> None:
    """Otherwise a caller that pokes until nothing is due would never stop."""
    async with stage(Clog("c")) as w:
        await start(w)
        w.clock.advance(10)
        advanced = await w.ocean.advance()
        assert (advanced.due_now, advanced.oldest_due_age_ms, advanced.unclaimable) == (0, 0, 1)
        assert await w.drain() == []


async def test_one_sweep_deletes_a_finished_family_leaves_first() -> None:
    async def create_child(tick: Tick) -> Outcome:
        if tick.input:
            await tick.create_run(clog_id="c", input=tick.input - 1)
        return Done()

    async with stage(Script(create_child)) as w:
        await start(w, 3)
        await w.drain()
        w.clock.advance(10)
        swept = await within(w.ocean.sweep(runs_older_than_ms=0))
        assert (swept.runs, swept.more) == (4, False)
        assert (await w.ocean.count_runs()).count == 0


async def test_a_tick_that_deleted_its_own_run_has_advanced() -> None:
    async def vanish(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(delete_runs=[tick.run_id])
        return Ok()

    async with stage(Script(vanish)) as w:
        await start(w)
        advanced = await w.ocean.advance()
        assert (advanced.advanced, [result.status for result in advanced.outcomes]) == (1, [None])


class Count(BaseModel):
    n: int
    unit: str = "sheep"


WRITES: dict[str, Callable[[Any], Any]] = {"value": lambda new: new, "function": lambda new: lambda old: new}


@pytest.mark.parametrize("kind", WRITES)
async def test_a_row_that_does_not_fit_the_state_model_fails_the_attempt_that_wrote_it(kind: str) -> None:
    """Once stored, it would fail every read of the row."""
    write = WRITES[kind]

    async def unfit(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run=write({"n": "many"}))
        await tick.emit("counted")
        return Ok()

    async def fit(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run=write({"n": 1}))
        return Done()

    async with stage(Script(unfit, fit, run_state=Count)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == ("pending", 1)
        assert "the run row of clog 'c' must be a Count: 1 errors, first at n" in message_of(run)
        assert (await dump(w))["ocean_storage_run"] == []
        w.clock.advance(1_000)
        await w.drain()
        assert (await types(w, run_id))[1:] == ["run.retrying", "tick.restarted", "tick.committed", "run.done"]
        assert [row[2] for row in (await dump(w))["ocean_storage_run"]] == ['{"n":1,"unit":"sheep"}']


@pytest.mark.parametrize("kind", WRITES)
async def test_a_direct_call_that_does_not_fit_the_state_model_is_refused(kind: str) -> None:
    script = Script(session_state=Count)

    @script.method
    async def put(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session=WRITES[kind](payload))

    async with stage(script) as w:
        before = await dump(w)
        with pytest.raises(InvalidValue, match="the session row of clog 'c' must be a Count"):
            await w.ocean.call_clog(clog_id="c", session_id="s", method="put", payload={"n": "many"})
        assert await dump(w) == before


async def test_the_result_of_a_parent_is_reached_by_finishing_its_children() -> None:
    """In a single process there is no other poke: the waiting caller pokes what it waits for."""

    async def add_up(tick: Tick) -> Outcome:
        if tick.child is not None:
            return Done(tick.child.output + 1)
        if tick.input == 0:
            return Done(0)
        await tick.create_run(clog_id="c", input=tick.input - 1, notify_parent=True)
        return Wait(for_ms=3_600_000)

    async with stage(Script(add_up)) as w:
        run_id = await start(w, 3)
        with anyio.fail_after(PATIENCE_S):
            assert await w.ocean.result(run_id) == 3


def unbindable(db: Transaction) -> None:
    """Raise the driver's own error, without an SQLite code."""
    with pytest.raises(sqlite3.Error) as refusal:
        db.execute("SELECT ?", ({},))
    assert not hasattr(refusal.value, "sqlite_errorcode")
    raise refusal.value


def exits(db: Transaction) -> None:
    raise SystemExit(3)


BROKEN: dict[str, tuple[Callable[[Transaction], None], type[BaseException]]] = {
    "an error without a code": (unbindable, sqlite3.Error),
    "an exit": (exits, SystemExit),
}


def writes(name: str) -> Callable[[Transaction], None]:
    def unit(db: Transaction) -> None:
        db.execute("INSERT INTO ocean_sessions VALUES (?, 1)", (name,))

    return unit


async def outcome_of(awaitable: Awaitable[None]) -> BaseException | None:
    try:
        await awaitable
    except (Exception, SystemExit) as error:
        return error
    return None


@pytest.mark.parametrize("how", BROKEN)
async def test_a_unit_that_breaks_fails_alone_and_all_callers_get_a_result(how: str) -> None:
    breaks, error = BROKEN[how]
    entered, let_go = threading.Event(), threading.Event()

    def hold(db: Transaction) -> None:
        entered.set()
        let_go.wait(PATIENCE_S)

    async with stage() as w:
        assert isinstance(w.store, SqliteStore)
        database = w.store.database
        holding = asyncio.ensure_future(database.write(hold))
        await anyio.to_thread.run_sync(entered.wait, PATIENCE_S)
        units = [writes("before"), breaks, writes("after")]
        queued = [asyncio.ensure_future(outcome_of(database.write(unit))) for unit in units]
        await anyio.lowlevel.checkpoint()
        let_go.set()
        await within(holding)
        before, broken, after = await within(asyncio.gather(*queued))
        assert (before, after) == (None, None)
        assert isinstance(broken, error)
        await within(database.write(writes("later")))
        assert sorted(row[0] for row in (await dump(w))["ocean_sessions"]) == ["after", "before", "later"]


@pytest.mark.parametrize("how", BROKEN)
async def test_a_thread_that_waits_for_a_broken_unit_gets_its_error(how: str) -> None:
    """The thread that renews locks: if it hung, every lock of the instance would expire."""
    breaks, error = BROKEN[how]
    raised: list[BaseException] = []
    async with stage() as w:
        assert isinstance(w.store, SqliteStore)
        database = w.store.database

        def renew() -> None:
            with pytest.raises(error) as refusal:
                database.write_blocking(breaks)
            raised.append(refusal.value)

        # A daemon thread does not prevent the tests from ending if it hangs.
        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert len(raised) == 1
