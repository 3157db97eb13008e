"""Changed code of a running flow: detected at the first operation that differs, held, resumed when it fits again."""

from typing import Any

import pytest

from ocean import Flow, RunStatus
from ocean.testing import World
from tests.flows.kit import Effects, Function, events_of, flow_clog, look, stage, start

pytestmark = pytest.mark.anyio


async def deployed(w: World, function: Function) -> Any:
    """An instance with other code for the same clog."""
    return await w.instance([flow_clog(function)])


def order(*names: str) -> tuple[Function, Effects]:
    """A flow of steps with a day of sleep after the first."""
    effects = Effects()

    async def function(flow: Flow, input: Any) -> Any:
        for index, name in enumerate(names):
            await flow.step(name, effects.do, name)
            if index == 0:
                await flow.sleep(1_000)
        return list(names)

    return function, effects


async def test_a_renamed_step_is_reported_with_its_position_and_the_journal_entry() -> None:
    old, _ = order("charge", "ship")
    new, effects = order("bill", "ship")
    async with stage(old) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        other = await deployed(w, new)
        await w.drain(other)
        assert effects.done == []
        ((_, held),) = await events_of(w, run_id, "flow.held")
        assert held["code"] == "flow_changed"
        assert held["details"] == {"place": "0", "remembered": "step 'charge'", "asked": "step 'bill'"}
        assert "at position 0 the journal has step 'charge', but the code has step 'bill'" in held["message"]


async def test_a_held_run_keeps_everything_spends_no_attempt_and_explains_itself() -> None:
    old, before = order("charge", "ship")
    new, after = order("charge", "pack", "ship")
    broken, _ = order("bill", "ship")
    async with stage(old) as w:
        run_id = await start(w)
        await w.drain()
        bad = await deployed(w, broken)
        for _ in range(10):
            w.clock.advance(300_000)
            await w.drain(bad)
        info = await look(w, run_id)
        assert (info.status, info.attempt) == (RunStatus.WAITING, 0)
        (hold,) = (await bad.explain(run_id)).holds
        assert "the flow is held: the code of this flow has changed" in hold.message
        assert len(await events_of(w, run_id, "flow.held")) == 1
        good = await deployed(w, new)
        w.clock.advance(300_000)
        await w.drain(good)
        assert (await look(w, run_id)).output == ["charge", "pack", "ship"]
        assert (before.done, after.done) == (["charge"], ["pack", "ship"])


async def test_a_signal_lets_a_held_run_try_at_once_and_is_not_lost() -> None:
    async def old(flow: Flow, input: Any) -> Any:
        await flow.sleep(1_000)
        return (await flow.wait_for_signal("go")).body["n"]

    async def broken(flow: Flow, input: Any) -> Any:
        await flow.random()

    async with stage(old) as w:
        run_id = await start(w)
        await w.drain()
        bad = await deployed(w, broken)
        await w.ocean.signal(run_id, {"type": "go", "n": 7})
        await w.drain(bad)
        assert (await look(w, run_id)).status is RunStatus.WAITING
        w.clock.advance(1_000)
        await w.ocean.signal(run_id, {"type": "nudge"})
        await w.drain()
        assert (await look(w, run_id)).output == 7
        assert [type for type, _ in await events_of(w, run_id, "flow.held")] == ["flow.held"]


async def test_code_that_ends_before_its_journal_does_is_held_too() -> None:
    async def short(flow: Flow, input: Any) -> Any:
        return "already"

    old, _ = order("charge", "ship")
    async with stage(old) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain(await deployed(w, short))
        ((_, held),) = await events_of(w, run_id, "flow.held")
        assert held["details"] == {"place": "0", "remembered": "step 'charge'", "asked": "the end"}


async def test_a_gather_of_another_size_and_a_changed_line_in_it_are_found() -> None:
    def wide(*names: str) -> Function:
        async def function(flow: Flow, input: Any) -> Any:
            await flow.gather(*(flow.step(name, Effects().do, name) for name in names), flow.sleep(1_000))

        return function

    async with stage(wide("a", "b")) as w:
        run_id = await start(w)
        await w.drain()
        for function in (wide("a"), wide("a", "c")):
            await w.ocean.signal(run_id)
            await w.drain(await deployed(w, function))
        found = [held["details"] for _, held in await events_of(w, run_id, "flow.held")]
        assert [(each["remembered"], each["asked"]) for each in found] == [
            ("a gather of 3", "a gather of 2"),
            ("step 'gather.1/b'", "step 'gather.1/c'"),
        ]


async def test_no_except_of_the_flow_catches_a_change_of_its_code() -> None:
    async def swallows(flow: Flow, input: Any) -> Any:
        try:
            await flow.step("bill", Effects().do, 1)
        except Exception:
            return "swallowed"

    old, _ = order("charge", "ship")
    async with stage(old) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain(await deployed(w, swallows))
        assert (await look(w, run_id)).status is RunStatus.WAITING


def patched_order(effects: Effects) -> Function:
    async def function(flow: Flow, input: Any) -> Any:
        if flow.patched("check-first"):
            await flow.step("check", effects.do, "check")
        await flow.step("charge", effects.do, "charge")
        await flow.sleep(1_000)
        if flow.patched("check-first"):
            await flow.step("thank", effects.do, "thank")
        await flow.step("ship", effects.do, "ship")

    return function


async def test_with_a_patch_old_runs_continue_as_before_and_new_ones_take_the_new_path() -> None:
    old, _ = order("charge", "ship")
    effects = Effects()
    async with stage(old) as w:
        old_run = await start(w)
        await w.drain()
        other = await deployed(w, patched_order(effects))
        w.clock.advance(1_000)
        await w.drain(other)
        assert effects.done == ["ship"]
        assert (await look(w, old_run)).status is RunStatus.DONE
        new_run = await start(w)
        await w.drain(other)
        w.clock.advance(1_000)
        await w.drain(other)
        assert (await look(w, new_run)).status is RunStatus.DONE
        assert effects.done == ["ship", "check", "charge", "thank", "ship"]


async def test_a_patch_may_be_removed_when_no_old_run_is_left() -> None:
    effects = Effects()

    async def plain(flow: Flow, input: Any) -> Any:
        await flow.step("check", effects.do, "check")
        await flow.step("charge", effects.do, "charge")
        await flow.sleep(1_000)
        return "fine"

    async with stage(patched_order(effects)) as w:
        run_id = await start(w)
        await w.drain()
        other = await deployed(w, plain)
        w.clock.advance(1_000)
        await w.drain(other)
        assert (await look(w, run_id)).output == "fine"
        assert effects.done == ["check", "charge"]
