"""The number of transactions of a tick on SQLite: claims share the transactions of other writes."""

import asyncio

import anyio
import pytest
from anyio.abc import TaskGroup

from ocean import Clog, Continue, Done, Ok, Outcome, RunStatus, Tick
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World
from ocean.ticker import Ticker, ticker
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]

PATIENCE_S = 20


def transactions(w: World) -> int:
    assert isinstance(w.store, SqliteStore)
    return w.store.database.group_sizes[0]


async def test_a_commit_and_the_next_claim_share_one() -> None:
    async with stage(Script(*[Continue()] * 4, Done())) as w:
        run_id = await start(w)
        before = transactions(w)
        assert (await w.ocean.advance()).advanced == 5
        # The first claim; then each commit together with the next claim.
        assert transactions(w) == before + 1 + 5
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_a_signal_and_the_claim_of_a_ticker_that_sleeps_share_one() -> None:
    async with stage(Script(Ok(), Done())) as w, ticker(w.ocean) as one:
        run_id = await start(w)
        with anyio.fail_after(PATIENCE_S):
            while one.ticks < 1:
                await let_others_go_on(w)
            await let_others_go_on(w)
            before = transactions(w)
            await w.ocean.signal(run_id)
            while one.ticks < 2:
                await let_others_go_on(w)
        assert transactions(w) == before + 2
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_a_handler_that_has_returned_frees_its_slot_before_its_commit_is_done() -> None:
    """Otherwise the next claim would have to wait for it."""
    at_once, most = 0, 0

    async def advance(tick: Tick) -> Outcome:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.lowlevel.checkpoint()
        at_once -= 1
        return Done()

    clog = Clog("c")
    clog.on_advance(advance)
    async with stage(clog) as w:
        for _ in range(6):
            await w.ocean.create_run(session_id="s", clog_id="c", input=1)
        before = transactions(w)
        assert (await w.ocean.advance(concurrency=2)).advanced == 6
        assert most == 2
        assert transactions(w) <= before + 1 + 6


async def test_first_commits_of_runs_claimed_together_share_transactions_with_the_next_claims() -> None:
    async with stage(Script(Continue(), Continue(), Done(), Done())) as w, ticker(w.ocean) as one:
        await let_others_go_on(w)
        before = transactions(w)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start, w)
                tasks.start_soon(start, w)
            while one.ticks < 4:
                await let_others_go_on(w)
        assert transactions(w) == before + 3


class Stuck(Ticker):
    """Its handler is never called."""

    async def _turn(self, tasks: TaskGroup) -> None:
        await anyio.sleep_forever()


async def test_a_ticker_that_is_cancelled_with_a_poke_begun_gives_its_runs_back() -> None:
    clog = Clog("c")
    is_called = asyncio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        is_called.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with stage(clog) as w:
        one = Stuck(w.ocean, 1_000, 1_000)
        w.ocean.coordinator.claim_ahead(1, one._has_begun, 1_000, "ticker")
        run_id = await start(w)
        await is_called.wait()
        assert (await look(w, run_id)).status is RunStatus.ACTIVE
        task = asyncio.create_task(one.run())
        await let_others_go_on(w)
        task.cancel()
        await asyncio.wait([task])
        found = await look(w, run_id)
        assert (found.status, found.attempt) == (RunStatus.PENDING, 0)
