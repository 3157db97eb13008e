"""`deliver_signal`: what arrives, what it changes, and what is refused without a write."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.runs import Request
from ocean.state.effects import Effects, SetTimer
from ocean.state.errors import RunBusy, RunEnded, RunNotFound, SignalIdReused
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import InputKind, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    TablesOf,
    a_run,
    a_signal,
    claim,
    claimed_run,
    commit,
    ended_run,
    events,
    pending,
    run_tick,
    the_run,
)

pytestmark = pytest.mark.anyio


async def test_idle_becomes_pending_and_the_input_is_there(store: Store, clock: ManualClock) -> None:
    await store.create_run(a_run(), None)
    receipt = await store.deliver_signal(a_signal(input={"n": 1}), None)
    assert (receipt.number, receipt.status) == (1, RunStatus.PENDING)
    assert (await events(store, "r"))[-1].seq == receipt.seq
    (given,) = (await claim(store)).inputs
    assert (given.kind, given.body, given.available_at) == (InputKind.SIGNAL, {"n": 1}, clock.now())


async def test_waiting_becomes_pending_at_once_and_the_old_wake_time_holds_nothing_back(
    store: Store, clock: ManualClock
) -> None:
    await pending(store)
    assert await run_tick(store, "r", Wait(for_ms=60_000)) is RunStatus.WAITING
    assert (await store.deliver_signal(a_signal(), None)).status is RunStatus.PENDING
    run = await store.get_run("r")
    assert run is not None
    assert (run.wake_at, run.due_at) == (None, clock.now())


async def test_a_back_off_is_not_cut_short(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await run_tick(store, "r", Retry("no"))
    held = await the_run(store)
    assert (await store.deliver_signal(a_signal(), None)).status is RunStatus.PENDING
    run = await the_run(store)
    assert (run.wake_at, run.attempt) == (held.wake_at, 1)
    assert run.wake_at == clock.now() + 1_000


async def test_an_active_run_stays_with_its_holder_and_the_signal_queues(store: Store) -> None:
    taken = await claimed_run(store)
    assert (await store.deliver_signal(a_signal(), None)).status is RunStatus.ACTIVE
    assert (await the_run(store)).lock_epoch == taken.lock.epoch
    result = await commit(store, taken)
    assert getattr(result, "status", None) is RunStatus.PENDING


@pytest.mark.parametrize("outcome", [Done(1), Failed("no")], ids=["done", "failed"])
async def test_an_ended_run_refuses_signals_and_writes_nothing(
    store: Store, tables: TablesOf, outcome: Outcome
) -> None:
    await ended_run(store, "r", outcome)
    before = await tables()
    with pytest.raises(RunEnded):
        await store.deliver_signal(a_signal(), Request("key", "hash"))
    assert await tables() == before


async def test_an_unknown_run_refuses_signals_and_writes_nothing(store: Store, tables: TablesOf) -> None:
    before = await tables()
    with pytest.raises(RunNotFound):
        await store.deliver_signal(a_signal("nobody"), None)
    assert await tables() == before


async def test_a_signal_id_is_delivered_once_also_after_the_run_ended(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    first = await store.deliver_signal(a_signal(input=1, signal_id="x"), None)
    again = await store.deliver_signal(a_signal(input=1, signal_id="x"), None)
    assert again == first
    await run_tick(store, "r", Done())
    before = await tables()
    assert await store.deliver_signal(a_signal(input=1, signal_id="x"), None) == first
    assert await tables() == before


@pytest.mark.parametrize("is_ended", [False, True])
async def test_a_signal_id_with_another_body_is_refused(store: Store, tables: TablesOf, is_ended: bool) -> None:
    await store.create_run(a_run(), None)
    await store.deliver_signal(a_signal(input=1, signal_id="x"), None)
    if is_ended:
        await run_tick(store, "r", Done())
    before = await tables()
    with pytest.raises(SignalIdReused):
        await store.deliver_signal(a_signal(input=2, signal_id="x"), None)
    assert await tables() == before


async def test_the_same_signal_id_on_two_runs_is_two_signals(store: Store) -> None:
    for run_id in ("a", "b"):
        await store.create_run(a_run(run_id), None)
        assert (await store.deliver_signal(a_signal(run_id, 1, signal_id="x"), None)).number == 1


async def test_if_idle_is_refused_unless_the_run_is_idle(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    assert (await store.deliver_signal(a_signal(if_idle=True), None)).status is RunStatus.PENDING
    before = await tables()
    with pytest.raises(RunBusy) as refused:
        await store.deliver_signal(a_signal(if_idle=True), None)
    assert refused.value.details["status"] is RunStatus.PENDING
    assert await tables() == before
    held = await claim(store)
    with pytest.raises(RunBusy) as refused:
        await store.deliver_signal(a_signal(if_idle=True), None)
    assert (refused.value.details["locked_by"], refused.value.details["lock_expires_at"]) == (
        "i-a",
        held.lock_expires_at,
    )


async def test_a_delayed_signal_wakes_the_run_at_its_time_and_not_before(store: Store, clock: ManualClock) -> None:
    await store.create_run(a_run(), None)
    at = clock.now() + 5_000
    assert (await store.deliver_signal(a_signal(deliver_at=at), None)).status is RunStatus.WAITING
    assert (await the_run(store)).wake_at == at
    clock.advance(4_999)
    assert await store.agenda(["counter"]) == type(await store.agenda([]))(0, at, 0, 0)
    clock.advance(1)
    assert (await claim(store)).inputs[0].available_at == at


async def test_a_delayed_signal_brings_a_wake_time_forward_but_never_back(store: Store, clock: ManualClock) -> None:
    now = clock.now()
    await pending(store)
    await run_tick(store, "r", Wait(until=now + 10_000))
    await store.deliver_signal(a_signal(deliver_at=now + 20_000), None)
    assert (await the_run(store)).wake_at == now + 10_000
    await store.deliver_signal(a_signal(deliver_at=now + 5_000), None)
    assert (await the_run(store)).wake_at == now + 5_000


async def test_inputs_come_by_availability_then_number_and_a_continuation_before_them_all(
    store: Store, clock: ManualClock
) -> None:
    now = clock.now()
    await store.create_run(a_run(), None)
    await store.deliver_signal(a_signal(input="late", deliver_at=now + 100), None)
    await store.deliver_signal(a_signal(input="first"), None)
    await store.deliver_signal(a_signal(input="second"), None)
    await store.deliver_signal(a_signal(input="early", deliver_at=now + 50), None)
    clock.advance(200)
    seen = []
    for outcome in (Continue("on"), Ok(), Ok(), Ok(), Ok()):
        taken = await claim(store)
        seen.append(taken.inputs[0].body)
        await commit(store, taken, outcome)
    assert seen == ["first", "on", "second", "early", "late"]
    assert (await the_run(store)).status is RunStatus.IDLE


async def test_a_timer_survives_other_signals_and_is_replaced_by_its_name(store: Store, clock: ManualClock) -> None:
    now = clock.now()
    await pending(store)
    await run_tick(store, "r", Ok(), Effects(timers=[SetTimer("t", now + 100, '"one"')]))
    await store.deliver_signal(a_signal(), None)
    await run_tick(store, "r", Ok(), Effects(timers=[SetTimer("t", now + 300, '"two"')]))
    run = await the_run(store)
    assert (run.status, run.wake_at, run.pending_count) == (RunStatus.WAITING, now + 300, 1)
    clock.advance(299)
    assert not (await store.agenda(["counter"])).due_now
    clock.advance(1)
    taken = await claim(store)
    assert [(given.timer, given.body) for given in taken.inputs] == [("t", "two")]
    assert taken.reason == "timer"


async def test_a_request_key_makes_a_signal_once(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    first = await store.deliver_signal(a_signal(input=1), Request("key", "hash"))
    before = await tables()
    assert await store.deliver_signal(a_signal(input=1), Request("key", "hash")) == first
    assert await tables() == before


async def test_due_inputs_are_listed_in_delivery_order_without_those_of_the_tick(
    store: Store, clock: ManualClock
) -> None:
    held = await claimed_run(store, input="the tick's own")
    assert await store.due_inputs("r", 10) == []
    await store.deliver_signal(a_signal(input="later", deliver_at=clock.now() + 50), None)
    await store.deliver_signal(a_signal(input="first"), None)
    await store.deliver_signal(a_signal(input="second"), None)
    assert [each.body for each in await store.due_inputs("r", 10)] == ["first", "second"]
    clock.advance(50)
    assert [each.body for each in await store.due_inputs("r", 10)] == ["first", "second", "later"]
    assert [each.body for each in await store.due_inputs("r", 1)] == ["first"]
    await commit(store, held, Ok())
    assert [each.body for each in (await claim(store)).inputs] == ["first"]
    assert [each.body for each in await store.due_inputs("r", 10)] == ["second", "later"]
    assert await store.due_inputs("nobody", 10) == []
