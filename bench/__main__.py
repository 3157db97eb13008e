"""All questions, one after the other, into one report.

    python -m bench --quick
    python -m bench --report bench.txt --only ocean,pgqueuer

What is not named here (sizes, for example) is a flag of a question: `python -m bench.timers --help`.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from bench.saying import say

QUESTIONS = (
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
HANDED_ON = ("only", "rounds", "db", "folder")


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=plain)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; default: all")
    parser.add_argument("--report", type=Path, help="a file to write the tables to as well")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and two rounds: does it work?")
    for name in HANDED_ON:
        parser.add_argument(f"--{name}", help="as the questions have it")
    asked = parser.parse_args()
    unknown = [name for name in asked.questions if name not in QUESTIONS]
    if unknown:
        parser.error(f"there is no question {unknown[0]!r}; there are {', '.join(QUESTIONS)}")
    flags = ["--quick"] * asked.quick
    for name in HANDED_ON:
        if (value := getattr(asked, name)) is not None:
            flags += [f"--{name}", value]
    report = []
    for question in asked.questions or QUESTIONS:
        say(f"-- {question}")
        command = [sys.executable, "-m", f"bench.{question}", *flags]
        answered = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        report.append(answered.stdout or f"{question}: no answer, exit code {answered.returncode}\n")
        print(report[-1], flush=True)
        if asked.report:
            asked.report.write_text("\n".join(report))


if __name__ == "__main__":
    main()
