"""A tick can see and wait for inputs that came since it began, without taking them."""

from typing import Any

import anyio
import pytest

from ocean import Clog, Done, Input, Ok, Outcome, Tick, ToolNotAllowed
from ocean.testing import World
from tests.lifecycle.acting import Script, stage

pytestmark = pytest.mark.anyio

PATIENCE_S = 30


def bodies(inputs: list[Input]) -> list[Any]:
    return [each.body for each in inputs]


async def test_a_tick_sees_pending_inputs_in_the_order_of_their_delivery() -> None:
    async def look(tick: Tick) -> Outcome:
        ocean = w.ocean
        assert await tick.pending() == []
        await ocean.signal(tick.run_id, "one", signal_id="first")
        await ocean.signal(tick.run_id, "later", deliver_at=tick.now + 1_000)
        await ocean.signal(tick.run_id, "two")
        found = await tick.pending()
        assert [(each.kind, each.body, each.signal_id) for each in found] == [
            ("signal", "one", "first"),
            ("signal", "two", None),
        ]
        w.clock.advance(1_000)
        assert bodies(await tick.pending()) == ["one", "two", "later"]
        assert bodies(await tick.pending(limit=1)) == ["one"]
        return Ok()

    script = Script(look, Ok())
    async with stage(script) as w:
        await w.ocean.create_run(session_id="s", clog_id="c", input="zero")
        await w.drain()
        assert script.bodies == ["zero", "one", "two", "later"]


async def test_a_retried_tick_does_not_see_its_own_inputs_as_pending() -> None:
    async def look(tick: Tick) -> Outcome:
        assert bodies(await tick.pending()) == (["new"] if tick.call_number == 2 else [])
        if tick.call_number == 1:
            raise ConnectionError("once")
        return Done()

    async with stage(Script(look)) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input="zero")
        await w.drain()
        await w.ocean.signal(run.run_id, "new")
        await w.wait(1_000)
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.attempt) == ("done", 0)


async def test_waiting_for_a_signal_ends_when_it_comes_and_no_timer_ends_it() -> None:
    waiting = anyio.Event()
    seen: list[Any] = []

    async def wait(tick: Tick) -> Outcome:
        if tick.reason == "created":
            await tick.set_timer("bell", after_ms=10)
            return Ok()
        if tick.input == "begin":
            w.clock.advance(20)
            assert [each.timer for each in await tick.pending()] == ["bell"]
            waiting.set()
            seen.append((await tick.next_signal()).body)
        return Ok()

    script = Script(wait)
    async with stage(script) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input="zero")
        await w.drain()
        await w.ocean.signal(run.run_id, "begin")
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.drain)
                await waiting.wait()
                await send_more(w, run.run_id)
        assert seen == ["stop"]
        assert script.bodies == ["zero", "begin", None, "stop"]


async def send_more(w: World, run_id: str) -> None:
    # The commit of another run does not end the wait.
    await w.ocean.create_run(session_id="s", clog_id="c", run_id="bystander")
    await w.ocean.signal(run_id, "stop")


async def test_reading_the_inbox_is_a_tool_that_a_clog_may_lack() -> None:
    clog = Clog("c", tools=["ocean.events.emit"])

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        for look in (tick.pending, tick.next_signal):
            with pytest.raises(ToolNotAllowed, match=r"ocean\.inbox\.pending"):
                await look()
        return Done()

    async with stage(clog) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain()
        assert await w.ocean.result(run.run_id) is None


async def test_a_tool_by_its_name_returns_json() -> None:
    async def look(tick: Tick) -> Outcome:
        await w.ocean.signal(tick.run_id, {"n": 1})
        return Done(await tick.tools.invoke("ocean.inbox.pending", {"limit": 1}))

    async with stage(Script(look)) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain()
        [found] = await w.ocean.result(run.run_id)
        assert (found["kind"], found["body"], found["consumed_tick"]) == ("signal", {"n": 1}, None)
