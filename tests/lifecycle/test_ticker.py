"""A ticker pokes when something is due, and does not query the database while nothing is."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Clog, Done, Ocean, Ok, Outcome, RunStatus, StoreBusy, Tick, Wait
from ocean.kernel.advance import Advance
from ocean.kernel.coordinator import Coordinator
from ocean.state.records import Agenda, TickResult
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock, World
from ocean.ticker import ticker
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start
from tests.lifecycle.ticking import PATIENCE_S, until_ticks

pytestmark = pytest.mark.anyio


async def test_a_local_commit_is_a_poke() -> None:
    clog = Script(Done())
    async with stage(clog) as w, ticker(w.ocean) as one:
        await let_others_go_on(w)
        run_id = await start(w)
        await until_ticks(w, one, 1)
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_it_wakes_when_the_earliest_run_is_due_and_not_before() -> None:
    clog = Script(Wait(for_ms=3_600_000), Done())
    async with stage(clog) as w, ticker(w.ocean) as one:
        run_id = await start(w)
        await until_ticks(w, one, 1)
        await let_others_go_on(w)
        pokes = one.pokes
        for _ in range(59):
            w.clock.advance(60_000)
            await let_others_go_on(w)
        assert one.pokes == pokes
        w.clock.advance(60_000)
        await until_ticks(w, one, 2)
        assert (await look(w, run_id)).status is RunStatus.DONE


@pytest.mark.sqlite
async def test_a_signal_at_rest_takes_two_transactions_that_look_for_nothing_else(tmp_path: Path) -> None:
    statements: list[str] = []
    async with stage(Script(Ok()), url=f"sqlite:///{tmp_path / 'ocean.db'}") as w, ticker(w.ocean) as one:
        run_id = await start(w)
        await until_ticks(w, one, 1)
        await let_others_go_on(w)
        assert isinstance(w.store, SqliteStore)
        await w.store.database.on_writer(lambda db: db.set_trace_callback(statements.append))
        await w.ocean.signal(run_id, "hello")
        await until_ticks(w, one, 2)
        await w.store.database.on_writer(lambda db: db.set_trace_callback(None))
    verbs = [re.sub(r"--.*\n", "", statement).split()[0] for statement in statements]
    assert verbs == [
        *("BEGIN", "PRAGMA", "SELECT", "SELECT", "SELECT", "UPDATE", "INSERT", "INSERT", "INSERT", "COMMIT"),
        *("BEGIN", "PRAGMA", "UPDATE", "UPDATE", "UPDATE", "INSERT", "COMMIT"),
    ]


async def test_while_nothing_is_due_a_day_costs_no_poke() -> None:
    async with stage(Script(Ok())) as w, ticker(w.ocean) as one:
        await start(w)
        await until_ticks(w, one, 1)
        await let_others_go_on(w)
        pokes = one.pokes
        for _ in range(24 * 6):
            w.clock.advance(600_000)
            await let_others_go_on(w)
        assert one.pokes == pokes


class Beaten(Ocean):
    """Something is due, but other processes always claim it first."""

    async def agenda(self) -> Agenda:
        return Agenda(due_now=1, next_wake_at=self.clock.now(), oldest_due_age_ms=0, unclaimable=0)


async def test_a_due_run_that_cannot_be_claimed_is_tried_twice_and_then_once_a_second() -> None:
    async with stage(Script(Ok())) as w, ticker(Beaten(w.store, [], w.clock)) as one:
        await let_others_go_on(w)
        assert one.pokes == 2
        w.clock.advance(999)
        await let_others_go_on(w)
        assert one.pokes == 2
        w.clock.advance(1)
        await let_others_go_on(w)
        assert one.pokes == 3


class Early(Ocean):
    """A run that becomes due right after the claim is due when the agenda is read."""

    async def agenda(self) -> Agenda:
        agenda = await super().agenda()
        if agenda.next_wake_at == self.clock.now() + 1:
            assert isinstance(self.clock, ManualClock)
            self.clock.advance(1)
            return replace(agenda, due_now=1)
        return agenda


async def test_a_run_due_just_after_a_claim_does_not_wait_for_a_second() -> None:
    clog = Script(Wait(for_ms=1_000), Done())
    async with stage(clog) as w:
        run_id = await start(w)
        await w.ocean.advance()
        w.clock.advance(999)
        early = Early(w.store, [clog], w.clock)
        await early.start()
        async with ticker(early) as one:
            await until_ticks(w, one, 1)
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_a_run_held_by_another_poke_does_not_make_the_ticker_spin() -> None:
    release = anyio.Event()
    entered = anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        entered.set()
        await release.wait()
        return Done()

    async with stage(Script(slow)) as w, anyio.create_task_group() as tasks:
        await start(w)
        tasks.start_soon(w.ocean.advance)
        await entered.wait()
        async with ticker(w.ocean) as one:
            await let_others_go_on(w)
            pokes = one.pokes
            await let_others_go_on(w)
            assert one.pokes == pokes
            release.set()


async def test_an_error_in_the_block_is_raised_unchanged() -> None:
    async with stage(Script(Done())) as w:
        with pytest.raises(ValueError, match="mine"):
            async with ticker(w.ocean):
                raise ValueError("mine")


async def test_a_ticker_can_be_closed_after_its_ocean() -> None:
    async with stage(Script(Done())) as w:
        async with Ocean.open("sqlite://:memory:") as other:
            held = ticker(other)
            one = await held.__aenter__()
            await other.get_run("nobody")
        await held.__aexit__(None, None, None)
        assert one.ticks == 0
        await start(w)


class Failing(Coordinator):
    """Fails pokes with these errors until none is left; pokes that begin with a claim succeed."""

    def __init__(self, ocean: Ocean, *errors: Exception) -> None:
        super().__init__(ocean._runtime, 0)
        self.errors = list(errors)

    async def perform(self, poke: Advance, hard_ms: int | None = None) -> list[TickResult]:
        if self.errors and not poke.claims:
            raise self.errors.pop(0)
        return await super().perform(poke, hard_ms)


BUSY = StoreBusy("another process holds it")


def failing(w: World, clog: Clog, *errors: Exception) -> tuple[Ocean, Failing]:
    ocean = Ocean(w.store, [clog], w.clock)
    ocean.coordinator = coordinator = Failing(ocean, *errors)
    return ocean, coordinator


async def test_a_busy_database_is_retried_with_growing_pauses() -> None:
    async with stage(Script(Done())) as w:
        busy, _ = failing(w, Script(Done()), BUSY, BUSY, BUSY)
        run_id = await start(w)
        async with ticker(busy) as one:
            await let_others_go_on(w)
            for ms, pokes in ((999, 1), (1, 2), (1_999, 2), (1, 3), (3_999, 3), (1, 4)):
                w.clock.advance(ms)
                await let_others_go_on(w)
                assert one.pokes >= pokes
                if pokes < 4:
                    assert one.pokes == pokes
            await until_ticks(w, one, 1)
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_after_a_poke_that_worked_the_pauses_start_again() -> None:
    async with stage(Script(Done(), Done())) as w:
        busy, pokes_of = failing(w, Script(Done(), Done()), BUSY, BUSY)
        async with ticker(busy) as one:
            for ms in (0, 1_000, 2_000):
                w.clock.advance(ms)
                await let_others_go_on(w)
            pokes_of.errors = [BUSY]
            await start(w)
            with anyio.fail_after(PATIENCE_S):
                while pokes_of.errors:
                    await let_others_go_on(w)
                pokes = one.pokes
                w.clock.advance(1_000)
                while one.pokes == pokes:
                    await let_others_go_on(w)
            await until_ticks(w, one, 1)


async def test_an_unexpected_error_is_logged_and_does_not_end_the_ticker(caplog: pytest.LogCaptureFixture) -> None:
    async with stage(Script(Done())) as w:
        await start(w)
        broken, _ = failing(w, Script(Done()), ValueError("no such column"))
        async with ticker(broken) as one:
            await let_others_go_on(w)
            w.clock.advance(1_000)
            await until_ticks(w, one, 1)
    (record,) = [record for record in caplog.records if record.name == "ocean.ticker"]
    assert record.getMessage() == "a poke failed; the next one follows by itself"
    assert record.exc_info is not None
    assert "no such column" in str(record.exc_info[1])


class Napping(Ocean):
    """Records how long its ticker would sleep."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.naps: list[int] = []

    async def next_change(self, seen: int, *, wait_ms: int, look_ms: int = 100) -> int:
        self.naps.append(wait_ms)
        return await super().next_change(seen, wait_ms=wait_ms, look_ms=look_ms)


