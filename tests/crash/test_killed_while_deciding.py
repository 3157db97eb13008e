"""Processes compete for decisions and are killed: some order of the calls explains all results."""

import random
from pathlib import Path

import pytest

from ocean import Ocean
from tests.crash.places import Place, url_of
from tests.crash.processes import Start
from tests.linearizability.checker import Operation
from tests.linearizability.clients import check_ends, unexplained
from tests.linearizability.deciding import histories, names
from tests.linearizability.decisions import decision

pytestmark = pytest.mark.anyio

PROCESSES, KILLS = 3, 12


async def test_decisions_of_processes_that_are_killed_are_linearizable(db: Place, history: Path, start: Start) -> None:
    """A call that the kill interrupted may have happened or not; all later calls must agree on which."""
    chance = random.Random(6)
    async with Ocean.open(url_of(db), clogs=[decision()]) as ocean:
        for name in names():
            await ocean.create_run(session_id="s", clog_id="decision", run_id=name)
        crew = [start("decide", db, seed) for seed in range(PROCESSES)]
        for kill in range(KILLS):
            place = chance.randrange(PROCESSES)
            for _ in range(chance.randint(1, 8)):
                assert crew[place].read_line()
            crew[place].kill()
            crew[place] = start("decide", db, PROCESSES + kill)
        for victim in crew:
            victim.kill()
        found = histories(history)
        later = 1 + max(done.answered_at or done.invoked_at for operations in found.values() for done in operations)
        for name in found:
            seen = await ocean.call_clog(run_id=name, method="look")
            found[name].append(Operation(("look",), later, later + 1, seen))
        assert unexplained(found) == []
        assert await check_ends(ocean, names()) > 0
    is_answered = [done.answered_at is not None for operations in found.values() for done in operations]
    assert sum(is_answered) > len(is_answered) / 2
