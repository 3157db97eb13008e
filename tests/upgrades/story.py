"""The runs of the stored databases: how the old code began them, and how any code drives them to their end.

`make.py` executes this module on old code too, so it uses only names that every version has, and a part only where the
version has its features.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio

from ocean import Clog, Continue, Done, Failed, Ok, Outcome, RetryPolicy, Tick, Wait
from ocean.testing import World

START = 1_700_000_000_000
HOUR_MS = 3_600_000
FOR_RETRIES = RetryPolicy(max_attempts=5)

effects: Counter[str] = Counter()
"""How often each effect happened in this process, by run and name."""
_working: dict[str, anyio.Event] = {}
"""The runs whose handler is at work and will not return: their process dies in it."""


async def at_work(run_id: str) -> None:
    """Wait until the run's handler has reached the place where it stops."""
    await _working.setdefault(run_id, anyio.Event()).wait()


async def stop_here(run_id: str) -> None:
    """Stop a handler that works for this run until its process dies."""
    _working.setdefault(run_id, anyio.Event()).set()
    await anyio.sleep_forever()


def _effect(tick: Tick, name: str) -> Callable[[str], str]:
    def act(key: str) -> str:
        effects[f"{tick.run_id} {name}"] += 1
        return f"{name} of tick {tick.number}"

    return act


async def advance(tick: Tick) -> Outcome:
    """Act by the run's attribute `plan`. The run's row lists what the run was called with."""
    plan = str(tick.run.attributes.get("plan", "done"))
    rows = await tick.read(run=True, session=True)
    seen = [*(rows.run or []), [tick.reason, None if tick.reason == "child" else tick.input]]
    await tick.write(run=seen, session=lambda count: (count or 0) + 1)
    return await PLANS[plan](tick, seen)


async def _done(tick: Tick, seen: list[Any]) -> Outcome:
    return Done(seen)


async def _collect(tick: Tick, seen: list[Any]) -> Outcome:
    await tick.emit("collected", tick.input)
    return Done(seen) if tick.input == "end" else Ok()


async def _alarm(tick: Tick, seen: list[Any]) -> Outcome:
    if tick.reason == "timer":
        return Done(seen)
    if tick.reason == "created":
        await tick.set_timer("alarm", after_ms=60_000, input="ring")
    return Ok()


async def _nap(tick: Tick, seen: list[Any]) -> Outcome:
    return Wait(for_ms=120_000) if tick.reason == "created" else Done(seen)


async def _stumble(tick: Tick, seen: list[Any]) -> Outcome:
    paid = await tick.step("pay", _effect(tick, "pay"))
    if tick.call_number < 3:
        raise RuntimeError("the bank is closed")
    return Done([*seen, paid])


async def _die(tick: Tick, seen: list[Any]) -> Outcome:
    paid = await tick.step("pay", _effect(tick, "pay"))
    await tick.stream("word", tick.call_number)
    if tick.call_number == 1:
        await stop_here(tick.run_id)
    return Done([*seen, paid, tick.number])


async def _parent(tick: Tick, seen: list[Any]) -> Outcome:
    if tick.child is None:
        await tick.create_run(
            clog_id="desk", run_id="child", input="sleep", attributes={"plan": "nap"}, notify_parent=True
        )
        return Ok()
    return Done([*seen, tick.child.run_id, tick.child.output])


async def _count(tick: Tick, seen: list[Any]) -> Outcome:
    return Continue(tick.input + 1) if tick.input < 4 else Done(seen)


async def _fail(tick: Tick, seen: list[Any]) -> Outcome:
    return Failed("out of stock")


PLANS: dict[str, Callable[[Tick, list[Any]], Awaitable[Outcome]]] = {
    "done": _done,
    "collect": _collect,
    "alarm": _alarm,
    "nap": _nap,
    "stumble": _stumble,
    "die": _die,
    "parent": _parent,
    "count": _count,
    "fail": _fail,
}


async def end(tick: Tick) -> Outcome:
    """Undo in the last tick of a run that is cancelled or too late."""
    await tick.read(run=True)
    if tick.run.attributes.get("plan") == "die at end" and tick.call_number == 1:
        await stop_here(tick.run_id)
    refund = await tick.step("refund", _effect(tick, "refund"))
    await tick.write(run=["ended", tick.reason, refund])
    return Ok()


async def sleep_until_the_end(tick: Tick) -> Outcome:
    return Wait(for_ms=100 * HOUR_MS)


def kernel_clogs() -> list[Clog]:
    """Return the clogs of the first kernel's runs, created again at each call."""
    desk, guarded, resting = Clog("desk"), Clog("guarded"), Clog("resting")
    desk.on_advance(advance)
    guarded.on_advance(sleep_until_the_end)
    guarded.on_end(end)
    resting.on_advance(advance)
    return [desk, guarded, resting]


async def _create(w: World, run_id: str, plan: str, clog_id: str = "desk", **options: Any) -> None:
    attributes = {"plan": plan}
    await w.ocean.create_run(session_id="s", clog_id=clog_id, run_id=run_id, attributes=attributes, **options)


