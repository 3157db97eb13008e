"""The smallest clog: counts to three, one tick a number, and answers where it is when asked."""

from typing import Any

from ocean import Clog, Continue, Done, Outcome, Tick

__all__ = ["counter"]

LAST = 3

counter = Clog("counter")


@counter.on_advance
async def advance(tick: Tick) -> Outcome:
    rows = await tick.read(run=True)
    n = (rows.run or {"n": 0})["n"] + 1
    await tick.emit("counted", {"n": n})
    await tick.write(run={"n": n})
    return Done({"n": n}) if n >= LAST else Continue()


@counter.method
async def value(tick: Tick, payload: Any) -> int:
    """How far the run has come; also after it has ended."""
    rows = await tick.read(run=True)
    return int((rows.run or {"n": 0})["n"])
