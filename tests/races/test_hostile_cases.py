"""Clogs and callers that do the wrong thing at the wrong moment."""

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean import Clog, Done, Ok, Outcome, RetryPolicy, RunCount, RunStatus, StoreUnusable, Tick
from ocean.clog.clog import Handler
from ocean.kernel.store.claims import RowsAnswer, RowsAsk
from ocean.state.filters import FeedFilter
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World, world
from tests.invariants import check, check_tables

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(max_attempts=1)
GENERATIONS = 600
MANY = 60


def clog_of(
    clog_id: str, advance: Handler | None = None, end: Handler | None = None, *methods: Callable[..., Any]
) -> Clog:
    clog = Clog(clog_id)
    if advance is not None:
        clog.on_advance(advance)
    if end is not None:
        clog.on_end(end)
    for method in methods:
        clog.method(method)
    return clog


async def status_of(w: World, run_id: str) -> RunStatus:
    run = await w.ocean.get_run(run_id)
    assert run is not None
    return run.status


async def events_of(w: World, run_id: str) -> list[str]:
    return [event.type for event in await w.store.read_events(FeedFilter(run_id=run_id), 0, 100)]


async def session_row(tick: Tick, payload: Any) -> Any:
    return (await tick.read(session=True)).session


async def put_session(tick: Tick, payload: Any) -> None:
    await tick.read(session=True)
    await tick.write(session=payload)


async def done(tick: Tick) -> Outcome:
    return Done()


async def test_a_long_line_of_descendants_ends_in_one_poke() -> None:
    async def link(tick: Tick) -> Outcome:
        if tick.input:
            await tick.create_run(clog_id="link", input=tick.input - 1, on_parent_end="cancel")
        return Ok()

    async with world([clog_of("link", link)]) as w:
        first = await w.ocean.create_run(
            session_id="s", clog_id="link", input=GENERATIONS, deadline_at=w.clock.now() + 1000
        )
        await w.drain()
        w.clock.advance(2000)
        with anyio.fail_after(20):
            await w.ocean.advance()
        assert await status_of(w, first.run_id) is RunStatus.FAILED
        failed = await w.ocean.count_runs(clog_id="link", status="failed")
        assert failed == RunCount(GENERATIONS + 1, is_capped=False)
        await check(w)


