"""Handlers of every kind: plain functions, slow handlers, and handlers that may or may not use tools by name."""

from typing import Any

import anyio
import pytest

from ocean import Clog, Done, InvalidValue, Ok, Outcome, Tick
from ocean.testing import world
from tests.lifecycle.acting import Script, let_others_go_on, log, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_plain_function_runs_in_a_thread_and_blocks_on_its_tools() -> None:
    clog = Clog("c")

    @clog.on_advance
    def advance(tick: Tick) -> Outcome:
        rows = tick.block(tick.read(run=True))
        tick.block(tick.write(run=(rows.run or 0) + 1))
        tick.block(tick.emit("counted"))
        return Done(tick.block(tick.call("c", "double", 21)))

    @clog.method
    def double(tick: Tick, payload: int) -> int:
        return payload * 2

    async with stage(clog) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == 42
        assert len(await log(w, run_id, "counted")) == 1
        assert await w.ocean.call_clog(run_id=run_id, method="double", payload=1) == 2


async def test_a_plain_function_that_raises_is_a_failed_attempt() -> None:
    clog = Clog("c")

    @clog.on_advance
    def advance(tick: Tick) -> Outcome:
        tick.block(tick.emit("half"))
        raise RuntimeError("no")

    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.attempt, run.error["message"]) == (1, "RuntimeError: no")


async def test_a_handler_that_overruns_its_time_limit_fails_the_attempt() -> None:
    """O7: a tick is bounded."""
    began = anyio.Event()

    async def stuck(tick: Tick) -> Outcome:
        await tick.emit("half")
        assert tick.deadline == tick.now + 5_000
        began.set()
        await anyio.Event().wait()
        return Ok()

    async with stage(Script(stuck, tick_ms=5_000)) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            w.clock.advance(4_999)
            await let_others_go_on(w)
            assert (await look(w, run_id)).status == "active"
            w.clock.advance(1)
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.attempt, run.error["code"]) == ("pending", 1, "tick_timeout")
        assert await log(w, run_id, "half") == []


async def test_an_error_that_is_not_json_does_not_keep_the_run_from_failing() -> None:
    class Odd(Exception):
        code = "odd"
        details = {"self": object()}

    async def act(tick: Tick) -> Outcome:
        raise Odd("bad \x00 \ud800 text")

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.attempt, run.error["code"]) == (1, "odd")
        assert "\x00" not in run.error["message"]


async def test_tools_by_name_do_what_the_typed_ones_do() -> None:
    child = Script(clog_id="child")

    async def act(tick: Tick) -> Outcome:
        use = tick.tools.invoke
        rows = await use("ocean.storage.read_scoped", {"run": True, "session": True, "global": True})
        assert (rows["run"], rows["has_run"], rows["global"]) == (None, False, None)
        await use("ocean.storage.write_scoped", {"run": {"n": 1}, "global": [1], "clear": ["session"]})
        await use("ocean.events.emit", {"type": "said", "payload": 1})
        await use("ocean.events.stream", {"type": "token"})
        new = await use("ocean.runs.create", {"clog_id": "child", "input": "hello"})
        await use("ocean.runs.signal", {"run_id": new, "input": "again"})
        await use("ocean.timers.set", {"name": "t", "after_ms": 10})
        await use("ocean.timers.cancel", {"name": "t"})
        await use("ocean.runs.set_attributes", {"attributes": {"colour": "red"}})
        await use("ocean.runs.release_dedupe_key")
        listed = await use("ocean.runs.list", {"clog_id": "c", "limit": 5})
        doubled = await use("ocean.clog.call", {"clog_id": "c", "method": "double", "payload": 4})
        return Done([len(listed["runs"]), doubled])

    script = Script(act)

    @script.method
    async def double(tick: Tick, payload: int) -> int:
        return payload * 2

    async with stage(script, child) as w:
        run_id = await start(w, dedupe_key="k")
        await w.drain()
        run = await look(w, run_id)
        assert (run.output, run.attributes, run.dedupe_key) == ([1, 8], {"colour": "red"}, None)
        assert child.bodies == ["hello", "again"]
        assert {"said", "token"} <= {event.type for event in await log(w, run_id)}


@pytest.mark.parametrize(
    ("name", "input", "code"),
    [
        ("ocean.events.emti", {}, "unknown_tool"),
        ("ocean.steps.run", {}, "unknown_tool"),
        ("ocean.events.emit", {}, "invalid_value"),
        ("ocean.events.emit", {"type": 5}, "invalid_value"),
        ("ocean.events.emit", {"type": "x", "scope": "run"}, "invalid_value"),
        ("ocean.runs.list", {"status": "sleeping"}, "invalid_value"),
        ("ocean.http.fetch", {"url": "https://example.com"}, "tool_not_allowed"),
    ],
)
async def test_a_tool_used_wrongly_raises_a_precise_error(name: str, input: Any, code: str) -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.tools.invoke(name, input)
        return Ok()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == code


async def test_a_clog_with_a_list_of_tools_has_no_others() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.emit("allowed")
        await tick.read(run=True)
        return Ok()

    async with stage(Script(act, tools=["ocean.events.emit"])) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "tool_not_allowed"
        assert "ocean.storage.read_scoped" in error["message"]


async def test_every_tool_has_a_schema_that_names_its_input() -> None:
    async with stage(Script()) as w:
        schemas = {tool.name: tool.json_schema() for tool in w.ocean.list_tools()}
        assert "type" in schemas["ocean.events.emit"]["properties"]
        assert "global" in schemas["ocean.storage.read_scoped"]["properties"]


async def test_two_clogs_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidValue, match="clog ids must be unique within an instance, got 'c' twice"):
        async with world(clogs=[Clog("c"), Clog("c")]):
            pass


async def test_a_tick_reports_its_elapsed_time() -> None:
    clocks: list[Any] = []

    async def act(tick: Tick) -> Outcome:
        before = tick.elapsed_ms
        clocks[0].advance(250)
        return Done([before, tick.elapsed_ms])

    async with stage(Script(act)) as w:
        clocks.append(w.clock)
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == [0, 250]
