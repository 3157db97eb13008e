"""A clog that allows only the generic verbs cancel and call."""

from typing import Any

from ocean import Clog, Ok, Outcome, Tick

keeper = Clog("keeper", generic=["cancel", "call"])


@keeper.on_advance
async def advance(tick: Tick) -> Outcome:
    return Ok()


@keeper.method
async def begin(tick: Tick, payload: Any) -> str:
    return await tick.create_run(clog_id="keeper", session_id="s")
