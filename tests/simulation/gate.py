"""The seed that kills each mutant, and the check that does: python -m tests.simulation.gate [--only NAME] [--record]"""

import argparse
import gc
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.batches import mode_of
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.world import simulate

SEEDS = 240
"""Within as many as CI runs every mutant must die."""
RECORD = Path(__file__).with_name("killers.json")
"""The seed that killed each mutant when that was last looked for: where to look first."""


@dataclass(frozen=True)
class Death:
    seed: int
    check: str
    message: str


def recorded() -> dict[str, int]:
    found: dict[str, int] = json.loads(RECORD.read_text())
    return found


def killed(name: str, seeds: int, likely: int = 0) -> Death | None:
    with mutated(name):
        for seed in (likely, *range(seeds)):
            result = simulate(seed, mode_of(seed, "both"))
            if seed % 10 == 9:
                gc.collect()
            if result.failure is not None:
                return Death(seed, result.failure.check, result.failure.message)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.gate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", action="append", help="this mutant; may be given several times")
    parser.add_argument("--why", action="store_true", help="show what the check said")
    parser.add_argument("--record", action="store_true", help="write the seeds down, for CI to look there first")
    asked = parser.parse_args()
    survivors, seeds = 0, recorded()
    sys.stdout.write(f"{'mutant':34}{'seed':>6}{'seconds':>9}  killed by\n")
    for name in asked.only or MUTANTS:
        began = time.perf_counter()
        death = killed(name, asked.seeds)
        survivors += death is None
        seeds |= {name: death.seed} if death else {}
        seconds = time.perf_counter() - began
        by = f"{death.seed:>6}{seconds:>9.1f}  {death.check}" if death else f"{'–':>6}{seconds:>9.1f}  SURVIVED"
        sys.stdout.write(f"{name:34}{by}\n" + (f"    {death.message[:400]}\n" if death and asked.why else ""))
        sys.stdout.flush()
    sys.stdout.write(f"{len(asked.only or MUTANTS)} mutants, {survivors} survived\n")
    if asked.record:
        RECORD.write_text(json.dumps({name: seeds[name] for name in MUTANTS if name in seeds}, indent=1) + "\n")
    return int(survivors > 0)


if __name__ == "__main__":
    raise SystemExit(main())
