"""A process is killed while it holds a concurrency key: its slot is freed with its lock, and parked runs continue."""

from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest

from ocean import Key, Ocean, RetryPolicy, RunFailed, RunStatus
from ocean.state.records import KeyInfo
from tests.crash.ferry_clog import CALLED, ferry, noted
from tests.crash.places import Place, url_of
from tests.crash.processes import Start

pytestmark = pytest.mark.anyio

PROCESSES, RUNS = 3, 12


@pytest.mark.parametrize("hold", ["tick", "run"])
@pytest.mark.parametrize("is_last", [False, True], ids=["called again", "on its last attempt"])
async def test_runs_parked_behind_a_killed_holder_continue_when_its_lock_has_lapsed(
    hold: Literal["tick", "run"], is_last: bool, db: Place, history: Path, start: Start
) -> None:
    key, policy = Key("pier", hold), RetryPolicy(max_attempts=1 if is_last else 3)
    cargo = {"cargo": 1, "last": True}
    async with Ocean.open(url_of(db), clogs=[ferry(history)]) as ocean:
        made = [
            await ocean.create_run(
                session_id="s", clog_id="ferry", input=cargo, concurrency_keys=[key], retry=policy, run_id=f"f{number}"
            )
            for number in range(3)
        ]
        first, *behind = (run.run_id for run in made)
        victim = start("halt", db, CALLED, first, 1)
        assert victim.read_line() == CALLED
        assert (await ocean.advance()).outcomes == ()
        assert await ocean.get_key("pier") == KeyInfo("pier", 1, 1, 2)
        victim.kill()
        (hold_back,) = (await ocean.explain(behind[0])).holds
        assert (hold_back.code, hold_back.holder) == ("key_full", first)

        for run in behind:
            assert (await ocean.result(run, timeout_ms=10_000))["cargo"] == 1

        if is_last:
            with pytest.raises(RunFailed):
                await ocean.result(first)
        assert (await ocean.get_run(first)).status is (RunStatus.FAILED if is_last else RunStatus.DONE)  # type: ignore[union-attr]
        calls = [words[0] for words in noted(history, "call")]
        assert calls == [first, *([] if is_last else [first]), *behind]
        assert await ocean.list_keys() == []


async def test_several_processes_respect_a_key_although_one_is_killed(db: Place, history: Path, start: Start) -> None:
    async with Ocean.open(url_of(db), clogs=[ferry(history)]) as ocean:
        runs = []
        for _ in range(RUNS):
            made = await ocean.create_run(
                session_id="s", clog_id="ferry", input={"cargo": 1, "last": True}, concurrency_keys=["pier"]
            )
            runs.append(made.run_id)
        victim = start("crew", db, 200, 4, "first")
        held, _ = victim.read_line().split()
        crew = [start("crew", db, 200, 4, "free") for _ in range(PROCESSES)]
        victim.kill()
        for worker in crew:
            assert worker.read_line() == ""

        assert {run.status for run in (await ocean.list_runs(limit=100)).runs} == {RunStatus.DONE}
        calls = [words[0] for words in noted(history, "call")]
        assert sorted(calls) == sorted([*runs, held]), "only the one that died with its process was called twice"
        ticks = [tick for run in runs for tick in await ocean.list_ticks(run)]
        spans = sorted((tick.claimed_at, tick.committed_at or 0) for tick in ticks)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "two at a time"
        assert await ocean.list_keys() == []
