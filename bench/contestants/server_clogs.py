"""The clogs of a server under test."""

import asyncio
import time

from ocean import Clog, Done, Ok, Outcome, Tick

replying = Clog("replying")


@replying.on_advance
async def reply(tick: Tick) -> Outcome:
    return Ok()


streaming = Clog("streaming")


@streaming.on_advance
async def stream(tick: Tick) -> Outcome:
    """Stream `events` events, `apart_ms` apart; the output is when each was streamed."""
    streamed_at = []
    for number in range(tick.input["events"]):
        streamed_at.append(time.time())
        await tick.stream("token", {"n": number, "text": "a word or two"})
        if tick.input["apart_ms"]:
            await asyncio.sleep(tick.input["apart_ms"] / 1_000)
    return Done(streamed_at)
