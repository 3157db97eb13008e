"""The fence: a write under an old epoch, or for a run that is not active, changes no row of any table."""

from collections.abc import Awaitable, Callable

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed
from ocean.state.effects import Effects, NewEvent, SetTimer
from ocean.state.errors import LockLost
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait
from ocean.state.records import Claim, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    LOCK_MS,
    SESSION,
    TablesOf,
    a_run,
    a_signal,
    claim,
    claimed_run,
    commit,
    pending,
    run_row,
    run_tick,
    the_run,
    types,
    writes,
)

pytestmark = pytest.mark.anyio

Write = Callable[[Store, Claim], Awaitable[object]]
Lose = Callable[[Store, ManualClock], Awaitable[object]]


def _effects() -> Effects:
    """Return effects that write to every table a commit can write."""
    effects = writes((SESSION, 0, "1"), (run_row(), 0, "1"))
    effects.events.append(NewEvent("said", "{}", "counter"))
    effects.signals.append(a_signal("bystander", 1))
    effects.runs.append(a_run("child", input=1))
    effects.timers.append(SetTimer("t", 2_000_000_000_000, None))
    effects.attributes["a"] = 1
    effects.delete_runs.append(("counter", "bystander"))
    return effects


def _commit(outcome: Ok | Done | Continue | Wait | Retry | Failed) -> Write:
    return lambda store, held: commit(store, held, outcome, _effects())


WRITES: dict[str, Write] = {
    "ok": _commit(Ok()),
    "done": _commit(Done()),
    "continue": _commit(Continue()),
    "wait": _commit(Wait(for_ms=5)),
    "retry": _commit(Retry("no")),
    "failed": _commit(Failed("no")),
    "stream": lambda store, held: store.append_streamed(held.lock, held.tick, 1, [NewEvent("said", "{}", "counter")]),
    "step": lambda store, held: store.store_step(held.lock, held.tick, "pay", "1"),
    "run step": lambda store, held: store.store_step(held.lock, 0, "pay", "1"),
    "turn": lambda store, held: store.take_turn(held.lock, [SESSION]),
}


async def _taken_over(store: Store, clock: ManualClock) -> None:
    clock.advance(LOCK_MS)
    await claim(store, instance_id="i-b")


async def _taken_over_and_committed(store: Store, clock: ManualClock) -> None:
    await _taken_over(store, clock)
    clock.advance(LOCK_MS)
    await run_tick(store, "r", Continue())


async def _next_tick_at_work(store: Store, clock: ManualClock) -> None:
    await _taken_over_and_committed(store, clock)
    await claim(store, instance_id="i-b")


async def _cancelled(store: Store, clock: ManualClock) -> None:
    await store.cancel_run("r", None, None, None)


async def _deleted(store: Store, clock: ManualClock) -> None:
    await store.delete_run("r", None, None)


async def _created_again(store: Store, clock: ManualClock) -> None:
    await store.delete_run("r", None, None)
    await claimed_run(store)


LOSSES: list[Lose] = [_taken_over, _taken_over_and_committed, _next_tick_at_work, _cancelled, _deleted, _created_again]


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__.strip("_"))
async def test_no_write_of_a_former_holder_changes_anything(
    store: Store, clock: ManualClock, tables: TablesOf, lose: Lose
) -> None:
    await store.create_run(a_run("bystander"), None)
    held = await claimed_run(store)
    await lose(store, clock)
    before = await tables()
    for name, write in WRITES.items():
        with pytest.raises(LockLost):
            await write(store, held)
        assert await tables() == before, name


@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__.strip("_"))
async def test_giving_back_or_renewing_a_lost_lock_changes_nothing(
    store: Store, clock: ManualClock, tables: TablesOf, lose: Lose
) -> None:
    held = await claimed_run(store)
    await lose(store, clock)
    before = await tables()
    assert await store.give_back(held.lock, held.tick) is None
    assert store.renew_locks([held.lock]).lost == {held.lock}
    assert await tables() == before


async def test_a_lock_that_was_given_back_is_no_longer_valid(store: Store, tables: TablesOf) -> None:
    held = await claimed_run(store)
    assert await store.give_back(held.lock, held.tick) is RunStatus.PENDING
    before = await tables()
    for write in WRITES.values():
        with pytest.raises(LockLost):
            await write(store, held)
    assert await tables() == before


async def test_an_expired_lock_that_was_not_taken_over_still_commits(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store)
    clock.advance(LOCK_MS * 3)
    await store.append_streamed(held.lock, 1, 1, [NewEvent("said", "{}", "counter")])
    assert await commit(store, held, Done(1)) == Committed(RunStatus.DONE)


async def test_renewal_extends_what_is_held_and_names_what_is_lost_in_one_call(
    store: Store, clock: ManualClock
) -> None:
    kept = await claimed_run(store, "kept")
    lost = await claimed_run(store, "lost")
    await store.cancel_run("lost", None, None, None)
    clock.advance(LOCK_MS - 1)
    assert store.renew_locks([kept.lock, lost.lock]).lost == {lost.lock}
    run = await the_run(store, "kept")
    assert (run.lock_expires_at, run.lock_epoch) == (clock.now() + LOCK_MS, kept.lock.epoch)
    clock.advance(LOCK_MS - 1)
    assert await commit(store, kept) == Committed(RunStatus.IDLE)


async def test_renewal_never_shortens_a_lock(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store)
    clock.jump(-10_000)
    assert store.renew_locks([held.lock]) == (set(), set())
    assert (await the_run(store)).lock_expires_at == held.lock_expires_at
    clock.jump(10_000)


async def test_two_give_backs_are_free_and_the_third_is_an_attempt(store: Store) -> None:
    await pending(store)
    attempts = []
    for _ in range(4):
        held = await claim(store)
        await store.give_back(held.lock, held.tick)
        attempts.append((await the_run(store)).attempt)
    assert attempts == [0, 0, 1, 2]
    assert (await types(store, "r")).count("tick.given_back") == 4


async def test_a_step_result_is_stored_once_and_the_first_one_stands(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store)
    assert await store.read_step("r", 1, "pay") is None
    assert await store.store_step(held.lock, 1, "pay", '"first"') == '"first"'
    assert await store.store_step(held.lock, 1, "pay", '"second"') == '"first"'
    clock.advance(LOCK_MS)
    again = await claim(store, instance_id="i-b")
    assert await store.store_step(again.lock, 1, "pay", '"third"') == '"first"'
    assert await store.read_step("r", 1, "pay") == '"first"'
    assert await store.read_step("r", 0, "pay") is None
