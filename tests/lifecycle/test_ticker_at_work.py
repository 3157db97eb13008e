"""A ticker and its handlers: slow ones do not block others, and the ticker waits for them at its end."""

import asyncio
from contextvars import ContextVar

import anyio
import pytest

from ocean import Done, Outcome, RunStatus, Tick, Wait
from ocean.kernel.advance import LOOK_MS, LOOKS
from ocean.kernel.store.claims import ClaimAsk
from ocean.state.records import Claim
from ocean.testing import World
from ocean.ticker import MOST_AT_WORK, Ticker, ticker
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start, start_idle
from tests.lifecycle.ticking import PATIENCE_S, until_asleep, until_ticks
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


async def test_a_slow_handler_does_not_delay_runs_that_become_due_meanwhile() -> None:
    entered, release = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        entered.set()
        await release.wait()
        return Done("at last")

    async with stage(Script(slow), Script(Wait(for_ms=60_000), Done(), clog_id="quick")) as w:
        async with ticker(w.ocean) as one:
            late = await start(w)
            await entered.wait()
            quick = await start(w, clog_id="quick")
            w.clock.advance(1_000)
            await until_ticks(w, one, 1)
            pokes = one.pokes
            await let_others_go_on(w)
            assert one.pokes <= pokes + 1
            w.clock.advance(60_000)
            await until_ticks(w, one, 2)
            assert (await look(w, quick)).status is RunStatus.DONE
            assert (await look(w, late)).status is RunStatus.ACTIVE
            release.set()
        assert (await look(w, late)).output == "at last"


@pytest.mark.parametrize("comes", ["by a commit", "by its time"])
async def test_a_run_due_during_a_slow_handler_does_not_wait_for_the_end_of_its_poke(comes: str) -> None:
    entered, release = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        entered.set()
        await release.wait()
        return Done()

    async with stage(Script(slow), Script(Done(), clog_id="quick")) as w:
        if comes == "by its time":
            late = await start_idle(w, clog_id="quick")
            await w.ocean.signal(late, deliver_at=w.clock.now() + LOOK_MS + LOOK_MS * LOOKS)
        async with ticker(w.ocean) as one:
            await start(w)
            await entered.wait()
            await let_others_go_on(w)
            try:
                # The claim was itself a commit, which causes one more look for due runs.
                w.clock.advance(LOOK_MS)
                await let_others_go_on(w)
                if comes == "by a commit":
                    await start(w, clog_id="quick")
                    w.clock.advance(LOOK_MS)
                else:
                    w.clock.advance(LOOK_MS * LOOKS)
                await until_quick(w, one)
            finally:
                release.set()


async def until_quick(w: World, one: Ticker) -> None:
    """Wait for the quick run: a poke's ticks are counted when it ends, and the slow one has not ended."""
    with anyio.fail_after(PATIENCE_S):
        while (await w.ocean.count_runs(clog_id="quick", status="done")).count < 1:
            await let_others_go_on(w)
    assert one.ticks == 0


async def test_a_poke_claims_nothing_after_its_budget_while_its_handlers_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, release, claims = anyio.Event(), anyio.Event(), list[ClaimAsk]()

    async def slow(tick: Tick) -> Outcome:
        entered.set()
        await release.wait()
        return Done()

    async with stage(Script(slow)) as w, anyio.create_task_group() as tasks:
        claim_due = w.store.claim_due

        async def claim(ask: ClaimAsk) -> list[Claim]:
            claims.append(ask)
            return await claim_due(ask)

        monkeypatch.setattr(w.store, "claim_due", claim)
        await start(w)
        tasks.start_soon(lambda: w.ocean.advance(budget_ms=3 * LOOK_MS * LOOKS))
        await entered.wait()
        for _ in range(30 * LOOKS):
            w.clock.advance(LOOK_MS)
            await let_others_go_on(w)
        # One that found the run, one after that claim's own commit, then one per interval until the budget is spent.
        assert 3 <= len(claims) <= 5
        release.set()


