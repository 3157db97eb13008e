"""`commit_tick`: the outcome and the effects of one call, all or nothing."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed, Contended
from ocean.state.effects import CancelTimer, Effects, NewEvent, RowWrite, SetTimer
from ocean.state.errors import ClogError, SignalRefused
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import InputKind, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    OTHER_CLOG,
    SESSION,
    TablesOf,
    a_run,
    a_signal,
    claim,
    claimed_run,
    commit,
    commit_of,
    ended_run,
    events,
    pending,
    row,
    run_row,
    run_tick,
    statuses,
    the_run,
    types,
    writes,
)
from tests.stores.dump import changed

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Ok(), RunStatus.IDLE),
        (Wait(for_ms=100), RunStatus.WAITING),
        (Continue(1), RunStatus.PENDING),
        (Retry("no"), RunStatus.PENDING),
        (Done(1), RunStatus.DONE),
        (Failed("no"), RunStatus.FAILED),
    ],
    ids=["ok", "wait", "continue", "retry", "done", "failed"],
)
async def test_the_outcome_settles_the_run_and_repeating_the_commit_changes_nothing(
    store: Store, tables: TablesOf, outcome: Outcome, status: RunStatus
) -> None:
    held = await claimed_run(store)
    tick = commit_of(held, outcome)
    assert await store.commit_tick(tick) == Committed(status)
    run = await the_run(store)
    assert (run.status, run.locked_by) == (status, None)
    if not isinstance(outcome, Retry):
        before = await tables()
        assert await store.commit_tick(tick) == Committed(status)
        assert await tables() == before


async def test_everything_a_tick_does_is_visible_after_its_commit_and_not_before(
    store: Store, clock: ManualClock
) -> None:
    await store.create_run(a_run("other"), None)
    held = await claimed_run(store)
    effects = writes((SESSION, 0, '"s"'), (run_row(), 0, '"r"'))
    effects.events.append(NewEvent("said", '{"n":1}', held.run.clog_id))
    effects.signals.append(a_signal("other", "hello"))
    effects.runs.append(a_run("child", input=1, parent_run_id="r"))
    effects.timers.append(SetTimer("t", clock.now() + 50, None))
    effects.attributes["colour"] = "red"
    assert await store.get_run("child") is None
    assert await commit(store, held, Ok(), effects) == Committed(RunStatus.WAITING)
    assert (await row(store, SESSION)).text == '"s"'
    assert (await row(store, run_row())).text == '"r"'
    assert await statuses(store, ["other", "child"]) == ["pending", "pending"]
    run = await store.get_run("r")
    assert run is not None
    assert (run.attributes, run.wake_at) == ({"colour": "red"}, clock.now() + 50)
    emitted = [event for event in await events(store, "r") if event.type == "said"]
    assert [(event.payload, event.tick, event.call) for event in emitted] == [({"n": 1}, 1, 1)]
    committed = next(event for event in await events(store, "r") if event.type == "tick.committed")
    assert committed.payload["inputs"] == [1]
    assert (committed.payload["epoch"], committed.payload["instance"], committed.payload["version"]) == (1, "i-a", "1")
    (tick,) = await store.list_ticks("r", 0, 10)
    assert (tick.outcome, tick.committed_at, tick.calls, tick.conflicts) == ("ok", clock.now(), 1, 0)


async def test_the_instance_and_version_of_a_call_are_logged_as_given(store: Store) -> None:
    """Names and versions can be any text, and the payloads of events must be JSON."""
    held = await claimed_run(store)
    odd = 'a "quoted", \\ and\nbroken ü'
    await store.commit_tick(commit_of(held, Ok())._replace(instance_id=odd, version=odd))
    committed = (await events(store, "r"))[-1]
    assert (committed.payload["instance"], committed.payload["version"]) == (odd, odd)
    assert committed.payload == {
        "outcome": "ok",
        "status": "idle",
        "reason": "created",
        "attempt": 0,
        "inputs": [1],
        "claimed_at": held.claimed_at,
        "epoch": 1,
        "instance": odd,
        "version": odd,
    }


async def test_inputs_are_consumed_by_the_commit_and_by_nothing_else(store: Store) -> None:
    held = await claimed_run(store)
    assert (await the_run(store)).pending_count == 1
    await commit(store, held, Retry("no", after_ms=0))
    assert (await the_run(store)).pending_count == 1
    await run_tick(store, "r", Ok())
    assert (await the_run(store)).pending_count == 0


async def test_a_retry_commits_no_effects(store: Store) -> None:
    held = await claimed_run(store)
    effects = writes((SESSION, 0, "1"))
    effects.events.append(NewEvent("said", "{}", held.run.clog_id))
    effects.runs.append(a_run("child", input=1))
    await commit(store, held, Retry("no"), effects)
    assert (await row(store, SESSION)).version == 0
    assert await store.get_run("child") is None
    assert await types(store, "r") == ["run.created", "run.retrying"]


async def test_the_attempt_that_reaches_the_limit_fails_the_run_with_the_last_error(
    store: Store, clock: ManualClock
) -> None:
    await pending(store)
    for delay in (1_000, 2_000):
        await run_tick(store, "r", Retry("no"))
        run = await the_run(store)
        assert run.wake_at == clock.now() + delay
        clock.advance(delay)
    assert await run_tick(store, "r", Retry({"code": "last", "message": "word"})) is RunStatus.FAILED
    shown = await store.get_run("r")
    assert shown is not None
    assert (shown.attempt, shown.error) == (3, {"code": "last", "message": "word", "details": None})


async def test_progress_resets_the_attempts_and_forgets_the_error(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await run_tick(store, "r", Retry("no", after_ms=0))
    await run_tick(store, "r", Continue())
    run = await store.get_run("r")
    assert run is not None
    assert (run.attempt, run.error) == (0, None)


async def test_a_row_that_moved_on_refuses_the_whole_commit_and_spends_no_attempt(
    store: Store, tables: TablesOf
) -> None:
    held = await claimed_run(store)
    await pending(store, "quick")
    await run_tick(store, "quick", Ok(), writes((SESSION, 0, '"quick"')))
    effects = writes((SESSION, 0, '"slow"'), (run_row(), 0, '"slow"'))
    effects.events.append(NewEvent("said", "{}", held.run.clog_id))
    before = await tables()
    assert await commit(store, held, Done(), effects) == Contended(call=2, must_take_turn=False)
    assert changed(before, await tables()) <= {"ocean_ticks", "events", "runs", "event_cursor"}
    run = await the_run(store)
    assert (run.status, run.attempt, run.lock_epoch) == (RunStatus.ACTIVE, 0, held.lock.epoch)
    assert (await types(store, "r"))[1:] == ["tick.restarted"]
    fresh = await row(store, SESSION)
    again = commit_of(held, Done(), writes((SESSION, fresh.version, '"slow"')), call=2)
    assert await store.commit_tick(again) == Committed(RunStatus.DONE)
    assert (await row(store, SESSION)).text == '"slow"'


async def test_a_tick_that_always_loses_its_rows_is_retried_instead(store: Store) -> None:
    held = await claimed_run(store)
    await pending(store, "quick")
    await run_tick(store, "quick", Ok(), writes((SESSION, 0, '"quick"')))
    for call in (1, 2, 3):
        lost = await store.commit_tick(commit_of(held, Done(), writes((SESSION, 0, '"slow"')), call=call))
        assert isinstance(lost, Contended)
    result = await store.commit_tick(commit_of(held, Done(), writes((SESSION, 0, '"slow"')), call=4))
    assert isinstance(result, Committed)
    assert result.status is RunStatus.PENDING
    assert result.instead == Retry(ErrorInfo("conflict", "its rows had moved on 4 times"))
    assert (await types(store, "r"))[-1] == "run.retrying"


async def test_a_guarded_row_that_moved_on_refuses_the_commit(store: Store) -> None:
    held = await claimed_run(store)
    await pending(store, "quick")
    await run_tick(store, "quick", Ok(), writes((SESSION, 0, "1")))
    guarded = Effects(guards=[(SESSION, 0)], events=[NewEvent("said", "{}", "counter")])
    assert isinstance(await store.commit_tick(commit_of(held, Ok(), guarded)), Contended)
    current = (await row(store, SESSION)).version
    guarded.guards[:] = [(SESSION, current)]
    assert await store.commit_tick(commit_of(held, Ok(), guarded, call=2)) == Committed(RunStatus.IDLE)


async def test_functions_are_applied_at_commit_and_never_conflict(store: Store) -> None:
    held = [await claimed_run(store, f"r{number}") for number in range(5)]

    def plus_one(old: str | None) -> str:
        return str(int(old or "0") + 1)

    for taken in held:
        effects = Effects(writes=[RowWrite(SESSION, 0, apply=plus_one)])
        assert await commit(store, taken, Ok(), effects) == Committed(RunStatus.IDLE)
    assert (await row(store, SESSION)).text == "5"


async def test_a_function_that_raises_leaves_nothing_of_its_commit(store: Store, tables: TablesOf) -> None:
    held = await claimed_run(store)

    def breaks(old: str | None) -> str:
        raise ZeroDivisionError(old)

    effects = writes((run_row(), 0, "1"))
    effects.writes.append(RowWrite(SESSION, 0, apply=breaks))
    before = await tables()
    with pytest.raises(ZeroDivisionError):
        await commit(store, held, Ok(), effects)
    assert await tables() == before
    assert await commit(store, held) == Committed(RunStatus.IDLE)


async def test_a_signal_to_an_ended_or_unknown_run_becomes_an_event_of_the_sender(store: Store) -> None:
    await ended_run(store, "gone", Done())
    await pending(store)
    effects = Effects(signals=[a_signal("gone", signal_id="x"), a_signal("nobody")])
    await run_tick(store, "r", Ok(), effects)
    undelivered = [event.payload for event in await events(store, "r") if event.type == "signal.undelivered"]
    assert [payload["to"] for payload in undelivered] == ["gone", "nobody"]
    assert undelivered[0]["signal_id"] == "x"
    assert (await types(store, "gone"))[-1] == "run.done"


async def test_a_required_signal_that_cannot_be_delivered_refuses_the_commit_without_a_trace(
    store: Store, tables: TablesOf
) -> None:
    held = await claimed_run(store)
    effects = writes((SESSION, 0, "1"))
    effects.signals.append(a_signal("nobody", required=True))
    before = await tables()
    with pytest.raises(SignalRefused):
        await commit(store, held, Ok(), effects)
    assert await tables() == before


async def test_done_keeps_the_output_drops_timers_and_names_what_was_not_delivered(
    store: Store, clock: ManualClock
) -> None:
    await pending(store)
    await run_tick(store, "r", Continue(), Effects(timers=[SetTimer("t", clock.now() + 100, None)]))
    held = await claim(store)
    await store.deliver_signal(a_signal(signal_id="late"), None)
    await commit(store, held, Done({"n": 1}))
    run = await store.get_run("r")
    assert run is not None
    assert (run.output, run.pending_count, run.due_at, run.ended_at) == ({"n": 1}, 1, None, clock.now())
    last = (await events(store, "r"))[-2:]
    assert [event.type for event in last] == ["signal.undelivered", "run.done"]
    assert [entry["signal_id"] for entry in last[0].payload["inputs"]] == ["late"]
    assert last[1].payload == {"output": {"n": 1}}


async def test_a_cancelled_timer_does_not_fire(store: Store, clock: ManualClock) -> None:
    await pending(store)
    await run_tick(store, "r", Continue(), Effects(timers=[SetTimer("t", clock.now() + 100, None)]))
    assert await run_tick(store, "r", Ok(), Effects(timers=[CancelTimer("t")])) is RunStatus.IDLE


async def test_a_childs_end_is_an_input_of_its_parent_in_the_same_commit(store: Store) -> None:
    await pending(store, "mother")
    child = a_run("child", input=1, parent_run_id="mother", notify_parent=True)
    await run_tick(store, "mother", Ok(), Effects(runs=[child]))
    await run_tick(store, "child", Done("well"))
    held = await claim(store, "mother")
    assert held.reason == InputKind.CHILD
    assert held.inputs[0].body == {"run_id": "child", "status": "done", "output": "well", "error": None}


async def test_children_end_with_their_parent_only_if_requested(store: Store) -> None:
    await pending(store, "mother")
    born = [
        a_run("stays", input=1, parent_run_id="mother"),
        a_run("goes", input=1, parent_run_id="mother", on_parent_end="cancel"),
    ]
    await run_tick(store, "mother", Done(), Effects(runs=born))
    assert await statuses(store, ["stays", "goes"]) == ["pending", "failed"]


async def test_a_tick_may_delete_its_own_run(store: Store) -> None:
    held = await claimed_run(store)
    assert await commit(store, held, Ok(), Effects(delete_runs=[(CLOG, "r")])) == Committed(None)
    assert await store.get_run("r") is None
    assert (await types(store, "r"))[-1] == "run.deleted"


async def test_a_clog_cannot_delete_another_clogs_run_or_session(store: Store, tables: TablesOf) -> None:
    await pending(store, "theirs", clog_id=OTHER_CLOG)
    held = await claimed_run(store)
    before = await tables()
    for effects in (Effects(delete_runs=[(CLOG, "theirs")]), Effects(delete_session_by=CLOG)):
        with pytest.raises(ClogError):
            await commit(store, held, Ok(), effects)
        assert await tables() == before


async def test_creating_a_run_under_a_held_dedupe_key_restarts_the_tick(store: Store) -> None:
    held = await claimed_run(store)
    await pending(store, "first", dedupe_key="k")
    effects = Effects(runs=[a_run("second", input=1, dedupe_key="k")])
    assert await commit(store, held, Ok(), effects) == Contended(2, False)
    assert await store.get_run("second") is None
