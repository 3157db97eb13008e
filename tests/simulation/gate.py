"""The seed that kills each mutant, and the check that does: python -m tests.simulation.gate [--only NAME] [--record]"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.simulation import mutants, mutants_ends, mutants_outside, mutants_postgres
from tests.simulation.backends import BackendName
from tests.simulation.batches import mode_of
from tests.simulation.patching import Change
from tests.simulation.world import simulate

MUTANTS: dict[str, Change] = mutants.MUTANTS | mutants_ends.MUTANTS | mutants_outside.MUTANTS | mutants_postgres.MUTANTS
SEEDS: dict[BackendName, int] = {"sqlite": 240, "postgres": 80}
"""Every mutant must fail within so many seeds. PostgreSQL takes several times as long, so it has fewer."""
RECORD = Path(__file__).with_name("killers.json")
"""The seed that killed each mutant when they were last recorded. It is tried first."""
RECORDED_OF = 3
"""The fastest of so many killing seeds is recorded, because CI runs it every time."""


@dataclass(frozen=True)
class Death:
    seed: int
    check: str
    message: str
    seconds: float


def recorded() -> dict[str, int]:
    found: dict[str, int] = json.loads(RECORD.read_text())
    return found


@contextmanager
def mutated(name: str) -> Iterator[None]:
    with ExitStack() as undo:
        MUTANTS[name](undo)
        yield


def backend_of(name: str) -> BackendName:
    return "postgres" if name in mutants_postgres.MUTANTS else "sqlite"


def deaths(name: str, seeds: Iterable[int]) -> Iterator[Death]:
    with mutated(name):
        for seed in seeds:
            began = time.perf_counter()
            result = simulate(seed, mode_of(seed, "both"), backend_of(name))
            if seed % 10 == 9:
                gc.collect()
            if result.failure is not None:
                yield Death(seed, result.failure.check, result.failure.message, time.perf_counter() - began)


def killed(name: str, seeds: int | None = None) -> Death | None:
    """Return how a mutant is killed: by the recorded seed, or else by the first that does."""
    some = range(SEEDS[backend_of(name)] if seeds is None else seeds)
    return next(deaths(name, (recorded().get(name, 0), *some)), None)


def quickest(name: str, seeds: int | None = None) -> Death | None:
    some = range(SEEDS[backend_of(name)] if seeds is None else seeds)
    return min(islice(deaths(name, some), RECORDED_OF), key=lambda death: death.seconds, default=None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.gate", description=__doc__)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--only", action="append", help="this mutant; may be given several times")
    parser.add_argument("--why", action="store_true", help="show the message of the check")
    parser.add_argument("--record", action="store_true", help="search again, and record the seeds that CI tries first")
    arguments = parser.parse_args()
    for name in arguments.only or ():
        if name not in MUTANTS:
            parser.error(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")
    survivors, seeds = 0, recorded()
    sys.stdout.write(f"{'mutant':40}{'seed':>6}{'seconds':>9}  killed by\n")
    for name in arguments.only or MUTANTS:
        began = time.perf_counter()
        death = (quickest if arguments.record else killed)(name, arguments.seeds)
        survivors += death is None
        seeds |= {name: death.seed} if death else {}
        seconds = death.seconds if death else time.perf_counter() - began
        by = f"{death.seed:>6}{seconds:>9.1f}  {death.check}" if death else f"{'–':>6}{seconds:>9.1f}  SURVIVED"
        sys.stdout.write(f"{name:40}{by}\n" + (f"    {death.message[:400]}\n" if death and arguments.why else ""))
        sys.stdout.flush()
    sys.stdout.write(f"{len(arguments.only or MUTANTS)} mutants, {survivors} survived\n")
    if arguments.record:
        RECORD.write_text(json.dumps({name: seeds[name] for name in MUTANTS if name in seeds}, indent=1) + "\n")
    return int(survivors > 0)


if __name__ == "__main__":
    raise SystemExit(main())
