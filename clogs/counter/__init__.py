"""The smallest clog: it counts to three, one number per tick. The method `value` returns the current number."""

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
    """Return the current number; also after the run has ended."""
    rows = await tick.read(run=True)
    return int((rows.run or {"n": 0})["n"])
