"""Step results are stored, streamed events stay; both are fenced by the tick's lock."""

from typing import Any

import anyio
import pytest

from ocean import ClogError, Continue, Done, LockLost, Ok, Outcome, Retry, Tick
from tests.lifecycle.acting import LOCK_MS, Script, log, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_step_s_result_is_remembered_over_retries_of_its_tick() -> None:
    keys: list[str] = []

    async def charge(key: str) -> dict[str, int]:
        keys.append(key)
        return {"receipt": len(keys)}

    async def act(tick: Tick) -> Outcome:
        receipt = await tick.step("charge", charge)
        return Retry("later") if tick.call_number < 3 else Done(receipt)

    async with stage(Script(act)) as w:
        run_id = await start(w)
        for _ in range(3):
            await w.drain()
            w.clock.advance(10_000)
        assert (await look(w, run_id)).output == {"receipt": 1}
        assert keys == [f"{run_id}:1:c/charge"]


async def test_a_step_that_fails_is_tried_again_under_the_same_key() -> None:
    keys: list[str] = []

    def flaky(key: str) -> str:
        keys.append(key)
        if len(keys) == 1:
            raise OSError("line down")
        return "through"

    async def act(tick: Tick) -> Outcome:
        return Done(await tick.step("send", flaky))

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        assert (await look(w, run_id)).output == "through"
        assert len(keys) == 2
        assert len(set(keys)) == 1


@pytest.mark.parametrize(("scope", "calls"), [("tick", 3), ("run", 1)])
async def test_a_step_lasts_as_long_as_its_scope(scope: Any, calls: int) -> None:
    done: list[str] = []

    def effect(key: str) -> int:
        done.append(key)
        return len(done)

    async def act(tick: Tick) -> Outcome:
        result = await tick.step("effect", effect, scope=scope)
        return Continue() if tick.number < 3 else Done(result)

    async with stage(Script(act)) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == calls
        assert len(set(done)) == len(done) == calls


async def test_a_step_name_used_twice_in_one_call_is_an_error() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.step("x", lambda key: 1)
        await tick.step("x", lambda key: 2, scope="run")
        await tick.step("x", lambda key: 3)
        return Ok()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "step_name_used"


async def test_a_direct_call_has_neither_steps_nor_streams() -> None:
    script = Script()

    @script.method
    async def odd(tick: Tick, payload: Any) -> None:
        if payload == "step":
            await tick.step("x", lambda key: 1)
        await tick.stream("x")

    async with stage(script) as w:
        run_id = await start(w)
        for payload in ("step", "stream"):
            with pytest.raises(ClogError, match="needs a tick"):
                await w.ocean.call_clog(run_id=run_id, method="odd", payload=payload)


async def test_streamed_events_stay_and_carry_the_number_of_their_call() -> None:
    async def stream_events(tick: Tick) -> Outcome:
        await tick.stream("token", tick.call_number)
        return Retry("cut off") if tick.call_number == 1 else Ok()

    async with stage(Script(stream_events)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        call_events = [(event.type, event.tick, event.call) for event in await log(w, run_id) if event.call]
        assert call_events == [
            ("token", 1, 1),
            ("run.retrying", 1, 1),
            ("tick.restarted", 1, 2),
            ("token", 1, 2),
            ("tick.committed", 1, 2),
        ]


async def test_a_handler_that_lost_its_lock_changes_nothing_any_more() -> None:
    """L2: rows, events, streams and steps of a zombie are refused, not only its outcome."""
    began, go_on = anyio.Event(), anyio.Event()
    refused: list[str] = []

    async def zombie(tick: Tick) -> Outcome:
        await tick.read(run=True)
        began.set()
        with anyio.CancelScope(shield=True):
            await go_on.wait()
            for use in (
                lambda: tick.stream("token", "zombie"),
                lambda: tick.step("effect", lambda key: "zombie"),
                lambda: tick.stream("token", "zombie"),
                lambda: tick.write(run="zombie"),
                lambda: tick.emit("said", "zombie"),
            ):
                try:
                    await use()
                except LockLost:
                    refused.append("lost")
        return Done("zombie")

    script = Script(zombie, Done("heir"))
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            w.clock.jump(LOCK_MS)
            successor = await w.instance([script])
            await successor.advance()
            go_on.set()
        assert (await look(w, run_id)).output == "heir"
        assert "zombie" not in str(await log(w, run_id))
        assert refused[:2] == ["lost", "lost"], "what is written at once is refused by the database"


async def test_a_tool_used_after_the_tick_is_over_is_refused() -> None:
    kept: list[Tick] = []

    async def keep(tick: Tick) -> Outcome:
        kept.append(tick)
        return Ok()

    async with stage(Script(keep)) as w:
        await start(w)
        await w.drain()
        with pytest.raises(ClogError, match="this tick is over"):
            await kept[0].emit("late")


async def test_a_step_that_does_not_read_first_still_keeps_the_first_result() -> None:
    done: list[str] = []

    def effect(key: str) -> int:
        done.append(key)
        return len(done)

    async def act(tick: Tick) -> Outcome:
        result = await tick.step("effect", effect, scope="run", look=False)
        return Done(result) if tick.number == 2 else Continue()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == 1
        assert len(done) == 2
