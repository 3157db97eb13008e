"""The clogs of a server under test."""

from ocean import Clog, Ok, Outcome, Tick

answering = Clog("answering")


@answering.on_advance
async def answer(tick: Tick) -> Outcome:
    return Ok()
