"""`World.wait`, and the `Outside` of a world."""

import pytest

from ocean import Clog, Done, InvalidValue, Outcome, Tick, Wait
from ocean.testing import Outside, world
from tests.testing.shops import CHARGE, charges_in_a_step, clog_of, paying

pytestmark = pytest.mark.anyio


async def test_while_a_test_waits_each_run_is_poked_when_it_is_due() -> None:
    at: list[int] = []

    async def beats(tick: Tick) -> Outcome:
        at.append(tick.now)
        return Done() if len(at) == 4 else Wait(for_ms=1_000)

    async with world([clog_of(beats)]) as w:
        began = w.clock.now()
        await w.ocean.create_run(session_id="s", clog_id="c", input={})
        assert len(await w.wait(2_999)) == 3
        assert w.clock.now() == began + 2_999
        assert len(await w.wait(1)) == 1
        assert await w.wait(86_400_000) == []
    assert at == [began, began + 1_000, began + 2_000, began + 3_000]


async def test_waiting_ends_although_a_run_whose_clog_is_not_loaded_stays_due() -> None:
    async def rests(tick: Tick) -> Outcome:
        return Wait(for_ms=10)

    async with world([clog_of(rests)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain()
        await w.ocean.pause_run(run.run_id)
        elsewhere = await w.instance([Clog("elsewhere")])
        await elsewhere.create_run(session_id="s", clog_id="elsewhere", input={}, deadline_at=w.clock.now() + 50)
        assert await w.wait(100) == []


async def test_every_instance_of_a_world_has_its_outside() -> None:
    async with world([clog_of(charges_in_a_step)], outside=paying()) as w:
        await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain(await w.instance([clog_of(charges_in_a_step)]))
        assert len(w.outside.effects(CHARGE)) == 1


async def test_a_world_without_an_outside_raises_an_error_with_advice() -> None:
    async with world() as w:
        with pytest.raises(LookupError, match=r"world\(clogs, outside=Outside\(\)\)"):
            w.outside.effects()
    async with world(outside=Outside()) as w:
        assert w.outside.calls == []


async def test_private_hosts_are_refused_together_with_an_outside() -> None:
    with pytest.raises(InvalidValue, match="live=True"):
        async with world(outside=Outside(), private_hosts=["intranet:80"]):
            pass
