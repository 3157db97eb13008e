"""Clients compete for decisions over connections that are cut: some order of the calls explains all results."""

import random

import anyio
import pytest

from ocean import Ocean
from tests.linearizability.clients import History, check_ends, drawn, random_person, unexplained
from tests.linearizability.decisions import decision
from tests.postgres.proxy import Cut, proxied

pytestmark = pytest.mark.anyio

DECISIONS, CLIENTS, CALLS = 8, 4, 12
CUTS: tuple[Cut, ...] = ("before", "after")


async def test_decisions_over_connections_that_are_cut_are_linearizable(real_database: str) -> None:
    chance, history, cuts = random.Random(6), History(), 0
    runs = [f"decision-{number}" for number in range(DECISIONS)]
    async with (
        proxied(real_database) as (there, proxy),
        Ocean.open(there, clogs=[decision()]) as one,
        Ocean.open(there, clogs=[decision()]) as two,
    ):
        for run_id in runs:
            await one.create_run(session_id="s", clog_id="decision", run_id=run_id)

        async def client(ocean: Ocean) -> None:
            for number in range(CALLS):
                run_id = runs[min(number * DECISIONS // CALLS + chance.randrange(3), DECISIONS - 1)]
                await history.make(ocean, run_id, drawn(chance, random_person(chance)))

        async def cut_again_and_again() -> None:
            nonlocal cuts
            while True:
                proxy.arm(chance.choice(CUTS), b"", let_through=chance.randrange(12))
                await proxy.has_cut.wait()
                cuts += 1

        async with anyio.create_task_group() as cutting:
            cutting.start_soon(cut_again_and_again)
            async with anyio.create_task_group() as tasks:
                for number in range(CLIENTS):
                    tasks.start_soon(client, (one, two)[number % 2])
            cutting.cancel_scope.cancel()
        proxy.arm("before", b"no such bytes")
        for run_id in runs:
            await history.make(one, run_id, ("look",))
        assert unexplained(history.of) == []
        assert await check_ends(one, runs) > 0
    assert cuts > 3
