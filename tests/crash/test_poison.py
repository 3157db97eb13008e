"""A run that kills every process that works on it must not continue to do so."""

from pathlib import Path

import pytest

from ocean import Ocean, RetryPolicy, RunStatus
from tests.crash.ferry_clog import CALLED, ferry, noted
from tests.crash.places import Place, url_of
from tests.crash.processes import Start

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("has_clog", [True, False], ids=["poked with its clog", "poked without its clog"])
async def test_a_run_that_kills_its_process_every_time_fails_without_another_call(
    has_clog: bool, db: Place, history: Path, start: Start
) -> None:
    url, clog = url_of(db), ferry(history)
    async with Ocean.open(url, clogs=[clog]) as ocean, Ocean.open(url, clogs=[clog] if has_clog else []) as poker:
        policy = RetryPolicy(max_attempts=2)
        run = (await ocean.create_run(session_id="s", clog_id="ferry", input={"cargo": 1}, retry=policy)).run_id
        await ocean.signal(run, {"cargo": 2}, signal_id="late")
        for attempt in range(2):
            victim = start("halt", db, CALLED, run, 1)
            assert victim.read_line() == CALLED
            info = await ocean.get_run(run)
            assert info is not None
            assert (info.attempt, info.tick) == (attempt, 1)
            victim.kill()

        poked = await poker.advance(run_id=run, budget_ms=5_000)

        assert poked.outcomes == ()
        info = await ocean.get_run(run)
        assert info is not None
        assert (info.status, info.attempt, info.pending_count) == (RunStatus.FAILED, 2, 2)
        assert info.error is not None
        assert (info.error["code"], info.error["details"]) == ("crashed", {"attempt": 2})
        assert victim.instance in info.error["message"]
        assert [words[2] for words in noted(history, "call")] == ["1", "2"]
        events = await ocean.read_events(run)
        assert [event.run_seq for event in events] == list(range(1, len(events) + 1))
        assert [event.type for event in events][-3:] == ["tick.restarted", "signal.undelivered", "run.failed"]
        assert [(e.type, e.call) for e in events if e.type.startswith("tick.")] == [("tick.restarted", 2)]
        assert events[-1].payload["error"] == info.error
        assert poked.next_wake_at is None
