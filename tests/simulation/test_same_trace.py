"""The same seed gives the same trace, byte for byte, whatever else differs."""

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.batches import mode_of
from tests.simulation.world import simulate

ROOT = Path(__file__).parents[2]
SEEDS = (3, 8, 17, 21)
"""The third one has handlers in threads, and decisions."""


def test_a_seed_has_the_same_trace_again() -> None:
    for seed in SEEDS:
        first, again = (simulate(seed, mode_of(seed, "both")) for _ in range(2))
        assert first.trace == again.trace
        assert first.coverage == again.coverage


def test_a_seed_has_the_same_trace_again_on_postgres() -> None:
    first, again = (simulate(4, "safety", "postgres") for _ in range(2))
    assert first.trace == again.trace


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    digests = {_digests_of_a_process_with("1"), _digests_of_a_process_with("2")}
    here = "".join(f"{simulate(seed, mode_of(seed, 'both')).digest}\n" for seed in SEEDS)
    assert digests == {here}


def test_seeds_differ() -> None:
    assert len({simulate(seed).digest for seed in range(5)}) == 5


def _digests_of_a_process_with(hash_seed: str) -> str:
    program = (
        "from tests.simulation.test_same_trace import SEEDS, mode_of, simulate\n"
        "for seed in SEEDS: print(simulate(seed, mode_of(seed, 'both')).digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
