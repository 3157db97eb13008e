"""Several processes take from one counter with a cap."""

from pathlib import Path

import pytest

from ocean import Clog, Ocean
from tests.crash.ferry_clog import noted
from tests.crash.places import Place, url_of
from tests.crash.processes import Start

pytestmark = pytest.mark.anyio

TAKERS, CAP, AT_ONCE, PROCESSES = 1_000, 100, 40, 4


async def test_four_processes_take_a_cap_of_a_hundred_exactly(db: Place, history: Path, start: Start) -> None:
    taker = Clog("taker")
    taker.on_advance(lambda tick: None)
    async with Ocean.open(url_of(db), clogs=[taker]) as ocean:
        for _ in range(TAKERS):
            await ocean.create_run(session_id="s", clog_id="taker", input={})
        crew = [start("takers", db, CAP, AT_ONCE) for _ in range(PROCESSES)]
        for worker in crew:
            assert worker.read_line() == "looked", "together they have seen more than there is, and none has it"
        for worker in crew:
            worker.go_on()
        for worker in crew:
            assert worker.read_line() == ""

        outputs = [run.output for run in (await ocean.list_runs(limit=1_000)).runs]
        assert (outputs.count(True), outputs.count(False)) == (CAP, TAKERS - CAP)
        assert (await ocean.take("cap", 0, limit=CAP)).used == CAP
        calls = noted(history, "call")
        at_work = PROCESSES * AT_ONCE
        # Those at work read the counter before the cap was full, and maybe as many again while these were committed.
        assert TAKERS + at_work - CAP <= len(calls) <= TAKERS + 2 * at_work
        assert max(int(call) for _, call in calls) == 2, "none was called a third time"
        commits = await ocean.read_events(types=["tick.committed"], limit=1_000)
        assert {event.payload["instance"] for event in commits} == {worker.instance for worker in crew}
