"""Each mutant is killed within the seeds of CI; otherwise the simulation has become too weak."""

import os

import asyncpg
import pytest

from tests.postgres.server import blocking, fresh_database, return_database
from tests.simulation import mutants, mutants_ends, mutants_outside
from tests.simulation.gate import MUTANTS, killed, mutated, recorded
from tests.simulation.world import simulate

BY = dict.fromkeys(("careless calls", "calls see an old row"), "direct calls are linearizable")
"""Mutants for which it is known which check must fail."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed(name: str) -> None:
    death = killed(name)
    assert death, f"{name} survives"
    assert death.check == BY.get(name, death.check), f"{name} is killed by something else: {death}"


def test_a_mutant_leaves_nothing_behind() -> None:
    before = simulate(0).digest
    for name in mutants.MUTANTS | mutants_ends.MUTANTS | mutants_outside.MUTANTS:
        with mutated(name):
            pass
    assert simulate(0).digest == before


def test_a_mutant_of_postgres_leaves_nothing_behind() -> None:
    name = "postgres: epoch not raised"
    seed = recorded()[name]
    before = blocking(_left())
    with mutated(name):
        assert simulate(seed, backend="postgres").failure
        assert blocking(_left()) != before
    assert blocking(_left()) == before
    assert simulate(seed, backend="postgres").failure is None


async def _left() -> tuple[list[str], str]:
    """The databases of this process, and the functions in the one that is used next."""
    url = fresh_database()
    db = await asyncpg.connect(url)
    try:
        databases = await db.fetch("SELECT datname FROM pg_database WHERE datname LIKE $1", f"ocean_{os.getpid()}_%")
        functions = await db.fetchval(
            "SELECT string_agg(prosrc, '' ORDER BY oid) FROM pg_proc WHERE proname LIKE 'ocean%'"
        )
    finally:
        await db.close()
        return_database(url)
    return sorted(row["datname"] for row in databases), str(functions)
