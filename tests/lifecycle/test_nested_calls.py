"""Calls between clogs within one tick: one ledger per clog, one commit, no effects of a call that raised."""

from typing import Any

import pytest

from ocean import Clog, Done, OceanError, Ok, Outcome, Refuse, Tick
from tests.lifecycle.acting import Script, dump, log, look, stage, start, types

pytestmark = pytest.mark.anyio


async def test_a_nested_call_has_its_own_rows_and_shares_the_commit() -> None:
    other = Clog("other")

    @other.method
    async def note(tick: Tick, payload: Any) -> str:
        rows = await tick.read(run=True)
        await tick.write(run=[*(rows.run or []), payload])
        await tick.emit("noted", payload)
        return f"{tick.clog_id} on {tick.run_id}"

    async def act(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run="mine")
        return Done(await tick.call("other", "note", {"n": 1}))

    async with stage(Script(act), other) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == f"other on {run_id}"
        assert sorted(row[1:3] for row in (await dump(w))["ocean_storage_run"]) == [
            ("c", '"mine"'),
            ("other", '[{"n":1}]'),
        ]
        (noted,) = await log(w, run_id, "noted")
        assert (noted.clog_id, noted.tick) == ("other", 1)


@pytest.mark.parametrize("route", ["self", "through another"])
async def test_calling_oneself_gives_no_new_budget(route: str) -> None:
    """R2: a self-call and A→B→A share the one read and the one write of the (tick, clog) pair."""
    other = Clog("other")

    @other.method
    async def back(tick: Tick, payload: Any) -> Any:
        return await tick.call("c", "inner")

    async def act(tick: Tick) -> Outcome:
        await tick.read(run=True, session=True)
        codes: list[str] = []
        inner_codes = await (tick.call("c", "inner") if route == "self" else tick.call("other", "back"))
        try:
            await tick.write(session="second write")
        except OceanError as error:
            codes.append(error.code)
        return Done([inner_codes, codes])

    script = Script(act)

    @script.method
    async def inner(tick: Tick, payload: Any) -> list[str]:
        codes = []
        assert not (await tick.read(session=True)).has_session
        try:
            await tick.read(global_=True)
        except OceanError as error:
            codes.append(error.code)
        await tick.write(run="by the inner call")
        return codes

    async with stage(script, other) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == [["read_spent"], ["write_spent"]]
        assert (await dump(w))["ocean_storage_run"][0][2] == '"by the inner call"'


async def test_nested_calls_have_a_depth_limit() -> None:
    """R3: endless recursion is an error of the clog, not a stack overflow."""
    depths: list[int] = []

    async def act(tick: Tick) -> Outcome:
        return Done(await tick.call("c", "deeper", 1))

    script = Script(act)

    @script.method
    async def deeper(tick: Tick, payload: int) -> Any:
        depths.append(payload)
        return await tick.call("c", "deeper", payload + 1)

    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert (error["code"], max(depths)) == ("call_too_deep", 16)


async def test_a_nested_call_that_raises_leaves_no_effects_and_may_be_caught() -> None:
    other = Clog("other")

    @other.method
    async def half(tick: Tick, payload: Any) -> None:
        rows = await tick.read(run=True)
        await tick.write(run="half")
        await tick.emit("half")
        await tick.signal(tick.run_id, "half")
        await tick.create_run(clog_id="c", input="half")
        await tick.set_timer("half", after_ms=1)
        await tick.set_attributes(half=True)
        await tick.release_dedupe_key()
        assert rows.run is None
        if payload == "raise":
            raise ValueError("no")

    async def act(tick: Tick) -> Outcome:
        await tick.emit("before")
        with pytest.raises(ValueError, match="no"):
            await tick.call("other", "half", "raise")
        await tick.emit("after")
        return Ok()

    async with stage(Script(act), other) as w:
        run_id = await start(w, dedupe_key="k")
        await w.drain()
        assert await types(w, run_id) == ["run.created", "before", "after", "tick.committed"]
        run = await look(w, run_id)
        assert (run.status, run.attributes, run.dedupe_key) == ("idle", {}, "k")
        assert (await w.ocean.count_runs()).count == 1
        assert (await dump(w))["ocean_storage_run"] == []


async def test_a_nested_call_that_raised_has_not_spent_the_write() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.read(run=True)
        with pytest.raises(ValueError, match="no"):
            await tick.call("c", "half")
        await tick.write(run="whole")
        return Ok()

    script = Script(act)

    @script.method
    async def half(tick: Tick, payload: Any) -> None:
        await tick.write(run="half")
        raise ValueError("no")

    async with stage(script) as w:
        await start(w)
        await w.drain()
        assert (await dump(w))["ocean_storage_run"][0][2] == '"whole"'


async def test_a_nested_refusal_keeps_its_effects_for_a_caller_that_catches_it() -> None:
    other = Clog("other")

    @other.method
    async def refuse(tick: Tick, payload: Any) -> None:
        await tick.emit("refused")
        raise Refuse("not today", code="closed")

    async def act(tick: Tick) -> Outcome:
        try:
            await tick.call("other", "refuse")
        except Refuse as refusal:
            return Done(refusal.code)
        return Ok()

    async with stage(Script(act), other) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == "closed"
        assert len(await log(w, run_id, "refused")) == 1


@pytest.mark.parametrize(
    ("clog_id", "method", "code"), [("nobody", "x", "unknown_clog"), ("c", "valeu", "unknown_method")]
)
async def test_the_error_for_a_wrong_name_suggests_the_near_one(clog_id: str, method: str, code: str) -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.call(clog_id, method)
        return Ok()

    script = Script(act)

    @script.method
    async def value(tick: Tick, payload: Any) -> int:
        return 1

    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == code
        assert code == "unknown_clog" or "did you mean 'value'" in error["message"]


async def test_a_clog_writes_only_into_its_own_run_s_log_and_not_with_the_kernel_s_event_types() -> None:
    """R6: `emit` takes no scope: an event belongs to the tick's run and session, with the clog's name."""
    codes: list[str] = []

    async def act(tick: Tick) -> Outcome:
        for type in ("run.done", "tick.committed", "signal.undelivered", "timer.set", "clog.paused", "call.committed"):
            for say in (tick.emit, tick.stream):
                try:
                    await say(type, {"forged": True})
                except OceanError as error:
                    codes.append(error.code)
        await tick.emit("mine")
        return Ok()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        assert codes == ["invalid_value"] * 12
        in_session = await w.ocean.read_events(session_id="s")
        assert [event.id for event in in_session] == [event.id for event in await log(w, run_id)]
