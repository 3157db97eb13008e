"""Turns: after two conflicts a tick reserves its rows, and other writers wait behind it."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed, Contended
from ocean.kernel.store.runs import Behind
from ocean.state.effects import RowWrite
from ocean.state.outcomes import Continue, Ok, Retry
from ocean.state.records import Claim, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    GLOBAL,
    LOCK_MS,
    SESSION,
    TablesOf,
    a_call,
    claim,
    claimed_run,
    commit,
    commit_of,
    pending,
    row,
    run_tick,
    writes,
)

pytestmark = pytest.mark.anyio


async def _beaten(store: Store, held: Claim, by: str) -> Contended:
    """Let another run's commit change the session row, so that this tick conflicts."""
    stale = await row(store, SESSION)
    await pending(store, by)
    await run_tick(store, by, Ok(), writes((SESSION, stale.version, f'"{by}"')))
    result = await commit(store, held, Ok(), writes((SESSION, stale.version, '"slow"')))
    assert isinstance(result, Contended)
    return result


async def test_the_second_conflict_gives_the_tick_its_turn(store: Store) -> None:
    held = await claimed_run(store)
    rival = await claimed_run(store, "rival")
    assert await _beaten(store, held, "quick") == Contended(2, False)
    assert await _beaten(store, held, "quicker") == Contended(3, False)
    current = await row(store, SESSION)
    assert await commit(store, rival, Ok(), writes((SESSION, current.version, "1"))) == Behind()
    mine = commit_of(held, Ok(), writes((SESSION, current.version, '"slow"')), call=3)
    assert await store.commit_tick(mine) == Committed(RunStatus.IDLE)
    assert (await row(store, SESSION)).text == '"slow"'


async def test_a_beaten_tick_must_ask_for_its_turn_while_another_has_one_of_its_rows(store: Store) -> None:
    held = await claimed_run(store)
    rival = await claimed_run(store, "rival")
    await _beaten(store, held, "quick")
    stale = await row(store, SESSION)
    await pending(store, "quicker")
    await run_tick(store, "quicker", Ok(), writes((SESSION, stale.version, "1")))
    assert await store.take_turn(held.lock, [SESSION])
    assert await store.take_turn(rival.lock, [GLOBAL])
    both = writes((SESSION, stale.version, "2"), (GLOBAL, 0, "2"))
    assert await commit(store, held, Ok(), both) == Contended(3, must_take_turn=True)
    assert not await store.take_turn(held.lock, [SESSION, GLOBAL])
    assert await commit(store, rival, Ok(), writes((GLOBAL, 0, "1"))) == Committed(RunStatus.IDLE)
    assert await store.take_turn(held.lock, [SESSION, GLOBAL])


async def test_a_writer_behind_a_turn_changes_nothing_whatever_it_writes(store: Store, tables: TablesOf) -> None:
    held = await claimed_run(store)
    rival = await claimed_run(store, "rival")
    await pending(store, "called")
    assert await store.take_turn(held.lock, [SESSION])
    before = await tables()
    plain = writes((SESSION, 0, "1"))
    function = writes()
    function.writes.append(RowWrite(SESSION, 0, apply=lambda old: "1"))
    for effects in (plain, function):
        assert await commit(store, rival, Ok(), effects) == Behind()
        assert await store.commit_call(a_call(effects, run_id="called")) == Behind()
    assert await tables() == before
    assert await commit(store, rival, Ok(), writes((GLOBAL, 0, "1"))) == Committed(RunStatus.IDLE)


async def test_a_turn_is_all_rows_or_none(store: Store, tables: TablesOf) -> None:
    held = await claimed_run(store)
    rival = await claimed_run(store, "rival")
    assert await store.take_turn(held.lock, [SESSION])
    before = await tables()
    assert not await store.take_turn(rival.lock, [GLOBAL, SESSION])
    assert await tables() == before
    assert await store.take_turn(held.lock, [SESSION, GLOBAL])


async def test_a_turn_whose_call_has_crashed_leaves_no_row(store: Store, clock: ManualClock, tables: TablesOf) -> None:
    held = await claimed_run(store)
    assert await store.take_turn(held.lock, [SESSION])
    clock.advance(LOCK_MS)
    assert await commit(store, await claim(store, "r"), Ok()) == Committed(RunStatus.IDLE)
    columns, *turns = (await tables())["ocean_turns"]
    assert ("row_key" in columns, turns) == (True, [])


async def test_waiting_for_a_turn_counts_as_no_commit(store: Store) -> None:
    held = await claimed_run(store)
    rival = await claimed_run(store, "rival")
    assert await store.take_turn(held.lock, [SESSION])
    seen = store.commits_seen()
    assert await commit(store, rival, Ok(), writes((SESSION, 0, "1"))) == Behind()
    assert not await store.take_turn(rival.lock, [SESSION])
    assert store.commits_seen() == seen
    assert await commit(store, held, Ok(), writes((SESSION, 0, "1"))) == Committed(RunStatus.IDLE)
    assert store.commits_seen() > seen


@pytest.mark.parametrize("end", ["commit", "retry", "give back", "cancel", "lapse", "delete"])
async def test_a_turn_is_over_as_soon_as_its_tick_is(store: Store, clock: ManualClock, end: str) -> None:
    held = await claimed_run(store)
    assert await store.take_turn(held.lock, [SESSION])
    match end:
        case "commit":
            await commit(store, held, Continue())
        case "retry":
            await commit(store, held, Retry("no"))
        case "give back":
            await store.give_back(held.lock, held.tick)
        case "cancel":
            await store.cancel_run("r", None, None, None)
        case "lapse":
            clock.advance(LOCK_MS)
        case "delete":
            await store.delete_run("r", None, None)
    rival = await claimed_run(store, "rival")
    assert await commit(store, rival, Ok(), writes((SESSION, 0, "1"))) == Committed(RunStatus.IDLE)


async def test_the_next_holder_of_the_run_does_not_inherit_the_turn(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store)
    assert await store.take_turn(held.lock, [SESSION])
    clock.advance(LOCK_MS)
    await claim(store, "r", instance_id="i-b")
    rival = await claimed_run(store, "rival")
    assert await commit(store, rival, Ok(), writes((SESSION, 0, "1"))) == Committed(RunStatus.IDLE)
