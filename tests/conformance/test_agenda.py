"""`agenda`: what is due for the clogs of an instance, when to poke next, and what other instances must do."""

import anyio
import pytest

from ocean.kernel.store import Store
from ocean.state.backoff import RetryPolicy
from ocean.state.outcomes import Done, Retry, Wait
from ocean.state.records import Agenda
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, LOCK_MS, OTHER_CLOG, a_run, claimed_run, ended_run, pending, run_tick

pytestmark = pytest.mark.anyio

NOTHING = Agenda(0, None, 0, 0)


async def test_an_empty_store_has_nothing_on_its_agenda(store: Store) -> None:
    assert await store.agenda([CLOG]) == NOTHING


async def test_idle_and_ended_runs_are_never_due(store: Store) -> None:
    await store.create_run(a_run("idle"), None)
    await ended_run(store, "done", Done())
    assert await store.agenda([CLOG]) == NOTHING


async def test_due_runs_are_counted_with_the_age_of_the_oldest(store: Store, clock: ManualClock) -> None:
    first = clock.now()
    for number in range(3):
        await pending(store, f"r{number}", priority=number)
        clock.advance(100)
    assert await store.agenda([CLOG]) == Agenda(3, first, 300, 0)


async def test_runs_of_clogs_elsewhere_are_unclaimable_and_set_no_time(store: Store, clock: ManualClock) -> None:
    await pending(store, "theirs", clog_id=OTHER_CLOG)
    clock.advance(50)
    assert await store.agenda([CLOG]) == Agenda(0, None, 0, 1)
    assert await store.agenda([]) == Agenda(0, None, 0, 1)
    assert (await store.agenda([CLOG, OTHER_CLOG])).due_now == 1


@pytest.mark.parametrize("sleep", ["waiting", "backing off", "locked"])
async def test_the_next_time_is_a_wake_a_back_off_or_a_locks_end(store: Store, clock: ManualClock, sleep: str) -> None:
    await pending(store)
    match sleep:
        case "waiting":
            await run_tick(store, "r", Wait(for_ms=7_000))
            at = clock.now() + 7_000
        case "backing off":
            await run_tick(store, "r", Retry("no"))
            at = clock.now() + 1_000
        case _:
            await claimed_run(store)
            at = clock.now() + LOCK_MS
    assert await store.agenda([CLOG]) == Agenda(0, at, 0, 0)
    clock.advance(at - clock.now() + 5)
    assert await store.agenda([CLOG]) == Agenda(1, at, 5, 0)


async def test_a_paused_clogs_due_runs_are_unclaimable(store: Store) -> None:
    await pending(store)
    await store.set_clog_paused(CLOG, True, None, None)
    assert await store.agenda([CLOG]) == Agenda(0, None, 0, 1)


async def test_a_paused_run_is_on_no_agenda_but_its_deadline_is_on_every_agenda(
    store: Store, clock: ManualClock
) -> None:
    await pending(store)
    await store.set_run_paused("r", True, None, None)
    assert await store.agenda([CLOG]) == NOTHING
    at = clock.now() + 500
    await pending(store, "dated", deadline_at=at)
    await store.set_run_paused("dated", True, None, None)
    assert await store.agenda([CLOG]) == Agenda(0, at, 0, 0)
    assert await store.agenda([]) == Agenda(0, at, 0, 0)


async def test_the_end_of_a_last_call_is_on_every_agenda(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, retry=RetryPolicy(max_attempts=1))
    assert await store.agenda([]) == Agenda(0, clock.now() + LOCK_MS, 0, 0)


async def test_counting_stops_at_a_thousand(store: Store) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(1_005):
            run = a_run(f"r{number}", input={}, clog_id=OTHER_CLOG if number % 500 == 0 else CLOG)
            tasks.start_soon(store.create_run, run, None)
    agenda = await store.agenda([CLOG])
    assert (agenda.due_now, agenda.unclaimable) == (1_000, 3)
