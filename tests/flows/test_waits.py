"""Sleeping, waiting for signals, and values that are the same in every replay."""

from typing import Any

import pytest

from ocean import Flow, Input, InvalidValue, RunStatus, SignalTimeout
from tests.flows.kit import Effects, events_of, journal, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_sleep_costs_nothing_and_ends_at_its_time() -> None:
    effects = Effects()

    async def remind(flow: Flow, input: Any) -> Any:
        await flow.step("first", effects.do, "first")
        await flow.sleep(86_400_000)
        await flow.step("second", effects.do, "second")

    async with stage(remind) as w:
        run_id = await start(w)
        began = w.clock.now()
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.wake_at) == (RunStatus.WAITING, began + 86_400_000)
        await w.wait(86_399_999)
        assert effects.done == ["first"]
        await w.wait(1)
        assert effects.done == ["first", "second"]
        assert (await look(w, run_id)).tick == 2


async def test_a_signal_in_a_sleep_neither_ends_nor_prolongs_it() -> None:
    async def sleeper(flow: Flow, input: Any) -> Any:
        await flow.sleep(10_000)
        return (await flow.wait_for_signal()).body

    async with stage(sleeper) as w:
        run_id = await start(w)
        await w.wait(4_000)
        await w.ocean.signal(run_id, "early")
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.wake_at) == (RunStatus.WAITING, w.clock.now() + 6_000)
        await w.wait(6_000)
        assert (await look(w, run_id)).output == "early"


async def test_sleep_until_a_time_that_is_over_does_not_sleep() -> None:
    async def sleeper(flow: Flow, input: Any) -> Any:
        await flow.sleep_until(input)
        return await flow.now()

    async with stage(sleeper) as w:
        past = await start(w, w.clock.now() - 5)
        later = await start(w, w.clock.now() + 5)
        await w.drain()
        assert (await look(w, past)).output == w.clock.now()
        assert (await look(w, later)).status is RunStatus.WAITING
        await w.wait(5)
        assert (await look(w, later)).output == w.clock.now()


async def test_signals_that_do_not_fit_are_kept_in_order_for_later_waits() -> None:
    async def desk(flow: Flow, input: Any) -> Any:
        paid = await flow.wait_for_signal({"type": "paid", "order": 2})
        note = await flow.wait_for_signal("note")
        large = await flow.wait_for_signal(lambda body: body.get("amount", 0) > 10)
        return [paid.body["by"], note.body["text"], large.body["amount"], (await flow.wait_for_signal()).body["amount"]]

    async with stage(desk) as w:
        run_id = await start(w)
        for body in (
            {"type": "note", "text": "first"},
            {"type": "paid", "order": 1, "amount": 5},
            {"type": "note", "text": "second"},
            {"type": "paid", "order": 3, "amount": 30},
        ):
            await w.ocean.signal(run_id, body)
        await w.drain()
        assert (await look(w, run_id)).status is RunStatus.IDLE
        kept = (await journal(w, run_id))["signals"]
        assert [signal["number"] for signal in kept] == [2, 3, 4, 5]
        await w.ocean.signal(run_id, {"type": "paid", "order": 2, "by": "ada"})
        await w.drain()
        assert (await look(w, run_id)).output == ["ada", "first", 30, 5]


async def test_a_signal_has_its_actor() -> None:
    seen: list[Input] = []

    async def approval(flow: Flow, input: Any) -> Any:
        seen.append(await flow.wait_for_signal("approve"))
        await flow.sleep(10)
        return seen[-1].actor

    async with stage(approval) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id, {"type": "approve"}, signal_id="a-1", actor="kim")
        await w.wait(10)
        assert (await look(w, run_id)).output == "kim"
        assert [(each.signal_id, each.actor, each.body) for each in seen] == [("a-1", "kim", {"type": "approve"})] * 2


async def test_a_wait_that_times_out_raises_the_same_error_at_each_replay() -> None:
    found: list[str] = []

    async def approval(flow: Flow, input: Any) -> Any:
        try:
            await flow.wait_for_signal("approve", timeout_ms=5_000)
        except SignalTimeout as late:
            found.append(str(late))
        await flow.sleep(10)
        return "expired"

    async with stage(approval) as w:
        run_id = await start(w)
        began = w.clock.now()
        await w.drain()
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert hold.message.endswith(f"the flow waits for signal 'approve' until {began + 5_000}")
        await w.wait(5_000)
        await w.ocean.signal(run_id, {"type": "approve"})
        await w.wait(10)
        assert (await look(w, run_id)).output == "expired"
        assert found == ["no signal 'approve' arrived within 5000 ms"] * 3


