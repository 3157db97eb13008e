"""Concurrent pokes: several in one process, several instances, callers that are cancelled."""

import sqlite3
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, Retry, RunInfo, RunStatus, Tick, TickResult, Wait
from ocean.kernel.store.claims import ClaimAsk
from ocean.state.records import Claim
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock, world
from tests.invariants import check
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


async def test_two_pokes_at_once_call_every_run_once() -> None:
    clog, calls = Clog("once"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls.append(tick.run_id)
        return Done()

    async with world([clog]) as w:
        other = await w.instance([clog])
        runs = {(await w.ocean.create_run(session_id="s", clog_id="once", input=n)).run_id for n in range(50)}
        async with anyio.create_task_group() as tasks:
            for ocean in (w.ocean, other, w.ocean, other):
                tasks.start_soon(partial(ocean.advance, concurrency=7))
        assert sorted(calls) == sorted(runs)
        await check(w)


@pytest.mark.parametrize(
    "outcome",
    [Ok(), Wait(for_ms=60_000), Continue("next"), Retry("again"), Done()],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_a_signal_during_a_tick_is_never_lost_whatever_its_outcome(outcome: Outcome) -> None:
    """D5, D6, S4, S5, S6: the signal comes after the handler began and before its commit."""
    clog, got = Clog("busy"), list[Any]()
    entered, go_on = anyio.Event(), anyio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        got.append(tick.input)
        if tick.number == 1 and tick.call_number == 1:
            entered.set()
            await go_on.wait()
            return outcome
        return Ok()

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="busy", input="first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await entered.wait()
            receipt = await w.ocean.signal(run.run_id, "second")
            assert receipt.status is RunStatus.ACTIVE
            go_on.set()
        attempt = (await w.ocean.get_run(run.run_id)).attempt  # type: ignore[union-attr]
        assert attempt == (1 if isinstance(outcome, Retry) else 0)
        w.clock.advance(1_000)
        await w.drain()
        expected = {
            Ok: ["first", "second"],
            Wait: ["first", "second"],
            Continue: ["first", "next", "second"],
            Retry: ["first", "first", "second"],
            Done: ["first"],
        }[type(outcome)]
        assert got == expected
        undelivered = await w.ocean.read_events(run.run_id, types=["signal.undelivered"])
        assert len(undelivered) == (1 if isinstance(outcome, Done) else 0)
        await check(w)


def held_at_first(entered: anyio.Event, go_on: anyio.Event) -> Clog:
    """Return a clog whose first tick waits and whose second tick is the last."""
    clog = Clog("held")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.number == 1:
            entered.set()
            await go_on.wait()
            return Continue()
        return Done("done")

    return clog


async def test_advance_of_one_run_waits_for_it_while_another_poke_holds_it() -> None:
    """L7: a poke for a run advances that run, even if another process is working on it."""
    entered, go_on = anyio.Event(), anyio.Event()
    clog = held_at_first(entered, go_on)
    async with world([clog]) as w:
        other = await w.instance([clog])
        run = await w.ocean.create_run(session_id="s", clog_id="held", input=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: w.ocean.advance(max_ticks=1))
            await entered.wait()
            results: list[TickResult] = []

            async def wait_for_it() -> None:
                results.extend((await other.advance(run_id=run.run_id)).outcomes)

            tasks.start_soon(wait_for_it)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert [(result.tick, result.outcome) for result in results] == [(2, "done")]


async def test_advance_of_one_run_sees_that_it_became_due_between_its_claim_and_its_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, go_on, is_over = anyio.Event(), anyio.Event(), anyio.Event()
    clog = held_at_first(entered, go_on)
    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="held", input=1)
        claim_due, get_run = w.store.claim_due, w.store.get_run

        async def claim(ask: ClaimAsk) -> list[Claim]:
            claims = await claim_due(ask)
            monkeypatch.setattr(w.store, "get_run", late_read)
            return claims

        async def late_read(run_id: str) -> RunInfo | None:
            go_on.set()
            await is_over.wait()
            return await get_run(run_id)

        async def hold_it() -> None:
            await w.ocean.advance(max_ticks=1)
            is_over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold_it)
            await entered.wait()
            monkeypatch.setattr(w.store, "claim_due", claim)
            advanced = await w.ocean.advance(run_id=run.run_id)
        assert [(result.tick, result.outcome) for result in advanced.outcomes] == [(2, "done")]


async def test_a_poke_whose_caller_goes_away_gives_its_runs_back_at_once() -> None:
    clog, entered = Clog("slow"), anyio.Event()
    calls: list[int] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls.append(tick.call_number)
        if tick.call_number == 1:
            entered.set()
            await anyio.sleep_forever()
        return Done()

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="slow", input=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await entered.wait()
            tasks.cancel_scope.cancel()
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.attempt, info.locked_by) == (RunStatus.PENDING, 0, None)
        await w.drain()
        assert calls == [1, 2]
        await check(w)


