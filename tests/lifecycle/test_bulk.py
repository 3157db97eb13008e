"""Bulk verbs: which runs are selected, what is counted, the rate, and that a repeat has no second effect."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean import (
    BulkProgress,
    BulkResult,
    BulkStopped,
    Done,
    Failed,
    InvalidValue,
    Ocean,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    RunInfo,
    RunStatus,
    StoreBusy,
    StoreUnusable,
    Tick,
    Wait,
)
from ocean.kernel.store.runs import Request
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock, World
from tests.lifecycle.acting import Script, dump, let_others_go_on, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def all_runs(w: World, **where: Any) -> list[RunInfo]:
    return list((await w.ocean.list_runs(order="oldest", limit=1_000, **where)).runs)


async def test_cancel_ends_live_runs_and_ignores_ended_ones() -> None:
    async with stage(Script(Done(), Wait(for_ms=5), Ok()), Script(clog_id="d")) as w:
        ids = [await start(w), await start(w), await start(w), await start(w, clog_id="d")]
        for run_id in ids[:3]:
            await w.ocean.advance(run_id=run_id)
        result = await w.ocean.cancel_runs(clog_id="c", reason="enough", actor="ada")
        assert result == BulkResult(seen=2, done=2, refused=0, errors={}, more=False)
        assert [(await look(w, run_id)).status for run_id in ids] == ["done", "failed", "failed", "pending"]
        run = await look(w, ids[1])
        assert run.error is not None
        assert (run.error["code"], run.error["message"]) == ("cancelled", "enough")
        assert (await log(w, ids[1], "run.failed"))[0].actor == "ada"
        assert (await w.ocean.cancel_runs(clog_id="c")).seen == 0


async def test_refusals_are_counted_by_their_code() -> None:
    async with stage(Script(Done(), Failed("no"))) as w:
        for _ in range(2):
            await start(w)
        await w.drain()
        await start_idle(w)
        every = list(RunStatus)
        cancelled = await w.ocean.cancel_runs(clog_id="c", status=every)
        assert cancelled == BulkResult(3, 1, 2, {"run_ended": 2})
        retried = await w.ocean.retry_runs(clog_id="c", status=every)
        assert retried == BulkResult(3, 1, 2, {"run_not_failed": 1, "run_has_no_input": 1})


async def test_signal_reaches_each_live_run_once_over_repeated_calls() -> None:
    script = Script()
    async with stage(script) as w:
        for n in range(5):
            await start_idle(w, attributes={"odd": bool(n % 2)})
        query: dict[str, Any] = {"clog_id": "c", "attributes": {"odd": False}}
        for _ in range(2):
            result = await w.ocean.signal_runs(input={"hello": 1}, request_key="friday", **query)
            assert result == BulkResult(3, 3, 0, {})
        await w.drain()
        assert script.bodies == [{"hello": 1}] * 3
        (signal_id,) = {seen.signal_id for seen in script.seen}
        await w.ocean.signal_runs(input={"hello": 1}, signal_id=signal_id, **query)
        await w.ocean.signal_runs(signal_id="other", deliver_at=w.clock.now() + 5, **query)
        assert await w.drain() == []
        reused = await w.ocean.signal_runs(input="something else", request_key="friday", **query)
        assert reused == BulkResult(3, 0, 3, {"signal_id_reused": 3})


async def test_retry_makes_one_new_run_for_each_failed_one() -> None:
    script = Script(Failed("no"), Failed("no"), Done())
    async with stage(script) as w:
        ids = [await start(w, n) for n in range(3)]
        await w.drain()
        for _ in range(2):
            assert await w.ocean.retry_runs(clog_id="c") == BulkResult(2, 2, 0, {})
        again = [run for run in await all_runs(w) if run.retry_of is not None]
        assert sorted(str(run.retry_of) for run in again) == sorted(ids[:2])
        await w.drain()
        assert [run.status for run in await all_runs(w)].count(RunStatus.FAILED) == 2
        assert sorted(script.bodies) == [0, 0, 1, 1, 2]


async def test_retry_ends_calls_the_last_tick_of_the_selected_runs_that_ended_without_it() -> None:
    script = Script(Failed("no"), Ok(), ends=(Retry("no"), Retry("no"), Ok()), end_retry=RetryPolicy(max_attempts=1))
    async with stage(script) as w:
        ids = [await start(w, n, attributes={"n": n}) for n in range(4)]
        await w.drain()
        for run_id in ids[1:]:
            await w.ocean.cancel_run(run_id)
            await w.drain()
        assert [(await look(w, run_id)).end_incomplete for run_id in ids] == [False, True, True, False]
        with pytest.raises(InvalidValue, match="the query must not be empty"):
            await w.ocean.retry_ends()
        with pytest.raises(InvalidValue, match="end_incomplete must be True or absent"):
            await w.ocean.retry_ends(end_incomplete=False)
        one = {"clog_id": "c", "attributes": {"n": [1, 3]}}
        assert await w.ocean.retry_ends(**one, actor="ada") == BulkResult(1, 1, 0, {})  # type: ignore[arg-type]
        assert await w.ocean.retry_ends(everything=True) == BulkResult(1, 1, 0, {})
        await w.drain()
        assert [seen.reason for seen in script.ends] == ["cancel"] * 5
        assert (await w.ocean.count_runs(end_incomplete=True)).count == 0
        assert (await w.ocean.retry_ends(everything=True)).seen == 0


async def test_delete_runs_deletes_and_counts_children_too() -> None:
    async def create_child(tick: Tick) -> Outcome:
        if tick.reason == "created":
            for _ in range(2):
                await tick.create_run(clog_id="d")
        return Ok()

    async with stage(Script(create_child), Script(clog_id="d")) as w:
        await start(w)
        w.clock.advance(1)  # Within one millisecond a child's derived id may sort before its parent's.
        await w.drain()
        assert len(await all_runs(w)) == 3
        assert await w.ocean.delete_runs(everything=True) == BulkResult(3, 1, 2, {"run_not_found": 2})
        assert await all_runs(w) == []


async def test_only_runs_that_existed_at_the_beginning_are_selected() -> None:
    async with stage(Script()) as w:
        for _ in range(3):
            await start_idle(w)

        async def create(progress: BulkProgress) -> None:
            assert progress.seen <= 3
            w.clock.advance(1)
            await start_idle(w, run_id=f"new{progress.seen}")

        result = await w.ocean.delete_runs(clog_id="c", batch=1, on_progress=create)
        assert (result.seen, result.done) == (3, 3)
        assert [run.run_id for run in await all_runs(w)] == ["new1", "new2", "new3"]


async def test_progress_is_reported_after_each_batch_to_plain_and_async_functions() -> None:
    async with stage(Script()) as w:
        ids = [await start_idle(w) for _ in range(5)]
        plain: list[BulkProgress] = []
        await w.ocean.cancel_runs(clog_id="c", batch=2, on_progress=plain.append)
        assert [(each.seen, each.done) for each in plain] == [(2, 2), (4, 4), (5, 5)]
        waited: list[int] = []

        async def ask(progress: BulkProgress) -> None:
            waited.append((await w.ocean.count_runs()).count)

        await w.ocean.delete_runs(session_id="s", batch=3, on_progress=ask)
        assert waited == [2, 0]
        assert len(ids) == 5


async def test_most_stops_after_the_oldest_and_reports_more() -> None:
    async with stage(Script()) as w:
        ids = []
        for _ in range(5):
            ids.append(await start_idle(w))
            w.clock.advance(1)
        first = await w.ocean.delete_runs(clog_id="c", batch=2, most=3)
        assert (first.done, first.more) == (3, True)
        assert [run.run_id for run in await all_runs(w)] == ids[3:]
        rest = await w.ocean.delete_runs(clog_id="c", most=2)
        assert (rest.done, rest.more) == (2, False)


async def test_a_rate_is_kept_by_the_clock() -> None:
    async with stage(Script()) as w:
        for _ in range(25):
            await start_idle(w)
        done: list[tuple[int, int]] = []
        began = w.clock.now()

        async def cancel() -> None:
            await w.ocean.cancel_runs(
                clog_id="c", per_second=10, on_progress=lambda p: done.append((w.clock.now() - began, p.done))
            )

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            for _ in range(30):
                await let_others_go_on(w)
                w.clock.advance(100)
        assert done == [(0, 10), (1_000, 20), (2_000, 25)]


async def test_a_small_batch_at_a_rate_waits_for_its_share_of_a_second() -> None:
    async with stage(Script()) as w:
        for _ in range(3):
            await start_idle(w)
        done: list[int] = []
        began = w.clock.now()

        async def cancel() -> None:
            await w.ocean.cancel_runs(
                clog_id="c", batch=1, per_second=3, on_progress=lambda p: done.append(w.clock.now() - began)
            )

        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            for _ in range(10):
                await let_others_go_on(w)
                w.clock.advance(334)
        assert done == [0, 334, 668]


Ask = Callable[[Ocean, Callable[[BulkProgress], object] | None], Awaitable[BulkResult]]

VERBS: dict[str, Ask] = {
    "cancel": lambda o, report: o.cancel_runs(clog_id="c", batch=2, on_progress=report),
    "delete": lambda o, report: o.delete_runs(clog_id="c", batch=2, on_progress=report),
    "signal": lambda o, report: o.signal_runs(clog_id="c", input=1, signal_id="x", batch=2, on_progress=report),
    "retry": lambda o, report: o.retry_runs(clog_id="c", batch=2, on_progress=report),
}


async def _start_six(w: World, verb: str) -> None:
    for n in range(6):
        await (start(w, n) if verb == "retry" else start_idle(w))
    if verb == "retry":
        await w.drain()


async def _check_each_done_once(w: World, verb: str) -> None:
    """Check that the verb was applied to each run exactly once."""
    runs = [run for run in await all_runs(w) if run.retry_of is None]
    match verb:
        case "cancel":
            assert [len(await log(w, run.run_id, "run.failed")) for run in runs] == [1] * 6
        case "delete":
            assert (runs, len(await log(w, None, "run.deleted"))) == ([], 6)
        case "signal":
            assert [len(await log(w, run.run_id, "run.signalled")) for run in runs] == [1] * 6
        case "retry":
            again = [run.retry_of for run in await all_runs(w) if run.retry_of is not None]
            assert sorted(map(str, again)) == sorted(run.run_id for run in runs)


@pytest.mark.parametrize("verb", VERBS)
async def test_after_a_crash_in_the_middle_the_same_call_finishes_and_repeats_nothing(verb: str) -> None:
    class Crash(Exception):
        pass

    def crash(progress: BulkProgress) -> None:
        assert progress.done == 2
        raise Crash

    async with stage(Script(Failed("no"))) as w:
        await _start_six(w, verb)
        with pytest.raises(Crash):
            await VERBS[verb](w.ocean, crash)
        await VERBS[verb](await w.instance(), None)
        await _check_each_done_once(w, verb)
        before = await dump(w)
        await VERBS[verb](w.ocean, None)
        assert await dump(w) == before


@pytest.mark.parametrize("verb", VERBS)
async def test_a_call_cancelled_between_batches_has_done_whole_batches(verb: str) -> None:
    async with stage(Script(Failed("no"))) as w:
        await _start_six(w, verb)
        reports: list[BulkProgress] = []
        with anyio.CancelScope() as scope:

            async def stop(progress: BulkProgress) -> None:
                reports.append(progress)
                if progress.seen == 4:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()

            await VERBS[verb](w.ocean, stop)
        assert scope.cancelled_caught
        assert [progress.done for progress in reports] == [2, 4]
        await VERBS[verb](w.ocean, None)
        await _check_each_done_once(w, verb)


class Fragile(SqliteStore):
    """A store whose write lock another process holds while `busy` runs are cancelled."""

    busy: frozenset[str] = frozenset()

    async def cancel_run(self, run_id: str, reason: str | None, actor: str | None, request: Request | None) -> RunInfo:
        if run_id in self.busy:
            raise StoreBusy("another process holds the database's write lock; try again")
        return await super().cancel_run(run_id, reason, actor, request)


async def test_an_error_that_is_no_refusal_stops_the_call_with_its_progress() -> None:
    store = Fragile(":memory:", ManualClock())
    await store.open()
    ocean = Ocean(store, [Script(Done())], store._clock)
    await ocean.start()
    for n in range(6):
        await ocean.create_run(session_id="s", clog_id="c", run_id=f"r{n}", input=1)
    await ocean.advance(run_id="r0")
    store.busy = frozenset({"r3"})
    with pytest.raises(BulkStopped, match="stopped after 2 of 4 runs: another process") as stopped:
        await ocean.cancel_runs(clog_id="c", status=["pending", "done"], batch=2)
    assert stopped.value.progress == BulkProgress(4, 2, 1, {"run_ended": 1})
    assert (stopped.value.retryable, stopped.value.details["cause"]) == (True, "store_busy")
    assert isinstance(stopped.value.__cause__, StoreBusy)
    store.busy = frozenset()
    assert await ocean.cancel_runs(clog_id="c") == BulkResult(3, 3, 0, {})
    await ocean.close()


async def test_closing_the_database_meanwhile_stops_the_call_too() -> None:
    store = SqliteStore(":memory:", ManualClock())
    await store.open()
    ocean = Ocean(store, [Script()], store._clock)
    await ocean.start()
    for _ in range(3):
        await ocean.create_run(session_id="s", clog_id="c")
    with pytest.raises(BulkStopped) as stopped:
        await ocean.cancel_runs(clog_id="c", batch=2, on_progress=lambda _: ocean.close())
    assert (stopped.value.progress.done, stopped.value.retryable) == (2, False)
    assert isinstance(stopped.value.__cause__, StoreUnusable)
    with pytest.raises(BulkStopped, match="stopped after 0 of 0 runs"):
        await ocean.cancel_runs(clog_id="c")


async def test_the_statuses_that_a_verb_selects_do_not_count_as_the_callers_combinations() -> None:
    async with stage(Script()) as w:
        for number in range(2):
            await w.ocean.create_run(session_id=f"s{number}", clog_id="c")
        result = await w.ocean.cancel_runs(session_id=[f"s{number}" for number in range(200)])
        assert (result.seen, result.done) == (2, 2)
        with pytest.raises(InvalidValue, match="at most 200 combinations of values, got 201"):
            await w.ocean.cancel_runs(session_id=[f"s{number}" for number in range(201)])
        with pytest.raises(InvalidValue, match="status must include done or failed"):
            await w.ocean.cancel_runs(ended_from=0)


async def test_a_batch_of_a_thousand_runs_is_a_few_transactions() -> None:
    async with stage(Script()) as w:
        assert isinstance(w.store, SqliteStore)
        async with anyio.create_task_group() as group:
            for _ in range(1_000):
                group.start_soon(start_idle, w)
        before = w.store.database.group_sizes
        result = await w.ocean.cancel_runs(clog_id="c", batch=1_000)
        after = w.store.database.group_sizes
        assert result.done == after[1] - before[1] == 1_000
        assert after[0] - before[0] <= 100
