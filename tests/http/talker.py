"""A clog that says what it is told to, for streams to carry."""

from typing import Any

from ocean import Clog, Tick

talker = Clog("talker")


@talker.method
async def talk(tick: Tick, payload: Any) -> None:
    await tick.emit("talked", payload)
