"""The counter of the design document: every line of it is an API that must stay."""

from typing import Any

import pytest

from ocean import Clog, Continue, Done, Ocean, RetryPolicy, Tick

pytestmark = pytest.mark.anyio

counter = Clog("counter")


@counter.on_advance
async def advance(tick: Tick):  # type: ignore[no-untyped-def]
    rows = await tick.read(run=True)
    n = (rows.run or {"n": 0})["n"] + 1
    await tick.emit("counted", {"n": n})
    await tick.write(run={"n": n})
    return Done({"n": n}) if n == 3 else Continue()


@counter.method
async def value(tick: Tick, payload: dict[str, Any]) -> int:
    n: int = ((await tick.read(run=True)).run or {"n": 0})["n"]
    return n


async def test_the_counter_of_the_design_runs_as_printed(url: str) -> None:
    async with Ocean.open(url, clogs=[counter]) as ocean:
        retry = RetryPolicy(max_attempts=3, backoff_ms=1000, backoff_max_ms=60_000)
        run = await ocean.create_run(session_id="s1", clog_id="counter", input={}, retry=retry)
        await ocean.signal(run.run_id, {"text": "hello"}, signal_id="msg-1")
        result = await ocean.advance(budget_ms=500)
        assert (result.advanced, len(result.outcomes), result.due_now) == (3, 3, 0)
        assert (result.next_wake_at, result.oldest_due_age_ms, result.unclaimable) == (None, 0, 0)
        info = await ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.attempt, info.output, info.error, info.wake_at) == ("done", 0, {"n": 3}, None, None)
        assert info.pending_count == 1
        assert await ocean.result(run.run_id, timeout_ms=1000) == {"n": 3}
        assert await ocean.call_clog(run_id=run.run_id, method="value") == 3
        events = [event async for event in ocean.follow(run.run_id, after=0)]
        assert [event.run_seq for event in events] == list(range(1, len(events) + 1))
        assert [event.payload for event in events if event.type == "counted"] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert events[-1].type == "run.done"
