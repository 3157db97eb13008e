"""`commit_call`: effects without a lock, guarded by row versions, with a result stored under a request key."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.runs import CallConflict, CallDone, Request
from ocean.state.effects import Effects, NewEvent, SetTimer
from ocean.state.errors import RequestKeyReused, RunEnded
from ocean.state.outcomes import Done
from ocean.state.records import RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    SESSION,
    TablesOf,
    a_call,
    a_run,
    a_signal,
    claimed_run,
    commit,
    ended_run,
    events,
    pending,
    row,
    run_row,
    the_run,
    types,
    writes,
)

pytestmark = pytest.mark.anyio


async def test_a_call_that_changes_nothing_writes_nothing(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    before = await tables()
    assert await store.commit_call(a_call(Effects(guards=[(SESSION, 0)]))) == CallDone('"yes"')
    assert await tables() == before


async def test_a_call_writes_rows_and_events_and_wakes_the_run_it_signals(store: Store) -> None:
    await store.create_run(a_run(), None)
    effects = writes((run_row(), 0, "1"))
    effects.events.append(NewEvent("approved", "{}", CLOG))
    effects.signals.append(a_signal())
    assert await store.commit_call(a_call(effects)) == CallDone('"yes"')
    assert (await the_run(store)).status is RunStatus.PENDING
    logged = await events(store, "r")
    assert [event.type for event in logged] == ["run.created", "approved", "run.signalled", "call.committed"]
    assert logged[-1].payload == {"method": "poke", "status": "pending"}
    assert logged[-1].actor == "someone"


async def test_a_call_on_a_clog_alone_writes_to_no_runs_log(store: Store) -> None:
    effects = writes((SESSION, 0, "1"))
    effects.events.append(NewEvent("noted", "{}", CLOG))
    await store.commit_call(a_call(effects, run_id=None))
    assert [(event.type, event.run_id, event.session_id) for event in await events(store)] == [
        ("noted", None, "s"),
        ("call.committed", None, "s"),
    ]


async def test_a_row_that_moved_on_refuses_the_call_without_a_trace(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    await store.commit_call(a_call(writes((run_row(), 0, "1"))))
    before = await tables()
    request = Request("key", "hash")
    assert await store.commit_call(a_call(writes((run_row(), 0, "2")), request=request)) == CallConflict()
    assert await tables() == before


async def test_a_call_writes_a_run_row_while_a_tick_has_the_lock_and_the_tick_conflicts(store: Store) -> None:
    held = await claimed_run(store)
    assert await store.commit_call(a_call(writes((run_row(), 0, '"call"')))) == CallDone('"yes"')
    result = await commit(store, held, Done(), writes((run_row(), 0, '"tick"')))
    assert type(result).__name__ == "Contended"
    assert (await row(store, run_row())).text == '"call"'


async def test_on_an_ended_run_a_call_may_change_nothing(store: Store, tables: TablesOf) -> None:
    await ended_run(store, "r", Done())
    before = await tables()
    for effects in (writes((run_row(), 0, "1")), writes((SESSION, 0, "1"))):
        with pytest.raises(RunEnded):
            await store.commit_call(a_call(effects))
    assert await store.commit_call(a_call(Effects())) == CallDone('"yes"')
    assert await tables() == before


async def test_a_request_key_stores_the_first_result(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    request = Request("key", "hash")
    await store.commit_call(a_call(writes((run_row(), 0, "1")), answer='"first"', request=request))
    before = await tables()
    assert await store.commit_call(a_call(writes((run_row(), 0, "2")), answer='"second"', request=request)) == (
        CallDone('"first"', is_repeated=True)
    )
    assert await store.stored_answer(request) == '"first"'
    with pytest.raises(RequestKeyReused):
        await store.commit_call(a_call(writes((run_row(), 0, "2")), request=Request("key", "other")))
    assert await tables() == before


async def test_a_result_without_effects_is_stored_too(store: Store) -> None:
    await store.create_run(a_run(), None)
    request = Request("key", "hash")
    await store.commit_call(a_call(Effects(), request=request))
    assert await store.stored_answer(request) == '"yes"'


async def test_a_timer_set_by_a_call_wakes_an_idle_run(store: Store, clock: ManualClock) -> None:
    await store.create_run(a_run(), None)
    at = clock.now() + 100
    await store.commit_call(a_call(Effects(timers=[SetTimer("t", at, None)])))
    run = await the_run(store)
    assert (run.status, run.wake_at) == (RunStatus.WAITING, at)


async def test_a_call_may_create_runs(store: Store) -> None:
    await pending(store)
    await store.commit_call(a_call(Effects(runs=[a_run("made", input=1)])))
    assert (await types(store, "made")) == ["run.created"]
