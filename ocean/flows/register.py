"""What `@clog.flow` does: a function becomes both handlers of its clog."""

import inspect

from ocean.clog.clog import Clog
from ocean.flows.handlers import FlowFunction, advance_flow, end_flow
from ocean.flows.journal import what_it_waits_for
from ocean.kernel.tick import Tick
from ocean.state.errors import InvalidValue
from ocean.state.outcomes import Outcome

NEEDED = (
    "ocean.storage.read_scoped",
    "ocean.storage.write_scoped",
    "ocean.steps.run",
    "ocean.events.emit",
    "ocean.runs.create",
)


def register_flow(clog: Clog, function: FlowFunction) -> None:
    if not inspect.iscoroutinefunction(function):
        raise InvalidValue(f"a flow is an async function of a Flow and its input; {function!r} is not")
    if clog.models["run"] is not None:
        raise InvalidValue(
            f"clog {clog.clog_id!r} has a flow and a run_state: the run row of a flow is its journal; keep state in "
            "variables of the flow, or in session rows"
        )
    missing = [] if clog.tools is None else [tool for tool in NEEDED if tool not in clog.tools]
    if missing:
        raise InvalidValue(f"clog {clog.clog_id!r} has a flow, which needs {missing[0]}: list it in tools=[…] too")

    async def advance(tick: Tick) -> Outcome:
        return await advance_flow(function, tick)

    async def end(tick: Tick) -> Outcome:
        return await end_flow(function, tick)

    clog.on_advance(advance)
    clog.on_end(end)
    clog.explains(what_it_waits_for)
    clog.takes_all_inputs = True
