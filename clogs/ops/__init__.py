"""The Ops-Loop: events become reactions, reactions proposals, proposals missions, and missions steps for workers.

    event ──matrix──▶ reaction ──▶ proposal ──policy, human, vote──▶ mission ──▶ step ──▶ attempt (leased)

Each of them is a run; the policies are a row, the caps and cooldowns are counters. `clogs` makes all clogs of the
system, with settings from the environment; `Ops(ocean)` is its Python interface, and its routes are under `/api/ops`.

Read `records` first (names and rows), then the clogs in the order of the drawing: `events`, `proposals`, `missions`,
`steps`, with `patterns`, `policies` and `validation` as their rules and `heartbeat` for totals. `project`, `rpc` and
`api` are the Python interface, `tables` and `queries` read the tables, `schemas`, `errors` and `routes` are HTTP and
the commands. `executors` and `worker` do the steps; `doctor` finds the ten OPS_ codes.
"""

from clogs.ops.api import Ops
from clogs.ops.events import Chance, even_chance, event_clog, reactions
from clogs.ops.executors import Executor, OpsStepFailed, Task
from clogs.ops.heartbeat import heart
from clogs.ops.missions import missions
from clogs.ops.policies import policy
from clogs.ops.proposals import proposals
from clogs.ops.routes import add_commands, route_clog
from clogs.ops.settings import OpsSettings
from clogs.ops.steps import attempts, dead_letters, steps
from clogs.ops.worker import Worker, shipped
from ocean import Clog

__all__ = ["Executor", "Ops", "OpsSettings", "OpsStepFailed", "Task", "Worker", "clogs", "shipped"]


def clogs(settings: OpsSettings | None = None, chance: Chance = even_chance) -> list[Clog]:
    """Make the clogs of an Ops-Loop: `ocean serve --clogs clogs.ops:clogs`. `chance` draws for `probability`."""
    settings = settings or OpsSettings.from_environment()
    records = [policy, proposals, missions, steps, attempts, dead_letters, event_clog(chance), reactions, heart]
    front = route_clog(settings)
    add_commands(front, settings)
    return [front, *records]
