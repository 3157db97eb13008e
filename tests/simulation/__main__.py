"""python -m tests.simulation --seeds 1000 --from 0        many seeds, and which events occurred
python -m tests.simulation --seed 17 --trace            one seed, with its trace
"""

import argparse
import sys

from tests.simulation.batches import backend_of, mode_of, run_batch, show
from tests.simulation.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes")
    parser.add_argument("--mode", choices=("safety", "liveness", "both"), default="both", help="both: each in turn")
    parser.add_argument(
        "--backend", choices=("sqlite", "postgres", "both"), default="both", help="both: each tenth on PostgreSQL"
    )
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: show what happened")
    args = parser.parse_args()
    if args.seed is not None:
        result = simulate(args.seed, mode_of(args.seed, args.mode), backend_of(args.seed, args.backend))
        lines = result.trace if args.trace else []
        lines.append(
            f"seed {result.seed} ({result.mode}, {result.backend}): {result.failure or 'nothing found'}; "
            f"trace {result.digest}"
        )
        sys.stdout.write("\n".join(lines) + "\n")
        return int(result.failure is not None)
    batch = run_batch(range(args.first, args.first + args.seeds), args.mode, args.backend, args.jobs)
    sys.stdout.write(show(batch) + "\n")
    return int(bool(batch.failures or batch.missing))


if __name__ == "__main__":
    raise SystemExit(main())