async def test_no_run_starves_behind_a_run_that_always_continues() -> None:
    """L6: one claim per poke, and a run that is due again at once each time."""
    clog, order = Clog("fair"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        order.append(tick.run_id)
        return Continue() if tick.run_id == "a-greedy" else Done()

    async with world([clog]) as w:
        await w.ocean.create_run(session_id="s", clog_id="fair", run_id="a-greedy", input=1)
        for name in ("b", "c"):
            await w.ocean.create_run(session_id="s", clog_id="fair", run_id=name, input=1)
        for _ in range(4):
            await w.ocean.advance(max_ticks=1)
        assert order == ["a-greedy", "b", "c", "a-greedy"]


async def test_one_claim_in_eight_goes_to_the_longest_due_of_any_priority() -> None:
    clog, order = Clog("lanes"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        order.append(tick.run_id)
        return Done()

    async with world([clog]) as w:
        await w.ocean.create_run(session_id="s", clog_id="lanes", run_id="patient", priority=9, input=1)
        for number in range(30):
            w.clock.advance(1)
            await w.ocean.create_run(session_id="s", clog_id="lanes", run_id=f"urgent-{number:02}", priority=0, input=1)
        for _ in range(8):
            await w.ocean.advance(max_ticks=1)
        assert "patient" in order
        assert len(order) == 8


async def test_a_run_of_a_clog_that_is_not_here_waits_for_an_instance_that_has_it() -> None:
    """L9: it is not failed, it is counted, and `explain` shows why."""
    clog = Clog("elsewhere")

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        return Done()

    async with world([]) as w:
        other = await w.instance([clog])
        run = await w.ocean.create_run(session_id="s", clog_id="elsewhere", input=1)
        poke = await w.ocean.advance()
        assert (poke.advanced, poke.due_now, poke.unclaimable) == (0, 0, 1)
        assert [hold.code for hold in (await w.ocean.explain(run.run_id)).holds] == ["clog_elsewhere"]
        assert (await other.explain(run.run_id)).is_claimable
        assert (await other.advance()).advanced == 1


async def test_a_claim_that_fails_lets_the_handlers_at_work_commit_and_then_raises_itself() -> None:
    clog, entered = Clog("slow"), anyio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        if tick.input == "slow":
            entered.set()
            await until(lambda: failed)
        return Done(tick.input)

    failed = False
    async with world([clog]) as w:
        assert isinstance(w.store, SqliteStore)
        database = w.store.database
        slow = await w.ocean.create_run(session_id="s", clog_id="slow", input="slow")
        await w.ocean.create_run(session_id="s", clog_id="slow", input="quick")
        async with anyio.create_task_group() as tasks:

            async def poke() -> None:
                with pytest.raises(sqlite3.OperationalError, match="no such table: ocean_clogs"):
                    await w.ocean.advance()

            tasks.start_soon(poke)
            await entered.wait()
            await database.on_writer(lambda db: db.execute("ALTER TABLE ocean_clogs RENAME TO away"))
            failed = True
        await database.on_writer(lambda db: db.execute("ALTER TABLE away RENAME TO ocean_clogs"))
        info = await w.ocean.get_run(slow.run_id)
        assert info is not None
        assert (info.status, info.output) == (RunStatus.DONE, "slow")


@pytest.mark.parametrize("is_here", [True, False])
async def test_advance_of_a_run_that_crashed_and_cannot_be_claimed_here_returns_at_once(is_here: bool) -> None:
    """Its lock has expired, but it is paused, or its clog is on another instance: there is nothing to wait for."""
    clog, entered = Clog("held"), anyio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        entered.set()
        await anyio.sleep_forever()
        return Done()

    async with world([clog]) as w, anyio.create_task_group() as tasks:
        run = await w.ocean.create_run(session_id="s", clog_id="held", input=1)
        other = await w.instance([clog] if is_here else [])
        tasks.start_soon(w.drain)
        await entered.wait()
        if is_here:
            await w.ocean.pause_run(run.run_id)
        w.clock.jump(30_001)
        with anyio.fail_after(10):
            assert (await other.advance(run_id=run.run_id, budget_ms=60_000)).outcomes == ()
        tasks.cancel_scope.cancel()


async def test_advance_of_a_run_with_its_ticks_spent_does_not_wait_for_another_holder() -> None:
    clog, entered, go_on = Clog("held"), anyio.Event(), anyio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        entered.set()
        await go_on.wait()
        return Continue() if tick.number == 1 else Done()

    async with world([clog]) as w, anyio.create_task_group() as tasks:
        run = await w.ocean.create_run(session_id="s", clog_id="held", input=1)
        other = await w.instance([clog])
        tasks.start_soon(w.drain)
        await entered.wait()
        with anyio.fail_after(10):
            assert (await other.advance(run_id=run.run_id, max_ticks=0, budget_ms=60_000)).outcomes == ()
        go_on.set()


class LateAnswer(SqliteStore):
    """A store whose first empty claim returns only after the running tick has committed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(":memory:", clock)
        self.found_nothing = anyio.Event()

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        claims = await super().claim_due(ask)
        if not claims and not self.found_nothing.is_set():
            self.found_nothing.set()
            while (await self.get_run("late")).status is not RunStatus.PENDING:  # type: ignore[union-attr]
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
        return claims


async def test_a_tick_that_ends_during_an_empty_claim_leads_to_another_claim() -> None:
    """The claim found nothing due, then the last running tick made its run due again: the poke must claim again."""
    clog, clock = Clog("late"), ManualClock()
    store = LateAnswer(clock)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.run_id == "late" and tick.number == 1:
            await store.found_nothing.wait()
            return Continue()
        return Done()

    await store.open()
    ocean = Ocean(store, [clog], clock)
    await ocean.start()
    await ocean.create_run(session_id="s", clog_id="late", run_id="late", input=1)
    await ocean.create_run(session_id="s", clog_id="late", run_id="quick", input=1)
    poke = await ocean.advance()
    assert (poke.advanced, poke.due_now) == (3, 0)
    await ocean.close()
