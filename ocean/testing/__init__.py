"""For tests of clogs: a world on a private database, in which time moves only when told to.

async with world(clogs=[counter]) as w:
    run = await w.ocean.create_run(session_id="s", clog_id="counter", input={})
    await w.drain()
    w.clock.advance(60_000)
"""

from ocean.testing.manual_clock import ManualClock
from ocean.testing.worlds import World, world

__all__ = ["ManualClock", "World", "world"]
