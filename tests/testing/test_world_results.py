"""`result` and `settle` in a world: virtual time passes, and nothing hangs."""

from collections.abc import Iterator

import anyio
import pytest

from ocean import Clog, Continue, Done, Ok, Outcome, ResultTimeout, RetryPolicy, RunFailed, Tick, Wait
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk
from ocean.testing import RunStuck, World, world
from tests.postgres.server import fresh_database, return_database
from tests.testing.shops import clog_of

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh database of each store."""
    if request.param == "sqlite":
        yield "sqlite://:memory:"
        return
    url = fresh_database()
    yield url
    return_database(url)


async def start(w: World, **options: object) -> str:
    return (await w.ocean.create_run(session_id="s", clog_id="c", input={}, **options)).run_id  # type: ignore[arg-type]


async def raises(tick: Tick) -> Outcome:
    raise ValueError("no such hotel")


async def test_result_of_a_handler_that_raises_moves_the_clock_to_the_failure(either: str) -> None:
    async with world([clog_of(raises)], url=either) as w:
        began, run_id = w.clock.now(), await start(w)
        with anyio.fail_after(20):
            await w.drain()
            with pytest.raises(RunFailed, match="no such hotel"):
                await w.ocean.result(run_id)
        assert w.clock.now() > began


async def test_result_waits_over_weeks_and_returns_the_output(either: str) -> None:
    async def waits(tick: Tick) -> Outcome:
        return Wait(for_ms=7 * DAY_MS) if tick.number < 4 else Done(tick.number)

    async with world([clog_of(waits)], url=either) as w:
        began, run_id = w.clock.now(), await start(w)
        with anyio.fail_after(20):
            assert await w.ocean.result(run_id) == 4
        assert w.clock.now() == began + 21 * DAY_MS


async def test_a_timeout_is_virtual_time_and_its_error_has_the_last_error(either: str) -> None:
    policy = RetryPolicy(max_attempts=None, delays_ms=(10_000,))
    async with world([clog_of(raises)], url=either) as w:
        began, run_id = w.clock.now(), await start(w, retry=policy)
        with anyio.fail_after(20), pytest.raises(ResultTimeout, match=r"after 25000 ms.*no such hotel") as late:
            await w.ocean.result(run_id, timeout_ms=25_000)
        assert not isinstance(late.value, RunStuck)
        assert w.clock.now() == began + 25_000
        run = await w.ocean.get_run(run_id)
        assert run is not None
        assert run.attempt == 3


@pytest.mark.parametrize("case", ["idle", "paused", "after an error", "elsewhere", "external"])
async def test_a_run_that_no_time_moves_raises_at_once_and_says_why(either: str, case: str) -> None:
    async def rests(tick: Tick) -> Outcome:
        return Ok()

    away, outside = Clog("away"), Clog("outside", external=True)
    away.on_advance(rests)
    async with world([clog_of(raises if case == "after an error" else rests), outside], url=either) as w:
        other = await w.instance([away])
        clog_id = {"elsewhere": "away", "external": "outside"}.get(case, "c")
        run_id = (await other.create_run(session_id="s", clog_id=clog_id, input={})).run_id
        if case in ("idle", "after an error"):
            await w.drain()
        if case in ("paused", "after an error"):
            await w.ocean.pause_run(run_id)
        began = w.clock.now()
        words = {"idle": "inbox is empty", "elsewhere": "not registered here", "external": "claim_work"}
        with anyio.fail_after(20), pytest.raises(RunStuck, match=words.get(case, "paused")) as stuck:
            await w.ocean.result(run_id)
        assert ("no such hotel" in str(stuck.value)) == (case == "after an error")
        assert w.clock.now() == began


async def test_result_takes_a_run_over_when_the_lock_of_a_dead_process_expires(either: str) -> None:
    async def ends(tick: Tick) -> Outcome:
        return Done(tick.call_number)

    async with world([clog_of(ends)], url=either, lock_ms=5_000) as w:
        began, run_id = w.clock.now(), await start(w)
        assert await w.store.claim_due(ClaimAsk({"c": ClaimableClog("c", 5_000, "1", False)}, "dead", 1, 0))
        with anyio.fail_after(20):
            assert await w.ocean.result(run_id) == 2
        assert w.clock.now() == began + 5_000


async def test_result_waits_for_a_handler_that_another_task_runs_and_moves_no_clock(either: str) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        begun.set()
        await go_on.wait()
        return Done("done")

    async with world([clog_of(slow)], url=either) as w:
        began, run_id = w.clock.now(), await start(w)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.drain)
                await begun.wait()
                other = await w.instance([clog_of(slow)])
                tasks.start_soon(other.result, run_id)
                go_on.set()
        assert w.clock.now() == began


async def test_a_run_that_always_continues_is_reported(either: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocean.testing.world_ocean.MOST_TICKS", 30)

    async def goes_on(tick: Tick) -> Outcome:
        return Continue() if tick.number % 2 else Wait(for_ms=10)

    async with world([clog_of(goes_on)], url=either) as w:
        run_id = await start(w)
        with anyio.fail_after(20), pytest.raises(AssertionError, match="does it ever end"):
            await w.ocean.result(run_id)


async def test_settle_lets_at_most_its_time_pass(either: str) -> None:
    policy = RetryPolicy(max_attempts=None, delays_ms=(700,))

    async def advance(tick: Tick) -> Outcome:
        if tick.call_number < 3:
            raise ValueError("not yet")
        return Ok()

    async with world([clog_of(advance)], url=either) as w:
        began, run_id = w.clock.now(), await start(w, retry=policy)
        with anyio.fail_after(20):
            assert (await w.ocean.settle(run_id)).status == "pending"
            assert w.clock.now() == began + 1_000
            assert (await w.ocean.settle(run_id)).status == "idle"
            assert w.clock.now() == began + 1_400
            await w.ocean.pause_run(run_id)
            await w.ocean.signal(run_id, 1)
            assert (await w.ocean.settle(run_id)).status == "pending"
        assert w.clock.now() == began + 2_400
