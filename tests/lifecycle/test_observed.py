"""The counts of an Ocean: pokes by source, ticks by outcome, lost locks, conflicts, leases, batches."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import anyio
import pytest

from ocean import Clog, Continue, Done, Failed, InvalidValue, LeaseLost, Ocean, Ok, Outcome, Retry, StoreBusy, Tick
from ocean.kernel.metrics import Histogram, Listener, TickSeen
from ocean.kernel.poke_sources import PokeSource
from ocean.kernel.store.claims import TickAnswer, TickCommit
from ocean.state.outcomes import plain_code
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock, World
from ocean.ticker import ticker
from tests.lifecycle.acting import LOCK_MS, Script, let_others_go_on, look, stage, start, start_idle
from tests.lifecycle.outside import LEASE_MS, leases, outside
from tests.races.arranging import busy_writer, queued, until

pytestmark = pytest.mark.anyio


def counts(w: World) -> dict[str, int]:
    return {source: pokes.count for source, pokes in w.ocean.observed.pokes.items()}


async def test_a_poke_is_counted_by_its_source() -> None:
    async with stage(Script(Continue(), Done())) as w:
        await w.ocean.advance()
        await w.ocean.advance(source="http")
        assert counts(w) == {"python": 1, "http": 1}
        await w.ocean.settle(await start(w))
        assert counts(w)["wait"] == 1
        async with ticker(w.ocean):
            await until(lambda: "ticker" in counts(w))
        run_id = await start(w)
        with w.ocean.watching(run_id):
            await until(lambda: "watcher" in counts(w))
            await let_others_go_on(w)
        pokes = w.ocean.observed.pokes["python"]
        assert (pokes.last_at, pokes.under_way) == (w.clock.now(), 0)


async def test_a_poke_of_an_unknown_source_is_refused_and_a_dry_run_is_no_poke() -> None:
    async with stage(Script()) as w:
        source: Any = "cron"
        with pytest.raises(InvalidValue, match="source must be one of"):
            await w.ocean.advance(source=source)
        await w.ocean.advance(run_id=await start(w), dry_run=True)
        assert counts(w) == {}


async def test_a_poke_is_under_way_until_its_handlers_are_done() -> None:
    async def look_inside(tick: Tick) -> Outcome:
        under_way.append(w.ocean.observed.pokes["python"].under_way)
        return Done()

    under_way: list[int] = []
    async with stage(Script(look_inside)) as w:
        await start(w)
        await w.ocean.advance()
        assert (under_way, w.ocean.observed.pokes["python"].under_way) == ([1], 0)


async def test_ticks_are_counted_by_clog_and_outcome() -> None:
    async with stage(Script(Continue(), Retry("no"), Ok(), Failed("never"), Done())) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(600_000)
        await w.drain()
        for _ in range(2):
            await w.ocean.signal(run_id, 1)
            await w.drain()
            if (await look(w, run_id)).is_ended:
                break
        await start(w)
        await w.drain()
        ticks = {outcome: n for (clog, outcome), n in w.ocean.observed.ticks.items() if clog == "c"}
        assert ticks == {"continue": 1, "retry": 1, "ok": 1, "failed": 1, "done": 1}
        assert w.ocean.observed.tick_ms["c"].count == 5


async def test_the_duration_of_a_tick_is_counted() -> None:
    async def slow(tick: Tick) -> Outcome:
        w.clock.advance(700)
        return Done()

    async with stage(Script(slow)) as w:
        await start(w)
        await w.drain()
        (histogram,) = w.ocean.observed.tick_ms.values()
        assert (histogram.sum, histogram.counts[histogram.bounds.index(1_000)]) == (700, 1)


async def test_a_lost_lock_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    began, go_on = anyio.Event(), anyio.Event()

    async def frozen(tick: Tick) -> Outcome:
        began.set()
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return Done()

    script = Script(frozen, Done())
    async with stage(script) as w:
        assert w.ocean.observed.lock_losses == {"c": 0}
        run_id = await start(w)
        successor = await w.instance([script])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            w.clock.jump(LOCK_MS + 1)
            assert (await successor.advance()).advanced == 1
            go_on.set()
        assert (w.ocean.observed.lock_losses["c"], successor.observed.lock_losses["c"]) == (1, 0)
        assert w.ocean.observed.ticks == {("c", "lock_lost"): 1}
    (record,) = [each for each in caplog.records if each.name == "ocean.tick"]
    assert record.levelno == logging.WARNING
    lost = "lost its lock: another instance has the run, and what this call did is discarded"
    assert record.getMessage() == f"c tick 1 of run {run_id} {lost}"
    fields = record.__dict__["ocean_fields"]
    assert (fields["run_id"], fields["outcome"], fields["clog_id"]) == (run_id, "lock_lost", "c")


async def test_runs_given_back_are_counted() -> None:
    began = anyio.Event()

    async def endless(tick: Tick) -> Outcome:
        began.set()
        await anyio.sleep_forever()
        return Done()

    async with stage(Script(endless, Done())) as w:
        await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            tasks.cancel_scope.cancel()
        assert w.ocean.observed.ticks == {("c", "given_back"): 1}


class Refusing(SqliteStore):
    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        raise StoreBusy("held by another process")


async def test_commits_that_the_database_refuses_are_counted() -> None:
    store = Refusing(":memory:", ManualClock())
    await store.open()
    ocean = Ocean(store, [Script(Done())], store._clock)
    try:
        await ocean.start()
        await ocean.create_run(session_id="s", clog_id="c", input=1)
        with pytest.raises(StoreBusy):
            await ocean.advance()
        assert ocean.observed.ticks == {("c", "error"): 1}
        assert ocean.observed.pokes["python"].under_way == 0
    finally:
        await ocean.close()


async def test_a_tick_and_a_call_that_are_made_again_are_conflicts() -> None:
    clog = Clog("c")
    attempts = {"tick": 0, "call": 0}

    async def beaten(tick: Tick, by: str) -> None:
        """Read the session's row; another tick writes it before this one does."""
        rows = await tick.read(session=True)
        attempts[by] += 1
        if attempts[by] == 1:
            await w.ocean.call_clog(clog_id="c", session_id="s", method="add")
        await tick.write(session=(rows.session or 0) + 1)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await beaten(tick, "tick")
        return Done()

    @clog.method
    async def add(tick: Tick, payload: Any) -> None:
        await tick.write(session=((await tick.read(session=True)).session or 0) + 1)

    @clog.method
    async def slow(tick: Tick, payload: Any) -> None:
        await beaten(tick, "call")

    async with stage(clog) as w:
        await start(w)
        await w.drain()
        await w.ocean.call_clog(clog_id="c", session_id="s", method="slow")
        assert w.ocean.observed.conflicts == {("c", "tick", "rows"): 1, ("c", "call", "rows"): 1}
        assert w.ocean.observed.ticks == {("c", "done"): 1}


