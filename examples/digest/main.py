"""Simulate a week in a second: every morning at eight, local time, a digest of the time since the last one."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import anyio

from clogs.digest import as_text, digest
from clogs.schedule import schedule
from ocean import Clog, Done, Outcome, Tick
from ocean.testing import World, world

LISBON = ZoneInfo("Europe/Lisbon")
HOUR_MS = 3_600_000
FRIDAY = int(datetime(2026, 10, 23, 9, 0, tzinfo=LISBON).timestamp()) * 1_000
"""Two days before the clocks in Lisbon are set back."""

orders = Clog("orders")


@orders.on_advance
async def advance(tick: Tick) -> Outcome:
    if tick.input == "lost":
        raise LookupError("the parcel is lost")
    return Done(tick.input)


async def main() -> None:
    async with world(clogs=[schedule, digest, orders]) as w:
        w.clock.advance(FRIDAY - w.clock.now())
        await set_up(w)
        await friday_and_saturday(w)
        await w.wait(24 * HOUR_MS)  # Sunday has 25 hours, and nothing happens
        await three_days_without_a_poke(w)
        await show(w)


async def set_up(w: World) -> None:
    settings = {"title": "Since yesterday", "clogs": ["orders"]}
    await w.ocean.create_run(session_id="shop", clog_id="digest", run_id="shop-digest", input=settings)
    mornings = {
        "name": "mornings",
        "cron": "0 8 * * *",
        "zone": "Europe/Lisbon",
        "target": {"run_id": "shop-digest", "input": {"write": True}, "times_as": "schedule"},
    }
    made = await w.ocean.call_clog(clog_id="schedule", session_id="shop", method="add", payload=mornings)
    await w.drain()
    for each in await w.ocean.call_clog(run_id=made["run_id"], method="upcoming", payload={"n": 3}):
        print("next:", each["local"])


async def friday_and_saturday(w: World) -> None:
    await w.ocean.signal("shop-digest", {"item": "a customer called: where is the poster?"}, signal_id="call-1")
    await w.ocean.signal("shop-digest", {"item": "a customer called: where is the poster?"}, signal_id="call-1")
    await order(w, "badge", "poster", "lost")
    await w.wait(24 * HOUR_MS)
    await order(w, "report")
    await w.wait(24 * HOUR_MS)


async def three_days_without_a_poke(w: World) -> None:
    """Jump ahead without a poke. Then one digest is written for all three days."""
    await w.ocean.signal("shop-digest", {"item": "the power company called"})
    w.clock.jump(72 * HOUR_MS)
    await w.drain()


async def order(w: World, *things: str) -> None:
    for thing in things:
        await w.ocean.create_run(session_id="shop", clog_id="orders", run_id=f"order-{thing}", input=thing)
    await w.wait(HOUR_MS)


async def show(w: World) -> None:
    written: list[Any] = [event.payload for event in await w.ocean.read_events(types=["digest.written"])]
    for made in written:
        until = datetime.fromtimestamp(made["until"] / 1_000, LISBON)
        print(f"{until:%A %H:%M %Z}:", as_text(made))
    schedules = await w.ocean.list_runs(clog_id="schedule")
    print("fired:", schedules.runs[0].attributes["fired"])


if __name__ == "__main__":
    anyio.run(main)