async def test_a_signal_that_came_in_time_counts_however_late_the_poke() -> None:
    async def approval(flow: Flow, input: Any) -> Any:
        return (await flow.wait_for_signal("approve", timeout_ms=5_000)).body["by"]

    async with stage(approval) as w:
        in_time, too_late = await start(w), await start(w)
        await w.drain()
        w.clock.advance(4_999)
        await w.ocean.signal(in_time, {"type": "noise"})
        await w.ocean.signal(in_time, {"type": "approve", "by": "kim"})
        w.clock.advance(3_600_000)
        await w.ocean.signal(too_late, {"type": "approve", "by": "lee"})
        await w.drain()
        assert (await look(w, in_time)).output == "kim"
        error = (await look(w, too_late)).error
        assert error is not None
        assert error["code"] == "signal_timeout"


@pytest.mark.sqlite
async def test_a_wait_does_not_time_out_while_more_may_be_in_the_inbox_than_a_tick_gets() -> None:
    async def approval(flow: Flow, input: Any) -> Any:
        return (await flow.wait_for_signal("approve", timeout_ms=5_000)).body["by"]

    async with stage(approval) as w:
        run_id = await start(w)
        await w.drain()
        for _ in range(256):
            await w.ocean.signal(run_id, {"type": "noise"})
        await w.ocean.signal(run_id, {"type": "approve", "by": "kim"})
        w.clock.advance(60_000)
        await w.drain()
        assert (await look(w, run_id)).output == "kim"


async def test_any_text_may_be_waited_for_and_emitted_except_the_flows_own_types() -> None:
    async def desk(flow: Flow, input: Any) -> Any:
        body = (await flow.wait_for_signal("orders/paid#1")).body
        try:
            await flow.emit("flow.undone")
        except InvalidValue as error:
            return [body["type"], str(error)]

    async with stage(desk) as w:
        run_id = await start(w)
        await w.ocean.signal(run_id, {"type": "orders/paid#1"})
        await w.drain()
        received, refused = (await look(w, run_id)).output
        assert received == "orders/paid#1"
        assert "which flows use themselves" in refused


async def test_more_signals_than_the_row_can_hold_fail_the_flow_with_an_explanation() -> None:
    async def deaf(flow: Flow, input: Any) -> Any:
        await flow.wait_for_signal("never")

    async with stage(deaf) as w:
        run_id = await start(w)
        for _ in range(3):
            await w.ocean.signal(run_id, "x" * 400_000)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert "the journal does not fit into its row; 3 of its signals were never taken" in error["message"]


async def test_a_run_created_without_input_begins_with_its_first_signal() -> None:
    async def echo(flow: Flow, input: Any) -> Any:
        return [input, (await flow.wait_for_signal()).body]

    async with stage(echo) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="f")
        await w.drain()
        await w.ocean.signal(run.run_id, "hello")
        await w.ocean.signal(run.run_id, "more")
        await w.drain()
        assert (await look(w, run.run_id)).output == ["hello", "more"]


async def test_time_randomness_and_ids_are_the_same_in_every_replay() -> None:
    seen: list[tuple[int, float, str, str]] = []

    async def draws(flow: Flow, input: Any) -> Any:
        seen.append((await flow.now(), await flow.random(), await flow.uuid(), await flow.uuid()))
        await flow.sleep(1_000)
        return await flow.now() - seen[-1][0]

    async with stage(draws) as w:
        one, other = await start(w), await start(w)
        await w.wait(1_000)
        assert (await look(w, one)).output == 1_000
        assert (await look(w, other)).output == 1_000
        assert len(set(seen)) == 2
        assert all(0 <= each[1] < 1 and each[2] != each[3] for each in seen)


async def test_the_time_is_stored_although_its_tick_failed() -> None:
    seen: list[int] = []

    async def draws(flow: Flow, input: Any) -> Any:
        seen.append(await flow.now())
        if len(seen) == 1:
            raise RuntimeError("after the look at the clock")
        return seen

    async with stage(draws) as w:
        await start(w)
        await w.wait(10_000)
        assert len(seen) == 2
        assert len(set(seen)) == 1


async def test_what_is_emitted_sent_or_set_happens_once() -> None:
    async def teller(flow: Flow, input: Any) -> Any:
        await flow.emit("sent", {"n": 1})
        await flow.stream("seen", {"n": 1})
        await flow.set_attributes(stage="sent")
        await flow.signal(input, {"type": "sent"}, signal_id="once")
        await flow.sleep(1_000)
        await flow.emit("sent", {"n": 2})
        return "done"

    async def listener(flow: Flow, input: Any) -> Any:
        return (await flow.wait_for_signal("sent")).signal_id

    from tests.flows.kit import flow_clog

    async with stage(teller, flow_clog(listener, "l")) as w:
        received = await start(w, clog_id="l")
        run_id = await start(w, received)
        await w.wait(1_000)
        info = await look(w, run_id)
        assert (info.output, info.attributes) == ("done", {"stage": "sent"})
        assert await events_of(w, run_id, "sent", "seen") == [
            ("seen", {"n": 1}),
            ("sent", {"n": 1}),
            ("sent", {"n": 2}),
        ]
        assert (await look(w, received)).output == "once"