@pytest.mark.sqlite
async def test_no_more_handlers_run_at_once_than_a_poke_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim in flight when its poke's budget ends is unknown to the next poke; this test has none."""
    entered, most, release = 0, 0, anyio.Event()
    claiming = 0

    async def slow(tick: Tick) -> Outcome:
        nonlocal entered, most
        entered += 1
        most = max(most, w.ocean.at_work)
        await release.wait()
        return Done()

    async with stage(Script(slow)) as w, ticker(w.ocean) as one:
        claim_due = w.store.claim_due

        async def claim(ask: ClaimAsk) -> list[Claim]:
            nonlocal claiming
            claiming += 1
            try:
                return await claim_due(ask)
            finally:
                claiming -= 1

        async def let_a_second_pass() -> None:
            await let_others_go_on(w)
            await until(lambda: not claiming)
            w.clock.advance(1_000)

        monkeypatch.setattr(w.store, "claim_due", claim)
        try:
            for _ in range(MOST_AT_WORK + 8):
                await start(w)
            with anyio.fail_after(PATIENCE_S):
                while entered < MOST_AT_WORK:
                    await let_a_second_pass()
            for _ in range(5):
                await let_a_second_pass()
            assert (entered, most) == (MOST_AT_WORK, MOST_AT_WORK)
        finally:
            release.set()
        # No time passes: handlers that end free their slots for the others.
        await until_ticks(w, one, MOST_AT_WORK + 8)


async def test_a_stopping_ticker_waits_for_its_running_handler() -> None:
    entered, release = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        entered.set()
        await release.wait()
        return Done("finished")

    async with stage(Script(slow)) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:

            async def free() -> None:
                await let_others_go_on(w)
                release.set()

            async with ticker(w.ocean):
                await entered.wait()
                tasks.start_soon(free)
        assert (await look(w, run_id)).output == "finished"


async def test_the_run_of_a_handler_that_outlasts_the_grace_is_given_back() -> None:
    entered = anyio.Event()

    async def endless(tick: Tick) -> Outcome:
        entered.set()
        await anyio.Event().wait()
        return Done()

    async with stage(Script(endless)) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:

            async def hurry() -> None:
                await let_others_go_on(w)
                w.clock.advance(5_000)

            async with ticker(w.ocean, grace_ms=5_000):
                await entered.wait()
                tasks.start_soon(hurry)
        run = await look(w, run_id)
        assert (run.status, run.attempt) == (RunStatus.PENDING, 0)


async def test_a_cancelled_grace_period_gives_the_run_back() -> None:
    """A second Ctrl-C cancels the task that waits."""
    begun, is_leaving = anyio.Event(), anyio.Event()

    async def endless(tick: Tick) -> Outcome:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with stage(Script(endless)) as w:
        run_id = await start(w)

        async def serve() -> None:
            async with ticker(w.ocean):
                await begun.wait()
                is_leaving.set()

        serving = asyncio.create_task(serve())
        await is_leaving.wait()
        await let_others_go_on(w)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        run = await look(w, run_id)
        assert (run.status, run.locked_by, run.attempt) == (RunStatus.PENDING, None, 0)


async def test_a_sleeping_tickers_claim_is_called_before_its_creator_continues_and_in_the_tickers_context() -> None:
    caller = ContextVar[str]("caller", default="none")
    order: list[str] = []

    async def advance(tick: Tick) -> Outcome:
        order.append(f"handler of the {caller.get()}")
        return Done()

    async with stage(Script(advance)) as w:
        caller.set("ticker")
        async with ticker(w.ocean) as one:
            await until_asleep(w)
            caller.set("maker")
            await start(w)
            order.append("maker")
            await until_ticks(w, one, 1)
        assert order == ["handler of the ticker", "maker"]
