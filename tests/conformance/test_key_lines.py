"""The line of a full concurrency key: when a run joins it, keeps its place, and leaves it permanently."""

from typing import Any

import pytest

from ocean.kernel.new_runs import new_run
from ocean.kernel.store import Store
from ocean.state.effects import CancelTimer, Effects, NewRun, SetTimer
from ocean.state.records import ClogRecord, Key, KeyInfo, RunStatus
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


async def test_a_run_that_has_nothing_to_do_leaves_the_line_permanently(store: Store, clock: ManualClock) -> None:
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


def _debounced(keys: list[str | Key], run_id: str = "d", **options: Any) -> NewRun:
    facts: dict[str, Any] = {"session_id": "s", "clog_id": CLOG, "input": 1, "dedupe_key": "d", "debounce_ms": 10}
    return new_run(run_id=run_id, is_id_given=False, **facts, concurrency_keys=keys, actor=None, **options)


async def test_a_further_debounced_creation_replaces_the_keys(store: Store) -> None:
    for number, keys in enumerate(([Key("a")], [Key("b", "run"), Key("a")], [], [Key("c")])):
        again = await store.create_run(_debounced([*keys], "d" if not number else f"unused-{number}"), None)
        assert (again.run_id, again.concurrency_keys) == ("d", tuple(keys))


async def test_a_debounced_run_that_gets_other_keys_lets_those_behind_it_pass(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store, "holder", concurrency_keys=["a"])
    await store.create_run(_debounced(["a"]), None)
    clock.advance(10)
    assert await store.claim_due(an_ask()) == []
    clock.advance(1)
    await pending(store, "behind", concurrency_keys=["a"])
    await commit(store, held)
    assert [(await the_run(store, each)).parked_on for each in ("d", "behind")] == [None, "a"]
    await store.create_run(_debounced(["b"], "unused"), None)
    assert [claim.run.run_id for claim in await store.claim_due(an_ask())] == ["behind"]
    clock.advance(10)
    assert [claim.run.run_id for claim in await store.claim_due(an_ask())] == ["d"]
    assert await store.get_key("b") == KeyInfo("b", 1, 1, 0)


async def test_a_parked_debounced_run_is_delayed_again_and_its_start_is_a_new_wait(
    store: Store, clock: ManualClock
) -> None:
    await claimed_run(store, "holder", concurrency_keys=["a"])
    await store.create_run(_debounced(["a"]), None)
    clock.advance(10)
    assert await store.claim_due(an_ask()) == []
    again = await store.create_run(_debounced(["a"], "unused"), None)
    assert (again.parked_on, again.wake_at) == (None, clock.now() + 10)
    clock.advance(10)
    assert await store.claim_due(an_ask()) == []
    assert (await the_run(store, "d")).parked_at == clock.now()
    assert (await types(store, "d")) == ["run.created", "run.parked", "run.debounced", "run.parked"]


async def test_a_debounced_run_that_may_wait_no_longer_parks_on_its_new_key(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, "holder", concurrency_keys=["b"])
    await store.create_run(_debounced(["a"], debounce_max_ms=15), None)
    clock.advance(9)
    await store.create_run(_debounced(["a"], "unused", debounce_max_ms=15), None)
    clock.advance(6)
    again = await store.create_run(_debounced(["b"], "unused", debounce_max_ms=15), None)
    assert (again.parked_on, again.due_at) == ("b", None)


async def test_a_cancelled_holder_keeps_what_it_has_for_its_life_until_its_last_tick_is_over(store: Store) -> None:
    await store.register_clogs([ClogRecord(CLOG, "1", has_on_end=True)])
    held = await claimed_run(store, "r", concurrency_keys=[Key("life", "run"), "tick"])
    for key in ("life", "tick"):
        await pending(store, f"behind-{key}", clog_id=OTHER_CLOG, concurrency_keys=[key])
    await store.cancel_run("r", None, None, None)
    assert [(await store.get_key(key)).in_use for key in ("life", "tick")] == [1, 1]
    assert await store.give_back(held.lock, held.tick) is RunStatus.PENDING
    assert [(await store.get_key(key)).in_use for key in ("life", "tick")] == [1, 0]
    (other,) = await store.claim_due(an_ask(OTHER_CLOG))
    assert other.run.run_id == "behind-tick"
    assert await store.claim_due(an_ask(CLOG)) == []
    assert (await the_run(store)).parked_on == "tick"
    await commit(store, other)
    (last,) = await store.claim_due(an_ask(CLOG))
    assert (last.run.run_id, last.reason) == ("r", "cancel")
    await commit(store, last)
    assert [claim.run.run_id for claim in await store.claim_due(an_ask())] == ["behind-life"]


async def test_a_deadline_puts_a_parked_run_first_in_line_for_its_last_tick(store: Store, clock: ManualClock) -> None:
    await store.register_clogs([ClogRecord(CLOG, "1", has_on_end=True)])
    held = await claimed_run(store, "holder", concurrency_keys=["k"])
    await pending(store, "first", priority=0, concurrency_keys=["k"])
    await pending(store, "late", priority=9, concurrency_keys=["k"], deadline_at=clock.now() + 5)
    clock.advance(5)
    assert await store.claim_due(an_ask()) == []
    assert (await store.get_key("k")).parked == 2
    await commit(store, held)
    (last,) = await store.claim_due(an_ask())
    assert (last.run.run_id, last.reason) == ("late", "deadline")
