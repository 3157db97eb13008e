"""Tests of clogs: an Ocean on a private database, with a clock that only the test moves.

async with world(clogs=[counter]) as w:
    run = await w.ocean.create_run(session_id="s", clog_id="counter", input={})
    await w.drain()
    await w.wait(60_000)

Read `worlds` first; `world_ocean` is the Ocean of a world, whose `result` lets virtual time pass. `outside` stands for
the services that ticks call, with a record of each call (`outside_calls`); `requests` sends requests to routes and
webhooks; `manual_clock` is the clock; `pytest_plugin` has the fixture `ocean_world`, which also checks that a test
leaves nothing running (`leaks`).

`crashes` is `crash_everywhere`: it kills the process at every await of a scenario's ticks and compares the results.
`crash_points` are the points and one call that can be killed, `crashable` is an Ocean made of such calls, and `results`
reads and compares what can be observed. `simulation/` has virtual time and simulated processes, for Ocean's own tests.
"""

from ocean.testing.crash_points import CrashPoint, SourceLine
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
from ocean.testing.world_ocean import RunStuck
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
    "Process",
    "RunStuck",
    "SourceLine",
    "VirtualClock",
    "VirtualLoop",
    "Weather",
    "World",
    "crash_everywhere",
    "world",
]
