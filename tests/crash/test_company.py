"""A run that kills its process fails, and the runs beside it do not."""

import pytest

from ocean import Clog, Ocean, RunStatus
from tests.crash.places import Place, url_of
from tests.crash.processes import Start

pytestmark = pytest.mark.anyio

POISON = "poison"
MOST_CRASHES = 8
"""Eleven runs together, then five, two, and the poison alone for each of its three attempts; two to spare."""


async def test_a_run_that_kills_its_process_fails_and_ten_beside_it_are_done(db: Place, start: Start) -> None:
    async with Ocean.open(url_of(db), clogs=[Clog("company")]) as ocean:
        for number in range(11):
            run_id = POISON if number == 4 else f"innocent-{number}"
            await ocean.create_run(
                session_id="s", clog_id="company", run_id=run_id, input=POISON if number == 4 else number
            )
    ends: list[int] = []
    while not ends or ends[-1] != 0:
        ends.append(start("company", db).wait_for_end())
        assert ends[-1] in (0, 137)
        assert len(ends) <= MOST_CRASHES + 1
    async with Ocean.open(url_of(db)) as ocean:
        runs = {run.run_id: run for run in (await ocean.list_runs(clog_id="company")).runs}
        poison = runs.pop(POISON)
        assert {run.status for run in runs.values()} == {RunStatus.DONE}
        assert {run.attempt for run in runs.values()} == {0}
        assert poison.error is not None
        assert (poison.status, poison.attempt, poison.error["code"]) == (RunStatus.FAILED, 3, "crashed")
        assert "of this run alone" in poison.error["message"]
        restarts = await ocean.read_events(POISON, types=["tick.restarted"])
        companies = [event.payload.get("company", 1) for event in restarts]
        assert companies[0] == 11
        assert companies == sorted(companies, reverse=True)
