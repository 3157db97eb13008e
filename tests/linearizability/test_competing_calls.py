"""Direct calls that compete for one decision behave as if made one after another, on both stores."""

import random
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from ocean import Ocean, Tick
from ocean.testing import world
from tests.invariants import check
from tests.linearizability.clients import History, check_ends, drawn, random_person, unexplained
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
    """Let clients of two instances compete for a few decisions at a time, with random delays between read and write."""
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
                await history.make(ocean, run_id, drawn(chance, random_person(chance)))

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


async def test_methods_that_decide_by_a_stale_read_are_detected(place: str) -> None:
    """Shows that the other tests can fail: a row written by a function is not compared with the row that was read."""
    history, _ = await compete(place, 1, is_careless=True)
    assert unexplained(history.of) != []


async def test_at_most_one_caller_claims_a_decision_that_all_saw_open(place: str) -> None:
    """All read before any writes: the losers are called again, and find the decision claimed."""
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
        requests = [("expire",), *(("claim", who) for who in PEOPLE)]
        async with anyio.create_task_group() as tasks:
            for number, what in enumerate(requests):
                tasks.start_soon(history.make, (w.ocean, other)[number % 2], run_id, what)
        responses = [operation.answer for operation in history.of[run_id] if operation.answered_at is not None]
        assert len(responses) == len(requests)
        # A claimed decision can still expire, but at most one claim succeeds.
        assert sum(response[:2] == ["done", "claimed"] for response in responses) <= 1
        assert unexplained(history.of) == []
        assert await check_ends(w.ocean, [run_id]) == 1
