"""Counters and calls of other clogs: they are part of the commit, and the flow continues after it."""

from typing import Any

import pytest

from ocean import Clog, Flow, Refuse, Tick
from tests.flows.kit import Effects, journal, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_take_is_committed_before_the_flow_acts_on_it_and_happens_once() -> None:
    effects = Effects()

    async def mailer(flow: Flow, input: Any) -> Any:
        while not (taken := await flow.take("mails", limit=2, per_ms=60_000)):
            await flow.sleep(taken.retry_after_ms or 0)
        await flow.step("send", effects.do, taken.limit)
        return await flow.now()

    async with stage(mailer) as w:
        began = w.clock.now()
        runs = [await start(w) for _ in range(4)]
        await w.wait(60_000)
        sent = [(await look(w, run_id)).output - began for run_id in runs]
        assert sorted(sent) == [0, 0, 30_000, 60_000]
        assert len(effects.done) == 4
        steps = [event for run_id in runs for event in await w.ocean.read_events(run_id, types=["flow.step"])]
        assert all((event.tick or 0) > 1 for event in steps)


def till() -> Clog:
    clog = Clog("till")

    @clog.method
    async def pay(tick: Tick, amount: int) -> dict[str, int]:
        total: int = ((await tick.read(session=True)).session or 0) + amount
        await tick.write(session=total)
        await tick.emit("paid", amount)
        if amount > 50:
            raise Refuse("too much at once", code="too_much", details={"most": 50})
        return {"total": total}

    return clog


async def test_a_call_of_another_clog_happens_once_and_its_refusal_is_stored() -> None:
    found: list[str] = []

    async def shop(flow: Flow, input: Any) -> Any:
        first = await flow.call("till", "pay", 20)
        first["total"] += 1
        try:
            await flow.call("till", "pay", 60)
        except Refuse as refused:
            found.append(f"{refused.code} {refused.http_status} {refused.details}")
        await flow.sleep(1_000)
        return [first, await flow.call("till", "pay", 5)]

    async with stage(shop, till()) as w:
        run_id = await start(w)
        await w.drain()
        assert (await journal(w, run_id))["entries"]["0"]["value"] == {"total": 20}
        await w.wait(1_000)
        assert (await look(w, run_id)).output == [{"total": 21}, {"total": 85}]
        paid = await w.ocean.read_events(run_id, types=["paid"])
        assert [event.payload for event in paid] == [20, 60, 5]
        assert set(found) == {"too_much 409 {'most': 50}"}
