"""Run all benchmarks one after the other and write one report.

    python -m bench --quick
    python -m bench --report bench.txt --only ocean,pgqueuer

Other flags, sizes for example, belong to a single benchmark: `python -m bench.timers --help`.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from bench.output import progress

BENCHMARKS = (
    "one_tick_runs",
    "ten_steps",
    "signal_latency",
    "timers",
    "signals",
    "streams",
    "growth",
    "burst",
    "idle",
    "flushes",
    "stored_bytes",
    "watcher_memory",
    "processes",
)
PASSED = ("only", "rounds", "db", "folder")
"""Flags that are passed to each benchmark."""


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=plain)
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--report", type=Path, help="also write the tables to this file")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and two rounds, to check that it works")
    for name in PASSED:
        parser.add_argument(f"--{name}", help="passed to each benchmark")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.benchmarks if name not in BENCHMARKS]
    if unknown:
        parser.error(f"BENCHMARK must be one of {', '.join(BENCHMARKS)}, got {unknown[0]!r}")
    flags = ["--quick"] * arguments.quick
    for name in PASSED:
        if (value := getattr(arguments, name)) is not None:
            flags += [f"--{name}", value]
    report = []
    for benchmark in arguments.benchmarks or BENCHMARKS:
        progress(f"-- {benchmark}")
        command = [sys.executable, "-m", f"bench.{benchmark}", *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        report.append(done.stdout or f"{benchmark}: no result, exit code {done.returncode}\n")
        print(report[-1], flush=True)
        if arguments.report:
            arguments.report.write_text("\n".join(report))


if __name__ == "__main__":
    main()
