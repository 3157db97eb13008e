"""Run contestants in rounds and compare their medians.

In every round each contestant does the same work, in a new process on a new database. Noise of the machine affects all
contestants of a round, so a published ratio is the median of the ratios of two contestants within each round.
"""

import argparse
import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.databases import Databases, Store
from bench.output import format_number, progress, table
from bench.peers import LIST, peer_versions, peers_python

ROOT = Path(__file__).parents[1]
ROUND_S = 900


@dataclass(frozen=True)
class Contestant:
    """A module that does the work of a benchmark. `--only` selects by `name`. `settings` are added to the sizes of the
    contest, and `quick` to those under `--quick`."""

    name: str
    store: Store
    module: str
    benchmark: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    group: str = ""
    """Contestants are compared within their group."""

    @property
    def is_ocean(self) -> bool:
        return self.module.startswith("ocean")


@dataclass(frozen=True)
class Measure:
    """One number of every result, under `key`. `title` contains its unit."""

    key: str
    title: str


Results = dict[str, list[dict[str, float] | None]]
"""The results of every contestant by round; None if it failed."""


class Contest:
    """One benchmark. `sizes` become flags: the default, the value under `--quick`, and the help text.

    The report has the ratios of every Ocean to each contestant; or, with `against`, of each contestant to the one of
    its group whose name ends with `against`.
    """

    def __init__(
        self,
        doc: str,
        benchmark: str,
        contestants: Sequence[Contestant],
        measures: Sequence[Measure],
        sizes: dict[str, tuple[int, int, str]],
        rounds: int = 5,
        against: str | None = None,
    ) -> None:
        self._doc = doc
        self._benchmark = benchmark
        self.contestants = contestants
        self._measures = measures
        self._sizes = sizes
        self._rounds = rounds
        self._against = against

    def main(self, arguments: Sequence[str] | None = None) -> None:
        # As with Ctrl-C, so that the server and the folders are removed.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        given = self._parser().parse_args(arguments)
        sizes = {name: self._size(given, name) for name in self._sizes}
        rounds = given.rounds or (2 if given.quick else self._rounds)
        chosen = [each for each in self.contestants if _is_chosen(each.name, given.only)]
        if not chosen:
            names = ", ".join(each.name for each in self.contestants)
            raise SystemExit(f"--only must name contestants, got {given.only!r}; they are {names}")
        databases = Databases(given.db, given.folder)
        results = self.rounds(chosen, databases, sizes, rounds, is_quick=given.quick)
        print(self._report(chosen, databases, sizes, rounds, results), flush=True)

    def rounds(
        self, chosen: Sequence[Contestant], databases: Databases, sizes: dict[str, int], rounds: int, *, is_quick: bool
    ) -> Results:
        """Run all rounds and return the results."""
        results: Results = {each.name: [] for each in chosen}
        for number in range(1, rounds + 1):
            # Each round begins with another contestant, so that none always runs after the same one.
            shift = (number - 1) % len(chosen)
            for each in [*chosen[shift:], *chosen[:shift]]:
                result = self._measure(each, databases, sizes | each.settings | (each.quick if is_quick else {}))
                results[each.name].append(result)
                shown = "failed" if result is None else ", ".join(f"{k} {format_number(v)}" for k, v in result.items())
                progress(f"round {number} of {rounds}: {each.name}: {shown}")
        return results

    def _measure(self, one: Contestant, databases: Databases, settings: dict[str, Any]) -> dict[str, float] | None:
        with databases.fresh(one.store) as db:
            return self.run_contestant(one, {"db": db, "benchmark": one.benchmark or self._benchmark, **settings})

    def run_contestant(
        self, one: Contestant, request: dict[str, Any], under: Sequence[str] = ()
    ) -> dict[str, float] | None:
        """Return the result of a contestant. `under` is a command that runs it, strace for example."""
        python = sys.executable if one.is_ocean else peers_python()
        return _result_of([*under, python, "-m", f"bench.contestants.{one.module}"], request, one.name)

    def _size(self, given: argparse.Namespace, name: str) -> int:
        value: int | None = getattr(given, name)
        usual, quick, _ = self._sizes[name]
        return value if value is not None else quick if given.quick else usual

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=self._doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        names = ", ".join(each.name for each in self.contestants)
        parser.add_argument("--only", metavar="NAMES", help=f"comma-separated parts of the names {names}")
        parser.add_argument("--rounds", type=int, metavar="N", help=f"default {self._rounds}")
        parser.add_argument("--quick", action="store_true", help="smaller sizes and two rounds, to check that it works")
        parser.add_argument("--db", metavar="URL", help="a PostgreSQL server to use; default: one started for the run")
        parser.add_argument("--folder", help="folder for SQLite's files and the started server; default: the system's")
        for name, (usual, quick, text) in self._sizes.items():
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"{text} (default {usual}, quick {quick})"
            )
        return parser

    def _report(
        self, chosen: Sequence[Contestant], databases: Databases, sizes: dict[str, int], rounds: int, results: Results
    ) -> str:
        parts = [self._doc.splitlines()[0], ""]
        for group in dict.fromkeys(each.group for each in chosen):
            members = [each for each in chosen if each.group == group]
            parts += [f"{_comparison(members, measure, results, self._against)}\n" for measure in self._measures]
        notes = [f"{each.name}: {each.note}" for each in chosen if each.note]
        shown = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in sizes.items())
        parts += [*notes, f"medians of {rounds} rounds; {shown}", *environment(chosen, databases)]
        return "\n".join(parts) + "\n"


