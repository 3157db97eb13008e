"""Each mutant dies within CI's seeds: else the simulation has become too weak to see it."""

import pytest

from tests.simulation.gate import SEEDS, killed, recorded
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.world import simulate


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed(name: str) -> None:
    assert killed(name, SEEDS, recorded().get(name, 0)), f"{name} survives {SEEDS} seeds"


def test_a_mutant_leaves_nothing_behind() -> None:
    before = simulate(0).digest
    for name in MUTANTS:
        with mutated(name):
            pass
    assert simulate(0).digest == before
