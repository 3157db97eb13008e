"""Which parts a stored database has, and the whole way from its beginning to its end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from ocean import Clog
from ocean.testing import World
from tests.upgrades import story

KERNEL = (
    *("done", "failed", "timer", "nap", "parent", "child", "collecting", "backing-off", "cancelled", "ending", "late"),
    *("idle", "pending", "keyed", "repeated", "paused", "resting", "counting", "crashed"),
)
AT_THE_END = "ending-at-work"
"""The run whose process died in its last tick: the old code gave such a last tick up, new code may call it again."""

Act = Callable[[World, dict[str, Any]], Awaitable[dict[str, Any]]]


def clogs_of(parts: Sequence[str]) -> list[Clog]:
    """Return new clogs of a database with these parts. The modules of other parts are not imported."""
    clogs = story.kernel_clogs()
    if "admission" in parts:
        from tests.upgrades.admission import admission_clogs

        clogs += admission_clogs()
    if "flows" in parts:
        from tests.upgrades.flows import flow_clogs

        clogs += flow_clogs()
    return clogs


async def begin(w: World, parts: Sequence[str]) -> dict[str, Any]:
    """Bring runs into every status, and leave some of them at work; returns what only the callers know."""
    notes = await story.begin_kernel(w)
    dying, then = ["crashed", AT_THE_END], []
    if "admission" in parts:
        from tests.upgrades.admission import begin_admission

        notes |= await begin_admission(w)
        dying.append("key-holder")
        then += ["parked-1", "parked-2"]
    if "flows" in parts:
        from tests.upgrades.flows import FLOWS, begin_flows

        notes |= await begin_flows(w)
        dying.append("flow-die")
        then += [*(name for name in FLOWS if name != "flow-die"), notes["schedule"]]
    for run_id in dying:
        await _let_work(w, run_id)
    for run_id in then:
        await w.ocean.advance(run_id=run_id)
    if "flows" in parts:
        children = await w.ocean.list_runs(parent_run_id="flow-child")
        await w.ocean.advance(run_id=children.runs[0].run_id)
    await story.signal_the_busy(w)
    return notes


async def _let_work(w: World, run_id: str) -> None:
    """Poke a run in the background until its handler is at work. The process ends while it is."""
    import asyncio

    _at_work.append(asyncio.ensure_future(w.ocean.advance(run_id=run_id)))
    with anyio.fail_after(30):
        await story.at_work(run_id)


_at_work: list[Any] = []


async def drive(w: World, parts: Sequence[str], notes: dict[str, Any]) -> dict[str, Any]:
    """Act as callers do after the upgrade, let an hour pass, and return what became of everything."""
    acts: list[Act] = [story.act_kernel]
    finishes: list[Act] = []
    run_ids = [*KERNEL]
    if "admission" in parts:
        from tests.upgrades import admission

        acts.append(admission.act_admission)
        finishes.append(admission.finish_admission)
        run_ids += [*admission.ADMISSION, notes["debounced"]]
    if "flows" in parts:
        from tests.upgrades import flows

        acts.append(flows.act_flows)
        finishes.append(flows.finish_flows)
        run_ids += flows.FLOWS
    found: dict[str, Any] = {}
    for act in acts:
        found |= await act(w, notes)
    await story.wait_an_hour(w)
    for act in finishes:
        found |= await act(w, notes)
    ended = await w.ocean.get_run(AT_THE_END)
    assert ended is not None
    found["at the end"] = [str(ended.status), (ended.error or {}).get("code")]
    return {"callers": found, "runs": await story.results(w, run_ids)}
