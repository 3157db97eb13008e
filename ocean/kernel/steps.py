"""Steps: a function is called once, its result is stored at once, and later calls get the stored result."""

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote

from ocean.kernel.call_context import CallContext
from ocean.kernel.store.events import StepStreamed
from ocean.kernel.streaming import streaming_in
from ocean.state.dry_run_result import DryStop
from ocean.state.effects import NewEvent
from ocean.state.errors import InvalidValue, StepNameUsed
from ocean.state.records import Lock
from ocean.state.values import checked_id, decode, encode, shown

StepScope = Literal["tick", "run"]


def step_key(clog_id: str, name: str) -> str:
    """Return the name under which a step is stored in its run: each clog has its own steps."""
    return f"{clog_id}\x1f{name}"


async def run_step(
    context: CallContext,
    lock: Lock,
    clog_id: str,
    name: str,
    fn: Callable[[str], Any],
    stop: DryStop,
    scope: StepScope = "tick",
    look: bool = True,
) -> Any:
    """Return the stored result, or call `fn(key)` and store its result. A dry run stops before the call, at `stop`."""
    checked_id(name, "a step's name", 128)
    if scope not in ("tick", "run"):
        raise InvalidValue(f"a step's scope must be 'tick' or 'run', got {shown(scope)}")
    stored_name, tick = step_key(clog_id, name), context.tick if scope == "tick" else 0
    if (scope, stored_name) in context.steps:
        raise StepNameUsed(f"step {name!r} is used twice in one call; each step must have its own name")
    context.steps.add((scope, stored_name))
    if look and (scope == "run" or context.call > 1):
        stored = await context.store.read_step(lock.run_id, tick, stored_name)
        if stored is not None:
            return decode(stored)
    if context.is_dry:
        context.check_alive()
        context.stop(stop)
    context.refuse_if_ending()
    qualified = f"{quote(clog_id, safe='')}/{name}"
    key = f"{context.seed if tick else context.run_key}:{qualified}"
    context.steps_in_flight += 1
    try:
        with streaming_in(context, f"{tick}:{qualified}" if tick else qualified) as step:
            result = await context.reach.take_step(f"{clog_id}/{name}", key, fn)
        await context.flush()
        context.check_alive()
        text = encode(result, f"step {name!r}")
        streamed = None
        if step.has_streamed:
            event = NewEvent("tick.step_stored", encode({"step": name}), clog_id, step.id)
            streamed = StepStreamed(context.tick, context.call, event)
        stored = await context.store.store_step(lock, tick, stored_name, text, streamed)
    finally:
        await context.step_is_over()
    return decode(stored)
