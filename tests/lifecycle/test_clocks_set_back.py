"""A clock set back, or behind another instance's, delays a run by that much; no run is called without its input."""

from typing import Any

import pytest

from ocean import Clog, Done
from ocean.testing import world

pytestmark = pytest.mark.anyio

BACK_MS = 500


async def test_a_run_unparked_by_a_lagging_clock_is_not_called_without_its_input() -> None:
    async with world(clogs=[Clog("errand", external=True)]) as w:
        options: dict[str, Any] = {"session_id": "s", "clog_id": "errand", "concurrency_keys": ["k"]}
        await w.ocean.create_run(**options, input="first")
        (first,) = await w.ocean.claim_work("errand", "worker")
        second = await w.ocean.create_run(**options, input="second")
        assert second.parked_on == "k"
        w.clock.jump(-BACK_MS)
        await w.ocean.complete_work(first.lease_id, Done())
        assert await w.ocean.claim_work("errand", "worker") == []
        (hold,) = [hold for hold in (await w.ocean.explain(second.run_id)).holds if hold.code == "waiting"]
        assert hold.until == w.clock.now() + BACK_MS
        w.clock.advance(BACK_MS)
        (lease,) = await w.ocean.claim_work("errand", "worker")
        assert (lease.run_id, lease.reason, lease.input) == (second.run_id, "created", "second")


async def test_a_run_debounced_by_a_lagging_clock_is_not_called_without_its_input() -> None:
    async with world(clogs=[Clog("errand", external=True)]) as w:
        options: dict[str, Any] = {"session_id": "s", "clog_id": "errand", "dedupe_key": "d", "debounce_ms": 10}
        await w.ocean.create_run(**options, input="first")
        w.clock.jump(-BACK_MS)
        run = await w.ocean.create_run(**options, input="second")
        w.clock.advance(BACK_MS - 1)
        assert await w.ocean.claim_work("errand", "worker") == []
        w.clock.advance(1)
        (lease,) = await w.ocean.claim_work("errand", "worker")
        assert (lease.run_id, lease.reason, lease.input) == (run.run_id, "created", "second")
