"""A claim that waits: for work, up to its time, and only while its caller is connected."""

import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ocean import Clog, Lease, Ocean, RunStatus
from ocean.http.app import make_app
from ocean.stores.sqlite.store import SqliteStore
from tests.http.kit import CLAIM, AppWorld, AsgiCaller, app_world
from tests.lifecycle.acting import let_others_go_on, log, look

pytestmark = pytest.mark.anyio

TIMEOUT_S = 30


async def test_a_waiting_claim_returns_when_there_is_work(h: AppWorld) -> None:
    leases: list[Any] = []

    async def wait() -> None:
        leases.extend(await h.claim(waitMs=60_000))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await let_others_go_on(h.w)
        assert leases == []
        run_id = await h.new_external_run({})
    assert [lease["runId"] for lease in leases] == [run_id]


async def test_a_waiting_claim_returns_empty_after_its_time(h: AppWorld) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            assert await h.claim(waitMs=5_000) == []
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait)
        await let_others_go_on(h.w)
        h.w.clock.advance(5_000)
        await anyio.sleep_forever()


async def test_a_waiting_claim_returns_empty_when_the_server_stops(h: AppWorld) -> None:
    caller = AsgiCaller(h.w, "/v1/leases", CLAIM | {"waitMs": 60_000})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call)
        await caller.is_listening.wait()
        await let_others_go_on(h.w)
        caller.stopping.set()
    assert caller.response == (200, {"leases": []})
    late = AsgiCaller(h.w, "/v1/leases", CLAIM | {"waitMs": 60_000})
    late.stopping.set()
    await late.call()
    assert late.response == (200, {"leases": []})


async def test_a_claim_whose_caller_disconnects_stops_waiting_and_leases_nothing(h: AppWorld) -> None:
    caller = AsgiCaller(h.w, "/v1/leases", CLAIM | {"waitMs": 60_000})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call)
        await caller.is_listening.wait()
        await let_others_go_on(h.w)
        caller.disconnect()
    assert caller.sent == []
    run_id = await h.new_external_run({})
    assert (await look(h.w, run_id)).status is RunStatus.PENDING
    (lease,) = await h.claim()
    assert (lease["runId"], lease["call"], lease["attempt"]) == (run_id, 1, 0)


class Disconnecting(Ocean):
    """Its caller disconnects just when a lease has been created for it."""

    caller: AsgiCaller

    async def claim_work(self, *args: Any, **kwargs: Any) -> list[Lease]:
        leases = await super().claim_work(*args, **kwargs)
        self.caller.disconnect()
        return leases


async def test_a_lease_created_as_its_caller_disconnects_is_released(h: AppWorld) -> None:
    run_id = await h.new_external_run({})
    disconnecting = Disconnecting(h.w.store, [Clog("x", external=True)], h.w.clock)
    disconnecting.caller = AsgiCaller(
        h.w, "/v1/leases", CLAIM | {"leaseMs": 86_400_000}, app=make_app(disconnecting, poke_ms=0)
    )
    await disconnecting.caller.call()
    assert disconnecting.caller.sent == []
    (lease,) = await h.claim()
    assert (lease["runId"], lease["call"], lease["attempt"]) == (run_id, 2, 0)


async def test_a_lease_written_while_its_caller_disconnects_is_released(tmp_path: Path) -> None:
    """The lease exists but its id was never sent: it is released at once, not when it expires."""
    is_held, proceed = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        is_held.set()
        assert proceed.wait(TIMEOUT_S)

    async with app_world(f"sqlite:///{tmp_path / 'ocean.db'}") as h:
        assert isinstance(h.w.store, SqliteStore)
        database = h.w.store.database
        run_id = await h.new_external_run({})
        caller = AsgiCaller(h.w, "/v1/leases", CLAIM | {"leaseMs": 86_400_000})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.on_writer, hold)
            await anyio.to_thread.run_sync(is_held.wait, TIMEOUT_S)
            tasks.start_soon(caller.call)
            with anyio.fail_after(TIMEOUT_S):
                while not database._queue:
                    await anyio.lowlevel.checkpoint()
            caller.disconnect()
            await anyio.wait_all_tasks_blocked()
            proceed.set()

        assert caller.sent == []
        (given_back,) = await log(h.w, run_id, "tick.given_back")
        assert (given_back.payload["give_backs"], given_back.payload["attempt"]) == (1, 0)
        (lease,) = await h.claim()
        assert (lease["runId"], lease["tick"], lease["call"]) == (run_id, 1, 2)
