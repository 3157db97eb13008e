"""The line behind a full concurrency key: who joins it when, who keeps a place in it, and who leaves it for good."""


import pytest

from ocean.kernel.records import ClogRecord, RunStatus
from ocean.kernel.store import Store
from tests.conformance.kit import (
    CLOG,
    claimed_run,
    pending,
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
