"""External clogs, and the calls of a worker in one line each."""

import hashlib
from typing import Any

from ocean import CLEAR, Clog, Lease, Tick
from ocean.testing import World

LEASE_MS = 10_000


def outside(clog_id: str = "e", **options: Any) -> Clog:
    """An external clog whose row direct calls can read and change while a worker has the run."""
    clog = Clog(clog_id, external=True, **options)

    @clog.method
    async def put(tick: Tick, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run=payload)

    @clog.method
    async def wipe(tick: Tick, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run=CLEAR)

    @clog.method
    async def look(tick: Tick, payload: Any) -> list[Any]:
        rows = await tick.read(run=True)
        return [rows.has_run, rows.run]

    return clog


async def leases(w: World, *, clog_id: str = "e", worker_id: str = "w1", **options: Any) -> list[Lease]:
    """Lease everything that is due."""
    return await w.ocean.claim_work(clog_id, worker_id=worker_id, **({"lease_ms": LEASE_MS, "limit": 10} | options))


async def lease(w: World, **options: Any) -> Lease:
    """Lease the one run that is due."""
    (found,) = await leases(w, **options)
    return found


async def row_of(w: World, run_id: str) -> list[Any]:
    """Return whether the run has a row, and its value."""
    found: list[Any] = await w.ocean.call_clog(run_id=run_id, method="look")
    return found


def hashed(lease_id: str) -> str:
    return hashlib.sha256(lease_id.encode()).hexdigest()