def _is_chosen(name: str, only: str | None) -> bool:
    return only is None or any(part.strip() in name for part in only.split(","))


def _result_of(command: list[str], request: dict[str, Any], name: str) -> dict[str, float] | None:
    """Run a contestant and return its result; None, with the reason on stderr, if it fails or takes too long."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=env,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            result, _ = process.communicate(json.dumps(request) + "\n", timeout=ROUND_S)
        except subprocess.TimeoutExpired:
            result = ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if result:
            numbers: dict[str, float] = json.loads(result)
            return numbers
        errors.seek(0)
        progress(f"{name} returned no result:\n{errors.read()[-4_000:]}")
        return None


def _comparison(members: Sequence[Contestant], measure: Measure, results: Results, against: str | None) -> str:
    """Return a table: a row for each contestant, a column of ratios for each that the others are compared with."""
    if against is None:
        others = [each.name for each in members if each.is_ocean]
    else:
        others = [each.name for each in members if each.name.endswith(against)]
    values = {each.name: [_value(result, measure) for result in results[each.name]] for each in members}
    rows = []
    for each in members:
        found = [value for value in values[each.name] if value is not None]
        middle = [median(found), min(found), max(found)] if found else [None, None, None]
        pairs = [
            (values[other], values[each.name]) if against is None else (values[each.name], values[other])
            for other in others
        ]
        ratios = [None if first is second else _ratio(first, second) for first, second in pairs]
        rows.append([each.name, *map(format_number, middle), *map(format_number, ratios)])
    heads = [f"{other} / it" if against is None else f"it / {other}" for other in others]
    return table([measure.title, "median", "least", "most", *heads], rows)


def _value(result: dict[str, float] | None, measure: Measure) -> float | None:
    return None if result is None else result.get(measure.key)


def _ratio(ours: Sequence[float | None], theirs: Sequence[float | None]) -> float | None:
    pairs = [(our, their) for our, their in zip(ours, theirs, strict=True) if our is not None and their]
    return median(our / their for our, their in pairs) if pairs else None


def environment(chosen: Sequence[Contestant], databases: Databases) -> list[str]:
    """Return what was measured and on which versions, one line each, so that it can be repeated."""
    stores = {each.store for each in chosen}
    lines = [
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}",
        f"Ocean {_ocean_version()}",
    ]
    if "sqlite" in stores:
        lines.append(f"SQLite {sqlite3.sqlite_version}; Ocean's with journal_mode WAL, synchronous FULL")
    if "postgres" in stores:
        lines.append(f"PostgreSQL: {databases.postgres_settings()}")
    if not all(each.is_ocean for each in chosen):
        versions = ", ".join(f"{name} {version}" for name, version in peer_versions().items())
        lines.append(f"peers, from {LIST.relative_to(ROOT)}: {versions}")
    return lines


def _ocean_version() -> str:
    """Return the version in the source tree, which need not be installed, and the commit if git knows it."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{version} ({commit})" if commit else version
