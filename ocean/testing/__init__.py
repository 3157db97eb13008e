"""For tests of clogs: a world on a private database, in which time moves only when told to.

async with world(clogs=[counter]) as w:
    run = await w.ocean.create_run(session_id="s", clog_id="counter", input={})
    await w.drain()
    w.clock.advance(60_000)
"""

from ocean.testing.inline_database import InlineDatabase, Weather
from ocean.testing.manual_clock import ManualClock
from ocean.testing.processes import Process
from ocean.testing.virtual_clock import VirtualClock
from ocean.testing.virtual_loop import LostWakeUp, VirtualLoop
from ocean.testing.worlds import World, world

__all__ = [
    "InlineDatabase",
    "LostWakeUp",
    "ManualClock",
    "Process",
    "VirtualClock",
    "VirtualLoop",
    "Weather",
    "World",
    "world",
]
