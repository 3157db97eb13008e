"""Each mutant dies within CI's seeds: else the simulation has become too weak to see it."""

import pytest

from tests.simulation.gate import SEEDS, killed, recorded
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.world import simulate

BY = dict.fromkeys(("careless calls", "calls see an old row"), "direct calls are linearizable")
"""Those of whom it is known what must find them."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed(name: str) -> None:
    death = killed(name, SEEDS, recorded().get(name, 0))
    assert death, f"{name} survives {SEEDS} seeds"
    assert death.check == BY.get(name, death.check), f"{name} is killed by something else: {death}"


def test_a_mutant_leaves_nothing_behind() -> None:
    before = simulate(0).digest
    for name in MUTANTS:
        with mutated(name):
            pass
    assert simulate(0).digest == before
