"""For tests of clogs: a world on a private database, in which time moves only when told to.

async with world(clogs=[counter]) as w:
    run = await w.ocean.create_run(session_id="s", clog_id="counter", input={})
    await w.drain()
    await w.wait(60_000)

`Outside` stands for the services that ticks call. `crash_everywhere` kills the process at every await of a scenario's
ticks, and compares the results.
"""

from ocean.testing.crash_points import CrashPoint, Place
from ocean.testing.crashes import CrashFinding, CrashFound, CrashReport, crash_everywhere
from ocean.testing.leaks import OpenWorld
from ocean.testing.manual_clock import ManualClock
from ocean.testing.outside import Outside
from ocean.testing.outside_calls import OutsideCall
from ocean.testing.results import Difference
from ocean.testing.simulation.inline_database import InlineDatabase, Weather
from ocean.testing.simulation.processes import Process
from ocean.testing.simulation.virtual_clock import VirtualClock
from ocean.testing.simulation.virtual_loop import LostWakeUp, VirtualLoop
from ocean.testing.worlds import World, world

__all__ = [
    "CrashFinding",
    "CrashFound",
    "CrashPoint",
    "CrashReport",
    "Difference",
    "InlineDatabase",
    "LostWakeUp",
    "ManualClock",
    "OpenWorld",
    "Outside",
    "OutsideCall",
    "Place",
    "Process",
    "VirtualClock",
    "VirtualLoop",
    "Weather",
    "World",
    "crash_everywhere",
    "world",
]
