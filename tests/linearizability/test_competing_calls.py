"""Direct calls that compete for one decision behave as if made one after another, on both stores."""

import random
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from ocean import Ocean, Tick
from ocean.testing import world
from tests.invariants import check
from tests.linearizability.clients import History, anybody, check_ends, drawn, unexplained
from tests.linearizability.decisions import PEOPLE, decision
from tests.postgres.server import fresh_database, return_database

pytestmark = pytest.mark.anyio

DECISIONS, CLIENTS, CALLS = 12, 6, 16


@pytest.fixture(params=["memory", "file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "postgres":
        url = fresh_database()
        yield url
        return_database(url)
    elif request.param == "file":
        yield f"sqlite:///{tmp_path_factory.mktemp('decisions') / 'ocean.db'}"
    else:
        yield "sqlite://:memory:"


async def compete(place: str, seed: int, *, is_careless: bool = False) -> tuple[History, int]:
    """Clients of two instances on a few decisions at a time. How long each dawdles between its read and its write is
    drawn."""
    chance, history = random.Random(seed), History()

    async def dawdle(tick: Tick) -> None:
        for _ in range(chance.choice([0, 0, 1, 5, 20])):
            await anyio.lowlevel.checkpoint()

    async with world(clogs=[decision(dawdle, is_careless=is_careless)], url=place) as w:
        other = await w.instance([decision(dawdle, is_careless=is_careless)])
        runs = [(await w.ocean.create_run(session_id="s", clog_id="decision")).run_id for _ in range(DECISIONS)]

        async def client(ocean: Ocean) -> None:
            for number in range(CALLS):
                run_id = runs[min(number * DECISIONS // CALLS + chance.randrange(3), DECISIONS - 1)]
                await history.make(ocean, run_id, drawn(chance, anybody(chance)))

        async with anyio.create_task_group() as tasks:
            for number in range(CLIENTS):
                tasks.start_soon(client, (w.ocean, other)[number % 2])
        for run_id in runs:
            await history.make(w.ocean, run_id, ("look",))
        await check(w)
        return history, 0 if is_careless else await check_ends(w.ocean, runs)


async def test_some_order_explains_every_response(place: str) -> None:
    for seed in range(3):
        history, ended = await compete(place, seed)
        assert unexplained(history.of) == []
        assert ended > 0


async def test_methods_that_decide_by_what_they_saw_earlier_are_found_out(place: str) -> None:
    """The other tests can fail: a row that is written by a function is not compared with the one that was read."""
    history, _ = await compete(place, 1, is_careless=True)
    assert unexplained(history.of) != []


async def test_of_those_who_have_all_seen_it_open_one_has_it(place: str) -> None:
    """All read before any writes: the losers are called again, and find it taken."""
    seen, all_have_seen = 0, anyio.Event()

    async def wait_for_all(tick: Tick) -> None:
        nonlocal seen
        seen += 1
        if seen == len(PEOPLE) + 1:
            all_have_seen.set()
        await all_have_seen.wait()

    history = History()
    async with world(clogs=[decision(wait_for_all)], url=place) as w:
        other = await w.instance([decision(wait_for_all)])
        run_id = (await w.ocean.create_run(session_id="s", clog_id="decision")).run_id
        asked = [("expire",), *(("claim", who) for who in PEOPLE)]
        async with anyio.create_task_group() as tasks:
            for number, what in enumerate(asked):
                tasks.start_soon(history.make, (w.ocean, other)[number % 2], run_id, what)
        answers = [operation.answer for operation in history.of[run_id] if operation.answered_at is not None]
        assert len(answers) == len(asked)
        # An end after a claim is an end, too; but of those who claim, one has it at most.
        assert sum(answer[:2] == ["done", "claimed"] for answer in answers) <= 1
        assert unexplained(history.of) == []
        assert await check_ends(w.ocean, [run_id]) == 1
