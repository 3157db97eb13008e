"""The log is complete: a run equals the sum of its events, and no event is ever changed."""

from dataclasses import dataclass
from typing import Any

import pytest

from ocean import Event, Ocean, RunStatus
from ocean.testing import world
from tests.disk.scenario import DEEDS, Stage, clogs

pytestmark = pytest.mark.anyio


@dataclass
class LoggedRun:
    """The state of a run as derived from its log alone."""

    status: str = ""
    ticks: int = 0
    attempt: int = 0
    wake_at: int | None = None
    paused: bool = False
    output: Any = None
    code: str | None = None
    is_there: bool = True

    def apply(self, event: Event) -> None:
        payload = event.payload
        if event.type.startswith(("run.", "tick.", "call.")) and "status" in payload:
            self.status = payload["status"]
            self.wake_at = payload.get("wake_at")
        match event.type:
            case "tick.committed":
                self.ticks, self.attempt = self.ticks + 1, 0
            case "run.retrying":
                self.attempt = payload["attempt"]
            case "run.waiting":
                self.wake_at = payload["wake_at"]
            case "run.paused" | "run.resumed":
                self.paused = event.type == "run.paused"
            case "run.done":
                self.status, self.output = "done", payload["output"]
            case "run.failed":
                self.status, self.code = "failed", payload["error"]["code"]
            case "run.deleted":
                self.is_there = False


async def check_fold(ocean: Ocean, log: list[Event]) -> set[RunStatus]:
    logged_runs: dict[str, LoggedRun] = {}
    for event in log:
        assert event.run_id is not None
        logged_runs.setdefault(event.run_id, LoggedRun()).apply(event)
    for run_id, logged in logged_runs.items():
        run = await ocean.get_run(run_id)
        assert (run is not None) == logged.is_there, run_id
        if run is None:
            continue
        error = run.error["code"] if run.error and run.status is RunStatus.FAILED else None
        seen = (run.status, run.attempt, run.wake_at, run.paused, run.output, error)
        assert seen == (logged.status, logged.attempt, logged.wake_at, logged.paused, logged.output, logged.code), (
            run_id
        )
        assert sum(tick.committed_at is not None for tick in await ocean.list_ticks(run_id)) == logged.ticks, run_id
    return {RunStatus(logged.status) for logged in logged_runs.values()}


async def test_a_run_is_what_its_events_add_up_to_and_the_log_only_grows() -> None:
    async with world(clogs=clogs()) as w:
        stage = Stage(w.ocean, w.clock)
        log: list[Event] = []
        seen: set[RunStatus] = set()
        for deed in DEEDS.values():
            await deed(stage)
            before, log = log, await w.ocean.read_events(limit=1_000)
            assert log[: len(before)] == before
            seen |= await check_fold(w.ocean, log)
        assert seen >= {RunStatus.PENDING, RunStatus.IDLE, RunStatus.WAITING, RunStatus.DONE, RunStatus.FAILED}