async def test_a_native_cancel_during_a_claim_gives_the_claimed_run_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def advance(tick: Tick) -> Outcome:
        await anyio.lowlevel.checkpoint()
        return Done()

    async with world([clog_of("c", advance)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1, retry=ONCE)
        assert isinstance(w.store, SqliteStore)
        write, claiming = w.store.database.write, anyio.Event()

        async def write_claim(unit: Callable[[Transaction], Any]) -> Any:
            claiming.set()
            return await write(unit)

        monkeypatch.setattr(w.store.database, "write", write_claim)
        with anyio.fail_after(20):
            poke = asyncio.create_task(w.ocean.advance())
            await claiming.wait()
            poke.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poke
        # Writes run in order: after this one the claim has been made, although its caller was cancelled.
        await w.ocean.create_run(session_id="s", clog_id="c")
        after = await w.ocean.get_run(run.run_id)
        assert after is not None
        assert (after.status, after.locked_by) == (RunStatus.PENDING, None)
        w.clock.advance(60_000)
        await w.drain()
        assert await status_of(w, run.run_id) is RunStatus.DONE
        await check(w)


async def test_a_handler_that_awaits_something_cancelled_fails_only_its_own_attempt() -> None:
    names: dict[str, str] = {}

    async def bad(tick: Tick) -> Outcome:
        await sibling_started.wait()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return Done()

    async def sibling(tick: Tick) -> Outcome:
        sibling_started.set()
        while await status_of(w, names["bad"]) is not RunStatus.FAILED:
            await anyio.lowlevel.checkpoint()
        return Done(tick.call_number)

    sibling_started = anyio.Event()
    async with world([clog_of("bad", bad), clog_of("sibling", sibling)]) as w:
        for name in ("bad", "sibling"):
            names[name] = (await w.ocean.create_run(session_id="s", clog_id=name, input=1, retry=ONCE)).run_id
        with anyio.fail_after(20):
            await w.ocean.advance()
        failed, other = await w.ocean.get_run(names["bad"]), await w.ocean.get_run(names["sibling"])
        assert failed is not None
        assert failed.error is not None
        assert other is not None
        assert (failed.status, failed.error["code"]) == (RunStatus.FAILED, "cancelled_inside")
        assert (other.status, other.output) == (RunStatus.DONE, 1)
        await check(w)


async def test_many_plain_handlers_that_call_plain_methods_all_get_a_thread() -> None:
    def inner(tick: Tick, payload: Any) -> int:
        return 1

    def outer(tick: Tick, payload: Any) -> Any:
        return tick.block(tick.call("m", "inner"))

    def advance(tick: Tick) -> Outcome:
        return Done(tick.block(tick.call("m", "outer")))

    async with world([clog_of("p", advance), clog_of("m", None, None, inner, outer)]) as w:
        for _ in range(MANY):
            await w.ocean.create_run(session_id="s", clog_id="p", input=1)
        with anyio.fail_after(20):
            poke = await w.ocean.advance(concurrency=MANY, budget_ms=60_000)
        assert [result.outcome for result in poke.outcomes] == ["done"] * MANY
        await check(w)


async def test_two_ticks_that_each_hold_the_turn_the_other_wants_both_end() -> None:
    plan = {"T1": "BBAAA", "T2": "AABBB", "T3": "ZZB"}
    reached: dict[tuple[str, int], anyio.Event] = defaultdict(anyio.Event)
    go: dict[tuple[str, int], anyio.Event] = defaultdict(anyio.Event)

    async def advance(tick: Tick) -> Outcome:
        at = (tick.input, tick.call_number)
        row = plan[tick.input][tick.call_number - 1]
        await tick.read(runs=[row])
        reached[at].set()
        await go[at].wait()
        await tick.write(runs={row: {"by": tick.input}})
        return Done()

    async def put(tick: Tick, payload: str) -> None:
        await tick.read(runs=[payload])
        await tick.write(runs={payload: {"by": "put"}})

    async with world([clog_of("c", advance, None, put)]) as w:

        async def bump(row: str) -> None:
            await w.ocean.call_clog(clog_id="c", session_id="s", method="put", payload=row)

        async def beaten_twice(name: str) -> asyncio.Task[Any]:
            run = await w.ocean.create_run(session_id="s", clog_id="c", input=name)
            poke = asyncio.create_task(w.ocean.advance(run_id=run.run_id, budget_ms=5000))
            for call in (1, 2):
                await reached[name, call].wait()
                await bump(plan[name][call - 1])
                go[name, call].set()
            await reached[name, 3].wait()
            return poke

        for row in "BAZ":
            await w.ocean.create_run(session_id="s", clog_id="c", run_id=row)
        with anyio.fail_after(20):
            first = await beaten_twice("T1")
            await bump("A")
            second = await beaten_twice("T2")
            third = await beaten_twice("T3")
            go["T3", 3].set()
            pokes = [await third]
            for name in ("T1", "T2"):
                for call in (3, 4, 5):
                    go[name, call].set()
            pokes += [await first, await second]
        assert [[result.outcome for result in poke.outcomes] for poke in pokes] == [["done"]] * 3
        await check(w)


async def test_two_reads_at_once_within_a_tick_do_not_hide_a_lost_update(monkeypatch: pytest.MonkeyPatch) -> None:
    async def advance(tick: Tick) -> Outcome:
        seen: list[Any] = []

        async def read() -> None:
            seen.append((await tick.read(session=True)).session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(read)
        await tick.write(session=(seen[0] or 0) + 1)
        return Done()

    async with world([clog_of("c", advance, None, put_session, session_row)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1)
        read_rows, reads, written = w.store.read_rows, list[RowsAsk](), anyio.Event()

        async def first_read_is_overtaken(ask: RowsAsk) -> RowsAnswer:
            reads.append(ask)
            if len(reads) > 1:
                await written.wait()
                return await read_rows(ask)
            answer = await read_rows(ask)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(overtake)
            return answer

        async def overtake() -> None:
            # The other read has started by now, and waits for this write.
            await anyio.wait_all_tasks_blocked()
            monkeypatch.setattr(w.store, "read_rows", read_rows)
            await w.ocean.call_clog(clog_id="c", session_id="s", method="put_session", payload=10)
            written.set()

        monkeypatch.setattr(w.store, "read_rows", first_read_is_overtaken)
        with anyio.fail_after(20):
            await w.drain()
        assert await status_of(w, run.run_id) is RunStatus.DONE
        assert await w.ocean.call_clog(clog_id="c", session_id="s", method="session_row") == 11
        await check(w)


async def test_a_nested_call_that_fails_keeps_the_effects_of_a_concurrent_one() -> None:
    begun, go = anyio.Event(), anyio.Event()

    async def fail(tick: Tick, payload: Any) -> None:
        await tick.emit("x.bad")
        begun.set()
        await go.wait()
        raise ValueError("boom")

    async def work(tick: Tick, payload: Any) -> str:
        await tick.read(session=True)
        await tick.write(session="written")
        await tick.emit("y.good")
        await tick.create_run(clog_id="leaf", input=1)
        return "ok"

    async def advance(tick: Tick) -> Outcome:
        async def failing() -> None:
            with pytest.raises(ValueError, match="boom"):
                await tick.call("a", "fail")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(failing)
            await begun.wait()
            answer = await tick.call("b", "work")
            go.set()
        return Done(answer)

    clogs = [
        clog_of("p", advance),
        clog_of("a", None, None, fail),
        clog_of("b", None, None, work, session_row),
        clog_of("leaf", done),
    ]
    async with world(clogs) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="p", input=1)
        with anyio.fail_after(20):
            await w.drain()
        assert await w.ocean.result(run.run_id) == "ok"
        assert await w.ocean.count_runs(clog_id="leaf", status="done") == RunCount(1, is_capped=False)
        assert await w.ocean.call_clog(clog_id="b", session_id="s", method="session_row") == "written"
        emitted = [event for event in await events_of(w, run.run_id) if event.startswith(("x.", "y."))]
        assert emitted == ["y.good"]
        await check(w)


async def test_each_attempt_counts_its_own_conflicts_so_that_the_tick_still_gets_its_turn() -> None:
    calls: list[int] = []
    late: list[asyncio.Task[Any]] = []

    async def advance(tick: Tick) -> Outcome:
        calls.append(tick.call_number)
        await tick.read(session=True)
        if len(calls) in (3, 6):
            raise OSError("a passing failure")
        bump = asyncio.create_task(
            w.ocean.call_clog(clog_id="c", session_id="s", method="put_session", payload=len(calls))
        )
        if len(calls) < 9:
            await bump
        else:
            late.append(bump)
            await anyio.wait_all_tasks_blocked()
            assert not bump.done()
        await tick.write(session="tick")
        return Done(len(calls))

    async with world([clog_of("c", advance, None, put_session, session_row)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1, retry=RetryPolicy(max_attempts=3))
        with anyio.fail_after(20):
            for _ in range(3):
                await w.drain()
                w.clock.advance(100_000)
            await asyncio.gather(*late)
        assert await w.ocean.result(run.run_id) == 9
        # The writer that arrived during the turn of the tick had to wait, and wrote after it.
        assert await w.ocean.call_clog(clog_id="c", session_id="s", method="session_row") == 9
        await check(w)


async def test_a_tick_that_always_loses_other_rows_is_reported_as_retry() -> None:
    """Each call writes another row than the one it has reserved, and finds that row changed."""
    calls: list[int] = []

    async def put_global(tick: Tick, payload: Any) -> None:
        await tick.read(global_=True)
        await tick.write(global_=payload)

    async def advance(tick: Tick) -> Outcome:
        calls.append(tick.call_number)
        await tick.read(session=True, global_=True)
        is_odd = len(calls) % 2 == 1
        method = "put_session" if is_odd else "put_global"
        await w.ocean.call_clog(clog_id="c", session_id="s", method=method, payload=len(calls))
        await (tick.write(session="tick") if is_odd else tick.write(global_="tick"))
        return Done()

    async with world([clog_of("c", advance, None, put_session, put_global)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1)
        with anyio.fail_after(20):
            (result,) = (await w.ocean.advance(run_id=run.run_id, max_ticks=1)).outcomes
        assert (calls, result.outcome, result.status) == ([1, 2, 3, 4], "retry", RunStatus.PENDING)
        assert w.ocean.observed.ticks == {("c", "retry"): 1}
        await check(w)


async def test_a_run_whose_clog_has_on_end_but_no_on_advance_ends_when_cancelled() -> None:
    async with world([clog_of("c", None, done, session_row)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c")
        assert (await w.ocean.cancel_run(run.run_id)).status is RunStatus.FAILED
        await check(w)


async def test_an_instance_with_only_methods_does_not_switch_on_end_off() -> None:
    ended: list[str] = []

    async def advance(tick: Tick) -> Outcome:
        return Ok()

    async def end(tick: Tick) -> Outcome:
        ended.append(tick.run_id)
        return Ok()

    async with world([clog_of("c", advance, end)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1)
        await w.drain()
        await w.instance([clog_of("c", None, None, session_row)])
        await w.ocean.cancel_run(run.run_id)
        await w.drain()
        assert ended == [run.run_id]
        assert await status_of(w, run.run_id) is RunStatus.FAILED
        await check(w)


async def test_closing_gives_a_held_run_back_and_ends_the_poke_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding, waiting, go = anyio.Event(), anyio.Event(), anyio.Event()

    async def advance(tick: Tick) -> Outcome:
        holding.set()
        await go.wait()
        return Done()

    path = tmp_path / "ocean.db"
    async with world([clog_of("c", advance)], url=f"sqlite:///{path}") as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1)
        next_commit = w.store.next_commit

        async def wait_for_commit(seen: int, look_ms: int = 100) -> int:
            waiting.set()
            return await next_commit(seen, look_ms)

        monkeypatch.setattr(w.store, "next_commit", wait_for_commit)
        with anyio.fail_after(20):
            holder = asyncio.create_task(w.ocean.advance())
            await holding.wait()
            waiter = asyncio.create_task(w.ocean.advance(run_id=run.run_id))
            await waiting.wait()
            await w.ocean.close()
            assert (await waiter).outcomes == ()
            with pytest.raises(StoreUnusable, match="closed"):
                await holder
        now = w.clock.now()
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    check_tables(db, now)
    assert tuple(db.execute("SELECT status, attempt, locked_by FROM runs").fetchone()) == ("pending", 0, None)
    db.close()


async def test_a_tick_writes_the_row_of_a_child_that_it_creates() -> None:
    async def advance(tick: Tick) -> Outcome:
        if tick.input == "leaf":
            return Done((await tick.read(run=True)).run)
        child = await tick.create_run(clog_id="c", input="leaf")
        await tick.read(runs=[child])
        await tick.write(runs={child: {"from": "parent"}})
        return Done(child)

    async with world([clog_of("c", advance)]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1, retry=ONCE)
        await w.drain()
        assert await w.ocean.result(await w.ocean.result(run.run_id)) == {"from": "parent"}
        await check(w)


async def test_concurrent_nested_calls_see_each_others_keys_until_they_end() -> None:
    """Two calls without changes compare equal; when one ends, the other's buffer must be kept."""
    clog, begun, go_on, made = Clog("twins"), anyio.Event(), anyio.Event(), list[str]()

    @clog.method
    async def late(tick: Tick, payload: Any) -> None:
        begun.set()
        await go_on.wait()
        made.append(await tick.create_run(clog_id="twins", dedupe_key="k", input=1))
        made.append(await tick.call("twins", "again"))

    @clog.method
    async def again(tick: Tick, payload: Any) -> str:
        return await tick.create_run(clog_id="twins", dedupe_key="k", input=1)

    @clog.method
    async def quick(tick: Tick, payload: Any) -> str:
        return "nothing changed"

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        if tick.input == "parent":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick.call, "twins", "late")
                await begun.wait()
                await tick.call("twins", "quick")
                go_on.set()
        return Done()

    async with world([clog]) as w:
        await w.ocean.create_run(session_id="s", clog_id="twins", input="parent")
        await w.drain()
        assert made[0] == made[1]
        await check(w)
