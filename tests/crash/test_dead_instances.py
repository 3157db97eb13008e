"""A process is killed while it holds a lock of half a minute: another one on the same host continues at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from ocean import Ocean, RunInfo
from ocean.ticker import ticker
from tests.crash.ferry_clog import WORKED, ferry
from tests.crash.places import Place, history_of, url_of
from tests.crash.processes import Start, Victim

pytestmark = pytest.mark.anyio

LOCK_MS = 30_000
AT_ONCE_S = 10
"""Far less than the lock lasts, but enough for a busy machine."""


@asynccontextmanager
async def opened(db: Place) -> AsyncIterator[Ocean]:
    async with Ocean.open(url_of(db), clogs=[ferry(history_of(db))]) as ocean:
        yield ocean


async def made(db: Place) -> str:
    async with opened(db) as ocean:
        return (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": 1, "last": True})).run_id


def at_work(start: Start, db: Place, run_id: str) -> Victim:
    victim = start("halt", db, WORKED, run_id, 1, 10_000, LOCK_MS)
    assert victim.read_line() == WORKED
    return victim


async def info(ocean: Ocean, run_id: str) -> RunInfo:
    run = await ocean.get_run(run_id)
    assert run is not None
    return run


async def test_a_process_started_after_the_kill_continues_the_run_at_once(db: Place, start: Start) -> None:
    run_id = await made(db)
    victim = at_work(start, db, run_id)
    victim.kill()
    with anyio.fail_after(AT_ONCE_S):
        async with opened(db) as ocean:
            assert (await ocean.explain(run_id)).is_claimable
            assert (await ocean.result(run_id))["cargo"] == 1
            commits = [event for event in await ocean.read_events(run_id) if event.type == "tick.committed"]
    assert [(event.call, event.payload["instance"]) for event in commits] == [(2, ocean.instance_id)]


async def test_a_server_that_is_idle_beside_it_continues_the_run_at_once(db: Place, start: Start) -> None:
    run_id = await made(db)
    async with opened(db) as ocean:
        victim = at_work(start, db, run_id)
        (hold,) = (await ocean.explain(run_id)).holds
        assert (hold.holder, f"(process {victim.pid} on this host)" in hold.message) == (victim.instance, True)
        async with ticker(ocean):
            victim.kill()
            with anyio.fail_after(AT_ONCE_S):
                assert (await ocean.result(run_id))["cargo"] == 1


async def test_a_frozen_process_keeps_its_run(db: Place, start: Start) -> None:
    run_id = await made(db)
    victim = at_work(start, db, run_id)
    victim.freeze()
    async with opened(db) as ocean:
        (hold,) = (await ocean.explain(run_id)).holds
        assert (hold.code, hold.holder) == ("locked", victim.instance)
        assert (await ocean.advance()).advanced == 0
        assert (await info(ocean, run_id)).locked_by == victim.instance
        victim.thaw()
        victim.go_on()
        assert victim.read_line() == "done"
        assert (await ocean.result(run_id))["cargo"] == 1
        commits = [event for event in await ocean.read_events(run_id) if event.type == "tick.committed"]
        assert [(event.call, event.payload["instance"]) for event in commits] == [(1, victim.instance)]
        victim.go_on()
        assert victim.read_line() == ""
        assert [each.instance_id for each in await ocean.instances.others(10)] == []