async def begin_kernel(w: World) -> dict[str, Any]:
    """Bring a run into every status and into every reason to wait that the first kernel had."""
    plans = {"done": "done", "failed": "fail", "timer": "alarm", "nap": "nap", "parent": "parent"}
    for run_id, plan in plans.items():
        await _create(w, run_id, plan, input="begin")
    await _create(w, "collecting", "collect", input="begin")
    await _create(w, "backing-off", "stumble", input="begin", retry=FOR_RETRIES)
    for run_id in ("cancelled", "ending", "ending-at-work", "late"):
        plan = "die at end" if run_id == "ending-at-work" else "sleep"
        deadline = {"deadline_at": START + 1_000_000} if run_id == "late" else {}
        await _create(w, run_id, plan, "guarded", input="begin", **deadline)
    await w.drain()
    await w.ocean.cancel_run("cancelled", reason="not wanted", request_key="cancel-7")
    await w.drain()

    await _create(w, "idle", "collect")
    await _create(w, "pending", "collect", input="begin")
    await w.ocean.signal("pending", "one", signal_id="one")
    await w.ocean.signal("pending", "two", signal_id="two", deliver_at=START + 600_000)
    await w.ocean.signal("pending", "three", signal_id="three", actor="ada")
    await _create(w, "keyed", "collect", input="begin", dedupe_key="order-7")
    await _create(w, "repeated", "collect", input="begin", request_key="request-7")
    await _create(w, "paused", "done", input="begin", priority=1)
    await w.ocean.pause_run("paused", request_key="pause-7")
    await _create(w, "resting", "done", "resting", input="begin")
    await w.ocean.pause_clog("resting", request_key="rest-7")
    await _create(w, "counting", "count", input=1)
    await w.ocean.advance(run_id="counting", max_ticks=1)
    await w.ocean.signal("collecting", "later", deliver_at=START + 300_000)
    await w.ocean.signal("timer", "hello", request_key="hello-7")
    await _create(w, "crashed", "die", input="begin", retry=FOR_RETRIES)
    await w.ocean.cancel_run("ending", reason="not wanted")
    await w.ocean.cancel_run("ending-at-work", reason="not wanted")
    return {}


async def signal_the_busy(w: World) -> None:
    """Signal the run whose process is going to die in it."""
    await w.ocean.signal("crashed", "while at work")


async def act_kernel(w: World, notes: dict[str, Any]) -> dict[str, Any]:
    """Do what callers do after the upgrade, repeated requests included, and return what they got."""
    again = await w.ocean.create_run(
        session_id="s",
        clog_id="desk",
        run_id="repeated",
        attributes={"plan": "collect"},
        input="begin",
        request_key="request-7",
    )
    holder = await w.ocean.create_run(
        session_id="s", clog_id="desk", attributes={"plan": "collect"}, input="begin", dedupe_key="order-7"
    )
    cancelled = await w.ocean.cancel_run("cancelled", reason="not wanted", request_key="cancel-7")
    paused = await w.ocean.pause_run("paused", request_key="pause-7")
    resting = await w.ocean.pause_clog("resting", request_key="rest-7")
    await w.ocean.signal("timer", "hello", request_key="hello-7")
    await w.ocean.signal("pending", "one", signal_id="one")
    await w.ocean.resume_run("paused")
    await w.ocean.resume_clog("resting")
    for run_id in ("idle", "keyed", "repeated"):
        await w.ocean.signal(run_id, "end", signal_id="end")
    await w.ocean.signal("pending", "end", deliver_at=START + 900_000)
    await w.ocean.signal("collecting", "end", deliver_at=START + 400_000)
    return {
        "repeated": [again.run_id, str(again.status)],
        "keyed": holder.run_id,
        "cancelled": [cancelled.run_id, str(cancelled.status)],
        "paused": [paused.run_id, paused.paused],
        "resting": [resting.clog_id, resting.paused],
    }


async def wait_an_hour(w: World) -> None:
    """Let an hour pass, with every run poked at the moment it is due."""
    until = w.clock.now() + HOUR_MS
    await w.drain()
    while (wake_at := (await w.ocean.advance(budget_ms=0)).next_wake_at) is not None and wake_at <= until:
        w.clock.advance(max(wake_at - w.clock.now(), 1))
        await w.drain()


async def results(w: World, run_ids: Iterable[str]) -> dict[str, Any]:
    """Return how each run stands, and what its inbox delivered in which tick."""
    return {run_id: await _result(w, run_id) for run_id in run_ids}


async def _result(w: World, run_id: str) -> dict[str, Any]:
    run = await w.ocean.get_run(run_id)
    assert run is not None, f"{run_id} is lost"
    inputs = await w.ocean.list_inputs(run_id)
    found = {
        "status": str(run.status),
        "output": run.output,
        "error": run.error["code"] if run.error else None,
        "inputs": [
            [entry.number, str(entry.kind), entry.signal_id, entry.timer, entry.actor, entry.consumed_tick]
            for entry in inputs
        ],
        "effects": {name: count for name, count in sorted(effects.items()) if name.split()[0] == run_id},
        "collected": [event.payload for event in await w.ocean.read_events(run_id) if event.type == "collected"],
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain
