"""The clogs of a server under test."""

import asyncio
import time

from ocean import Clog, Done, Ok, Outcome, Tick

answering = Clog("answering")


@answering.on_advance
async def answer(tick: Tick) -> Outcome:
    return Ok()


streaming = Clog("streaming")


@streaming.on_advance
async def stream(tick: Tick) -> Outcome:
    """So many events, so far apart; its output is when each was said."""
    said = []
    for number in range(tick.input["events"]):
        said.append(time.time())
        await tick.stream("token", {"n": number, "text": "a word or two"})
        if tick.input["apart_ms"]:
            await asyncio.sleep(tick.input["apart_ms"] / 1_000)
    return Done(said)
