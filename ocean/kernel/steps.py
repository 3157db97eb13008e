"""Steps: a function is called once, its result stored at once, and later calls get that."""

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote

from ocean.kernel.call_context import Scene
from ocean.state.dry_run_result import DryStop
from ocean.state.errors import InvalidValue, StepNameUsed
from ocean.state.records import Lock
from ocean.state.values import checked_id, decode, encode, shown

StepScope = Literal["tick", "run"]


def step_key(clog_id: str, name: str) -> str:
    """A step's name in its run: each clog has its own."""
    return f"{clog_id}\x1f{name}"


async def remembered(
    scene: Scene,
    lock: Lock,
    clog_id: str,
    name: str,
    fn: Callable[[str], Any],
    stop: DryStop,
    scope: StepScope = "tick",
    look: bool = True,
) -> Any:
    """The stored result, or what `fn(key)` answers now, stored. A dry run stops there and says `stop`."""
    checked_id(name, "a step's name", 128)
    if scope not in ("tick", "run"):
        raise InvalidValue(f"a step's scope is 'tick' or 'run', got {shown(scope)}")
    stored_name, tick = step_key(clog_id, name), scene.tick if scope == "tick" else 0
    if (scope, stored_name) in scene.steps:
        raise StepNameUsed(f"step {name!r} is used twice in one call; give each step its own name")
    scene.steps.add((scope, stored_name))
    if look and (scope == "run" or scene.call > 1):
        stored = await scene.store.read_step(lock.run_id, tick, stored_name)
        if stored is not None:
            return decode(stored)
    if scene.is_dry:
        scene.check_alive()
        scene.stop(stop)
    key = f"{scene.seed if tick else scene.run_key}:{quote(clog_id, safe='')}/{name}"
    result = await scene.reach.take_step(f"{clog_id}/{name}", key, fn)
    await scene.settle()
    scene.check_alive()
    kept = await scene.store.store_step(lock, tick, stored_name, encode(result, f"step {name!r}"))
    return decode(kept)
