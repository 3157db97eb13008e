"""A clog with a method that emits an event with its payload, for tests of streams."""

from typing import Any

from ocean import Clog, Tick

talker = Clog("talker")


@talker.method
async def talk(tick: Tick, payload: Any) -> None:
    await tick.emit("talked", payload)