async def test_a_counter_that_others_emptied_is_a_conflict_too() -> None:
    async def take(tick: Tick) -> Outcome:
        taken = await tick.take("mails", limit=1)
        if taken:
            await w.ocean.take("mails", limit=1)
        return Done(bool(taken))

    async with stage(Script(take)) as w:
        await start(w)
        await w.drain()
        assert w.ocean.observed.conflicts == {("c", "tick", "counters"): 1}


async def test_leases_and_their_ends_are_counted() -> None:
    async with stage(outside()) as w:
        for _ in range(2):
            await start(w, clog_id="e")
        first, second = await leases(w, limit=2)
        await w.ocean.complete_work(first.lease_id, Ok())
        w.clock.advance(LEASE_MS + 1)
        await w.drain()
        with pytest.raises(LeaseLost):
            await w.ocean.complete_work(second.lease_id, Done())
        assert w.ocean.observed.leases == {"e": 2}
        assert w.ocean.observed.completions == {"ok": 1, "lease_lost": 1}


async def test_writes_that_share_a_transaction_are_counted(tmp_path: Any) -> None:
    async with stage(Script(), url=f"sqlite:///{tmp_path}/o.db") as w:
        batches = w.ocean.observed.batches
        before, total = list(batches.counts), batches.sum
        async with anyio.create_task_group() as tasks, busy_writer(w):
            for _ in range(4):
                tasks.start_soon(start_idle, w)
            await queued(w, 4)
        rise = {bound: n - m for bound, n, m in zip((*batches.bounds, 0), batches.counts, before, strict=True) if n > m}
        assert rise == {1: 1, 4: 1}
        assert batches.sum - total == 5


class Notes(Listener):
    def __init__(self, fail: str = "") -> None:
        self.fail = fail
        self.calls: list[Any] = []

    def around_poke(self, source: PokeSource, run_id: str | None) -> AbstractContextManager[None]:
        return self._around("poke", lambda: (source, run_id))

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[None]:
        return self._around("tick", lambda: (seen.outcome, seen.code, seen.call))

    @contextmanager
    def _around(self, what: str, describe: Any) -> Iterator[None]:
        if self.fail == "begin":
            raise RuntimeError("cannot begin")
        try:
            yield
        finally:
            self.calls.append((what, describe()))
            if self.fail == "end":
                raise RuntimeError("cannot end")


async def test_a_listener_wraps_ticks_and_pokes_and_sees_their_results() -> None:
    notes = Notes()
    async with stage(Script(Retry({"code": "no_paper", "message": "secret"}))) as w:
        w.ocean.observed.add_listener(notes)
        run_id = await start(w)
        await w.ocean.advance(run_id=run_id)
        assert notes.calls == [("tick", ("retry", "no_paper", 1)), ("poke", ("python", run_id))]


@pytest.mark.parametrize("fail", ["begin", "end"])
@pytest.mark.parametrize("outcome", [Done(), Retry("no")], ids=str)
async def test_a_listener_that_fails_has_no_effect(
    fail: str, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    async with stage(Script(outcome)) as w:
        w.ocean.observed.add_listener(Notes(fail))
        w.ocean.observed.add_listener(notes)
        await start(w)
        assert (await w.ocean.advance()).advanced == 1
        assert [what for what, _ in notes.calls] == ["tick", "poke"]
    assert caplog.text.count(f"a listener failed to {'start' if fail == 'begin' else 'end'}") == 2


def test_a_histogram_has_each_value_under_the_first_bound_that_is_not_below_it() -> None:
    histogram = Histogram((1, 5))
    for value in (0, 1, 2, 5, 6, 100):
        histogram.add(value)
    assert (histogram.counts, histogram.sum, histogram.count) == ([2, 2, 2], 114, 6)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("no_paper", "no_paper"),
        ("E.42-x", "E.42-x"),
        ("a b", "other"),
        ("", "other"),
        ("x" * 65, "other"),
        ("a\n", "other"),
    ],
)
def test_a_text_that_does_not_look_like_a_code_is_replaced(code: str, expected: str) -> None:
    assert plain_code(code) == expected
