"""The line behind a full concurrency key: who joins it when, who keeps a place in it, and who leaves it for good."""

import pytest

from ocean.kernel.effects import CancelTimer, Effects, SetTimer
from ocean.kernel.records import ClogRecord, RunStatus
from ocean.kernel.store import Store
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    OTHER_CLOG,
    a_call,
    a_run,
    a_signal,
    an_ask,
    claimed_run,
    commit,
    pending,
    the_run,
    types,
)

pytestmark = pytest.mark.anyio


async def test_a_parked_run_that_is_cancelled_parks_for_its_last_tick_in_the_same_transaction(store: Store) -> None:
    await store.register_clogs([ClogRecord(CLOG, "1", has_on_end=True)])
    await claimed_run(store, "holder", concurrency_keys=["k"])
    await pending(store, "r", concurrency_keys=["k"])
    cancelled = await store.cancel_run("r", None, None, None)
    assert (cancelled.status, cancelled.parked_on, cancelled.due_at) == (RunStatus.PENDING, "k", None)
    assert (await types(store, "r"))[-2:] == ["run.ending", "run.parked"]


async def test_a_last_tick_goes_before_the_calls_that_a_paused_clog_does_not_get(store: Store) -> None:
    await store.register_clogs([ClogRecord(OTHER_CLOG, "1", has_on_end=True)])
    held = await claimed_run(store, "holder", concurrency_keys=["k"])
    for run_id, priority in (("first", 5), ("urgent", 0), ("ending", 9)):
        await pending(store, run_id, clog_id=OTHER_CLOG, priority=priority, concurrency_keys=["k"])
    await store.cancel_run("ending", None, None, None)
    await store.set_clog_paused(OTHER_CLOG, True, None, None)
    await commit(store, held)
    (last,) = await store.claim_due(an_ask())
    assert (last.run.run_id, last.reason) == ("ending", "cancel")
    await commit(store, last)
    assert await store.claim_due(an_ask()) == []
    await store.set_clog_paused(OTHER_CLOG, False, None, None)
    assert [claim.run.run_id for claim in await store.claim_due(an_ask())] == ["urgent"]


async def test_a_run_that_has_nothing_to_do_any_more_leaves_the_line_for_good(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, "holder", concurrency_keys=["k"])
    await store.create_run(a_run("r", concurrency_keys=["k"]), None)
    await store.commit_call(a_call(Effects(timers=[SetTimer("t", clock.now() + 10, None)])))
    clock.advance(10)
    assert await store.claim_due(an_ask()) == []
    assert (await the_run(store)).parked_on == "k"
    await store.commit_call(a_call(Effects(timers=[CancelTimer("t")])))
    assert (await the_run(store)).status is RunStatus.IDLE
    clock.advance(10)
    await store.deliver_signal(a_signal("r", 1), None)
    run = await the_run(store)
    assert (run.parked_on, run.parked_at) == ("k", clock.now()), "the wait for the next tick is a new one"
    assert (await types(store)).count("run.parked") == 2
