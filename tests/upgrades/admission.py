"""The part of the stored databases with concurrency keys, leases, counters, rates and debounces."""

from typing import Any

from ocean import Clog, Done, OceanError
from ocean.testing import World
from tests.upgrades.story import START


def admission_clogs() -> list[Clog]:
    """Return the clog whose runs are leased."""
    return [Clog("works", external=True)]


async def begin_admission(w: World) -> dict[str, Any]:
    """Bring runs into what they may wait for since there are keys, leases and rates."""
    desk: dict[str, Any] = {"session_id": "s", "clog_id": "desk", "input": "begin"}
    die, done = {"plan": "die"}, {"plan": "done"}
    rate: dict[str, Any] = {"rate_key": "mail", "rate_limit": 1, "rate_per_ms": 600_000}
    # The first is at work when its process dies; the others are parked behind it.
    await w.ocean.create_run(**desk, run_id="key-holder", attributes=die, concurrency_keys=["printer"])
    for run_id in ("parked-1", "parked-2"):
        await w.ocean.create_run(**desk, run_id=run_id, attributes=done, concurrency_keys=["printer"])
    for run_id in ("rate-1", "rate-2"):
        await w.ocean.create_run(**desk, run_id=run_id, attributes=done, **rate)
    debounced = await w.ocean.create_run(
        **desk, attributes=done, dedupe_key="draft", debounce_ms=50_000, debounce_max_ms=90_000
    )
    for run_id in ("leased", "lease-lapses"):
        await w.ocean.create_run(session_id="s", clog_id="works", run_id=run_id, input=run_id)
    leases = await w.ocean.claim_work("works", "a worker", limit=2)
    await w.ocean.take("cap", 3, limit=5)
    return {"debounced": debounced.run_id, "leases": {lease.run_id: lease.lease_id for lease in leases}}


async def act_admission(w: World, notes: dict[str, Any]) -> dict[str, Any]:
    """Complete a lease of before the upgrade, and take the rest of the counter."""
    await w.ocean.complete_work(notes["leases"]["leased"], Done("worked"))
    taken = [(await w.ocean.take("cap", 1, limit=5)).ok for _ in range(3)]
    return {"taken": taken, "parked": str((await w.ocean.explain("parked-2")).holds[0].code)}


async def finish_admission(w: World, notes: dict[str, Any]) -> dict[str, Any]:
    """Lease the run whose worker was silent for an hour again; its old lease counts no more."""
    lease = (await w.ocean.claim_work("works", "another worker"))[0]
    refused = None
    try:
        await w.ocean.complete_work(notes["leases"]["lease-lapses"], Done("too late"))
    except OceanError as error:
        refused = error.code
    await w.ocean.complete_work(lease.lease_id, Done([lease.run_id, lease.input]))
    assert w.clock.now() > START
    return {"leased again": lease.run_id, "old lease": refused}


ADMISSION = ("key-holder", "parked-1", "parked-2", "rate-1", "rate-2", "leased", "lease-lapses")
