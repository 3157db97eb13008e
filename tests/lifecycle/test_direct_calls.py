"""Direct calls: a result within the request, guarded by row versions, without the run's lock."""

from typing import Any

import anyio
import pytest

from ocean import (
    Caller,
    CallRefused,
    Clog,
    Conflict,
    Done,
    InvalidValue,
    OceanError,
    Ok,
    Outcome,
    Refuse,
    RunEnded,
    Tick,
    UnknownClog,
    UnknownMethod,
    Wait,
)
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


def book(*acts: Any, **options: Any) -> Script:
    """A clog whose methods read, write, refuse and fail."""
    script = Script(*acts, **options)

    @script.method
    async def value(tick: Tick, payload: Any) -> Any:
        return (await tick.read(run=True)).run

    @script.method
    async def put(tick: Tick, payload: Any) -> str:
        await tick.read(run=True)
        await tick.write(run=payload)
        await tick.emit("put", payload)
        return "stored"

    @script.method
    async def refuse(tick: Tick, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run="tried")
        await tick.emit("tried")
        raise Refuse("over the limit", code="limit", http_status=422, details={"left": 0})

    @script.method
    async def explode(tick: Tick, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run="half")
        await tick.emit("half")
        raise ZeroDivisionError("no")

    @script.method
    async def approve(tick: Tick, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run="approved")
        await tick.signal(tick.run_id, "approved")

    return script


async def test_a_call_that_only_reads_commits_nothing() -> None:
    async with stage(book()) as w:
        run_id = await start_idle(w)
        before = await dump(w)
        assert await w.ocean.call_clog(run_id=run_id, method="value") is None
        assert await dump(w) == before


async def test_a_call_writes_rows_and_events_and_leaves_the_status_alone() -> None:
    async with stage(book(Wait(for_ms=1_000))) as w:
        run_id = await start(w)
        await w.drain()
        before = await look(w, run_id)
        caller = Caller("ada", ("admin",))
        assert await w.ocean.call_clog(run_id=run_id, method="put", payload={"n": 1}, caller=caller) == "stored"
        assert await w.ocean.call_clog(run_id=run_id, method="value") == {"n": 1}
        after = await look(w, run_id)
        assert (after.status, after.wake_at, after.tick) == (before.status, before.wake_at, before.tick)
        put, committed = (await log(w, run_id))[-2:]
        assert (put.type, put.actor, put.tick) == ("put", "ada", None)
        assert (committed.type, committed.payload) == ("call.committed", {"method": "put", "status": "waiting"})


async def test_approve_is_atomic_with_waking_the_run() -> None:
    script = book(Wait(for_ms=1_000_000), Done("went on"))
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.call_clog(run_id=run_id, method="approve")
        assert (await look(w, run_id)).status == "pending"
        await w.drain()
        assert (script.bodies[-1], (await look(w, run_id)).output) == ("approved", "went on")


async def test_a_call_during_a_live_tick_loses_neither_s_writes() -> None:
    """D10, R1: the call takes no lock; the tick that read the row before is called again."""
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        began.set()
        await go_on.wait()
        await tick.write(run=[rows.run, "tick"])
        return Ok()

    script = book(slow)
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await began.wait()
            await w.ocean.call_clog(run_id=run_id, method="put", payload="call")
            go_on.set()
        assert await w.ocean.call_clog(run_id=run_id, method="value") == ["call", "tick"]
        assert len(script.seen) == 2


async def test_a_call_that_keeps_losing_its_row_gives_up_with_a_conflict() -> None:
    script = book()
    calls: list[int] = []

    @script.method
    async def unlucky(tick: Tick, payload: Any) -> None:
        calls.append(len(calls))
        await tick.read(run=True)
        await w.ocean.call_clog(run_id=tick.run_id, method="put", payload=len(calls))
        await tick.write(run="mine")

    async with stage(script) as w:
        run_id = await start_idle(w)
        with pytest.raises(Conflict) as conflict:
            await w.ocean.call_clog(run_id=run_id, method="unlucky")
        assert (conflict.value.http_status, conflict.value.retryable, len(calls)) == (409, True, 5)
        assert await w.ocean.call_clog(run_id=run_id, method="value") == 5


async def test_a_guarded_row_is_checked_also_by_a_call_that_only_reads() -> None:
    script = book()
    calls: list[int] = []

    @script.method
    async def look_twice(tick: Tick, payload: Any) -> Any:
        calls.append(len(calls))
        rows = await tick.read(run=True, guard=True)
        if len(calls) == 1:
            await w.ocean.call_clog(run_id=tick.run_id, method="put", payload="moved")
        return rows.run

    async with stage(script) as w:
        run_id = await start_idle(w)
        assert await w.ocean.call_clog(run_id=run_id, method="look_twice") == "moved"
        assert len(calls) == 2


async def test_refuse_commits_and_returns_the_error() -> None:
    async with stage(book()) as w:
        run_id = await start_idle(w)
        with pytest.raises(CallRefused) as refusal:
            await w.ocean.call_clog(run_id=run_id, method="refuse")
        error = refusal.value
        assert (error.code, error.http_status, error.message, error.details) == (
            "limit",
            422,
            "over the limit",
            {"left": 0},
        )
        assert await w.ocean.call_clog(run_id=run_id, method="value") == "tried"
        assert len(await log(w, run_id, "tried")) == 1


async def test_a_method_that_raises_commits_nothing() -> None:
    async with stage(book()) as w:
        run_id = await start_idle(w)
        before = await dump(w)
        with pytest.raises(ZeroDivisionError):
            await w.ocean.call_clog(run_id=run_id, method="explode", request_key="k")
        assert await dump(w) == before


@pytest.mark.parametrize("method", ["put", "refuse", "approve"])
async def test_a_call_on_an_ended_run_may_only_read(method: str) -> None:
    async with stage(book(Done())) as w:
        run_id = await start_idle(w)
        await w.ocean.call_clog(run_id=run_id, method="put", payload="last")
        await w.ocean.signal(run_id)
        await w.drain()
        before = await dump(w)
        assert await w.ocean.call_clog(run_id=run_id, method="value") == "last"
        with pytest.raises(RunEnded):
            await w.ocean.call_clog(run_id=run_id, method=method)
        assert await dump(w) == before


async def test_a_call_on_a_clog_has_a_session_or_none_and_no_run() -> None:
    clog = Clog("book")

    @clog.method
    async def add(tick: Tick, payload: Any) -> Any:
        assert (tick.has_run, tick.reason, tick.number) == (False, "call", 0)
        rows = await tick.read(session=bool(tick.session_id), global_=True)
        await tick.write(global_=(rows.global_ or 0) + 1)
        await tick.emit("added")
        return [rows.session, rows.global_]

    @clog.method
    async def wrong(tick: Tick, payload: str) -> None:
        match payload:
            case "run":
                await tick.read(run=True)
            case "session":
                await tick.read(session=True)
            case "tick":
                await tick.read(tick=["a"])
            case "history":
                await tick.read(history=3)
            case "timer":
                await tick.set_timer("t", after_ms=1)
            case "attributes":
                await tick.set_attributes(a=1)
            case "child":
                await tick.create_run(clog_id="book", notify_parent=True)

    async with stage(clog) as w:
        assert await w.ocean.call_clog(clog_id="book", method="add") == [None, None]
        assert await w.ocean.call_clog(clog_id="book", session_id="s", method="add") == [None, 1]
        assert [event.session_id for event in await log(w, None, "added")] == [None, "s"]
        before = await dump(w)
        for payload in ("run", "session", "tick", "history", "timer", "attributes", "child"):
            with pytest.raises(InvalidValue):
                await w.ocean.call_clog(clog_id="book", method="wrong", payload=payload)
        assert await dump(w) == before


async def test_a_call_on_a_clog_can_create_a_run_in_its_session() -> None:
    script = Script(Done("made"))

    @script.method
    async def begin(tick: Tick, payload: Any) -> str:
        return await tick.create_run(clog_id="c", input=payload)

    async with stage(script) as w:
        run_id = await w.ocean.call_clog(clog_id="c", session_id="s9", method="begin", payload=1)
        run = await look(w, run_id)
        assert (run.session_id, run.parent_run_id, run.status) == ("s9", None, "pending")
        assert await w.ocean.result(run_id) == "made"


async def test_a_method_that_takes_too_long_is_stopped() -> None:
    clog = Clog("slow", tick_ms=50)
    began = anyio.Event()

    @clog.method
    async def forever(tick: Tick, payload: Any) -> None:
        await tick.emit("half")
        began.set()
        await anyio.Event().wait()

    async def call() -> None:
        try:
            await w.ocean.call_clog(clog_id="slow", method="forever")
        except OceanError as error:
            codes.append(error.code)

    codes: list[str] = []
    async with stage(clog) as w:
        before = await dump(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await began.wait()
            w.clock.advance(50)
        assert codes == ["call_timeout"]
        assert await dump(w) == before


async def test_wrong_names_are_refused() -> None:
    async with stage(book()) as w:
        run_id = await start_idle(w)
        with pytest.raises(UnknownMethod, match="did you mean 'value'"):
            await w.ocean.call_clog(run_id=run_id, method="valu")
        with pytest.raises(UnknownClog):
            await w.ocean.call_clog(clog_id="nobody", method="value")