async def test_a_clock_that_was_set_is_noticed_within_a_minute() -> None:
    async with stage() as w:
        napping = Napping(w.store, [Script(Wait(for_ms=3_600_000))], w.clock)
        await napping.start()
        await start(w)
        async with ticker(napping) as one:
            await until_ticks(w, one, 1)
            await let_others_go_on(w)
        assert napping.naps
        assert max(napping.naps) == 60_000


async def test_a_database_that_stays_busy_is_retried_every_thirty_seconds() -> None:
    async with stage(Script(Done())) as w:
        busy, _ = failing(w, Script(Done()), *[BUSY] * 100)
        async with ticker(busy) as one:
            for ms in (0, 1_000, 2_000, 4_000, 8_000, 16_000):
                w.clock.advance(ms)
                await let_others_go_on(w)
            assert one.pokes == 6
            for pokes in (7, 8):
                w.clock.advance(29_999)
                await let_others_go_on(w)
                assert one.pokes == pokes - 1
                w.clock.advance(1)
                await let_others_go_on(w)
                assert one.pokes == pokes


async def test_another_process_s_commit_is_seen(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    async with (
        Ocean.open(url, clogs=[Script(Done())]) as here,
        Ocean.open(url) as elsewhere,
        ticker(here, look_ms=50) as one,
    ):
        run = await elsewhere.create_run(session_id="s", clog_id="c", input={})
        with anyio.fail_after(PATIENCE_S):
            while one.ticks < 1:
                await elsewhere.get_run(run.run_id)


async def test_other_processes_commits_are_polled_at_the_shortest_requested_interval(tmp_path: Path) -> None:
    async with Ocean.open(f"sqlite:///{tmp_path / 'ocean.db'}") as ocean, anyio.create_task_group() as tasks:
        looks: list[str] = []
        assert isinstance(ocean._store, SqliteStore)
        await ocean._store.database.read(lambda db: db.set_trace_callback(looks.append))
        began_at, seen = ocean.clock.now(), ocean.commits_seen()
        await ocean.next_change(seen, wait_ms=300, look_ms=100)
        assert 2 <= len(looks) <= 2 + (ocean.clock.now() - began_at) // 100
        looks.clear()
        tasks.start_soon(lambda: ocean.next_change(seen, wait_ms=400, look_ms=60_000))
        await ocean.next_change(seen, wait_ms=300, look_ms=50)
        assert len(looks) >= 2
