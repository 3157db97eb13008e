"""`preview_claim`: equal to the claim made right after it, without a write."""

from collections.abc import Awaitable, Callable

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimAsk, Committed, NotClaimable
from ocean.state.backoff import RetryPolicy
from ocean.state.effects import Effects, SetTimer
from ocean.state.errors import RunNotFound
from ocean.state.outcomes import Continue, Done, Ok, Retry, Wait
from ocean.state.records import Claim, ClogRecord, Ending
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    GLOBAL,
    LOCK_MS,
    NO_CLOGS,
    TablesOf,
    a_run,
    a_signal,
    an_ask,
    claim,
    claimed_run,
    commit,
    pending,
    run_tick,
    the_run,
    writes,
)
from tests.conformance.test_claiming import HELD, RELEASED

pytestmark = pytest.mark.anyio

Arrange = Callable[[Store, ManualClock], Awaitable[object]]


async def created(store: Store, clock: ManualClock) -> None:
    await pending(store, input={"n": 1})


async def signals_in_a_row(store: Store, clock: ManualClock) -> None:
    await store.create_run(a_run(), None)
    await store.deliver_signal(a_signal(input="late", deliver_at=clock.now() + 50), None)
    for n in range(3):
        await store.deliver_signal(a_signal(input=n, signal_id=f"s{n}"), None)


async def continued(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await store.deliver_signal(a_signal(input="behind"), None)
    await run_tick(store, "r", Continue({"page": 2}))


async def woken(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await run_tick(store, "r", Wait(for_ms=10))
    clock.advance(10)


async def timer_fired(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await run_tick(store, "r", Ok(), Effects(timers=[SetTimer("t", clock.now() + 5, '"now"')]))
    clock.advance(5)


async def child_ended(store: Store, clock: ManualClock) -> None:
    await store.create_run(a_run(), None)
    await pending(store, "child", parent_run_id="r", notify_parent=True)
    await run_tick(store, "child", Done(7))


async def retrying(store: Store, clock: ManualClock) -> None:
    await pending(store, input="first")
    await run_tick(store, "r", Retry("no"))
    await store.deliver_signal(a_signal(input="behind"), None)
    clock.advance(1_000)


async def crashed(store: Store, clock: ManualClock) -> None:
    await claimed_run(store)
    await store.deliver_signal(a_signal(), None)
    clock.advance(LOCK_MS)


async def crashed_again(store: Store, clock: ManualClock) -> None:
    await crashed(store, clock)
    await claim(store, "r", instance_id="i-b")
    clock.advance(LOCK_MS)


async def given_back(store: Store, clock: ManualClock) -> None:
    taken = await claimed_run(store)
    await store.give_back(taken.lock, taken.tick)


async def crashed_after_a_conflict(store: Store, clock: ManualClock) -> None:
    taken = await claimed_run(store)
    assert not isinstance(await commit(store, taken, Ok(), writes((GLOBAL, 9, "1"))), Committed)
    clock.advance(LOCK_MS)


async def on_its_last_tick(store: Store, clock: ManualClock) -> None:
    await store.register_clogs([ClogRecord(CLOG, "1", True)])
    await pending(store)
    await store.cancel_run("r", "enough", None, None)


async def last_tick_given_back(store: Store, clock: ManualClock) -> None:
    await on_its_last_tick(store, clock)
    taken = await claim(store, "r")
    await store.give_back(taken.lock, taken.tick)


async def in_its_second_life(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await run_tick(store, "r", Ok())
    await store.delete_run("r", None, None)
    await pending(store)


CLAIMABLE: list[Arrange] = [
    created,
    signals_in_a_row,
    continued,
    woken,
    timer_fired,
    child_ended,
    retrying,
    crashed,
    crashed_again,
    given_back,
    crashed_after_a_conflict,
    on_its_last_tick,
    last_tick_given_back,
    in_its_second_life,
]


async def assert_preview_is_the_claim(store: Store, tables: TablesOf, ask: ClaimAsk) -> Claim:
    before = await tables()
    preview = await store.preview_claim(ask)
    assert await tables() == before
    (taken,) = await store.claim_due(ask)
    assert preview == taken
    return taken


@pytest.mark.parametrize("takes_all", [False, True], ids=["one input", "all inputs"])
@pytest.mark.parametrize("arrange", CLAIMABLE, ids=lambda arrange: arrange.__name__)
async def test_a_preview_is_the_claim_made_right_after_it(
    store: Store, clock: ManualClock, tables: TablesOf, arrange: Arrange, takes_all: bool
) -> None:
    await arrange(store, clock)
    ask = an_ask(run_id="r", limit=1, instance_id="i-p", takes_all_inputs=takes_all)
    taken = await assert_preview_is_the_claim(store, tables, ask)
    run = await the_run(store)
    assert (run.tick, run.attempt, run.lock_epoch) == (taken.tick, taken.run.attempt, taken.lock.epoch)
    (*_, tick) = await store.list_ticks("r", 0, 100)
    assert (tick.tick, tick.calls, tick.reason, tick.epoch) == (taken.tick, taken.call, taken.reason, taken.lock.epoch)


@pytest.mark.parametrize(("arrange", "release"), RELEASED, ids=lambda step: step.__name__.strip("_"))
async def test_a_preview_of_a_run_let_go_is_the_claim_made_right_after_it(
    store: Store,
    clock: ManualClock,
    tables: TablesOf,
    arrange: Callable[[Store], Awaitable[object]],
    release: Arrange,
) -> None:
    await arrange(store)
    await release(store, clock)
    await assert_preview_is_the_claim(store, tables, an_ask(run_id="r", limit=1))


@pytest.mark.parametrize("arrange", HELD, ids=lambda arrange: arrange.__name__.strip("_"))
async def test_a_preview_of_a_held_run_has_its_holds(
    store: Store, arrange: Callable[[Store], Awaitable[object]]
) -> None:
    await arrange(store)
    preview = await store.preview_claim(an_ask(run_id="r"))
    assert isinstance(preview, NotClaimable)
    assert preview.end is None
    name = arrange.__name__.strip("_")
    assert [hold.code for hold in preview.holds] == ["ended" if name in ("done", "failed") else name]


async def test_a_preview_for_an_instance_without_the_clog_has_that_hold(store: Store) -> None:
    await pending(store)
    preview = await store.preview_claim(ClaimAsk(NO_CLOGS.clogs, "i-a", 1, 0, "r"))
    assert isinstance(preview, NotClaimable)
    assert [hold.code for hold in preview.holds] == ["clog_elsewhere"]


async def test_a_preview_names_the_end_that_is_owed_and_makes_none(
    store: Store, clock: ManualClock, tables: TablesOf
) -> None:
    await pending(store, deadline_at=clock.now() + 5)
    await claimed_run(store, "last", retry=RetryPolicy(max_attempts=1))
    clock.advance(LOCK_MS)
    before = await tables()
    assert await store.preview_claim(an_ask(run_id="r")) == NotClaimable(end=Ending.DEADLINE)
    assert await store.preview_claim(an_ask(run_id="last")) == NotClaimable(end=Ending.EXHAUSTED)
    assert await tables() == before


async def test_a_preview_of_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(RunNotFound):
        await store.preview_claim(an_ask(run_id="nobody"))
