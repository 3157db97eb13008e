"""Rounds: every contestant does the same work in turn, again and again, each time in a fresh process on a fresh
database, and medians are compared. Machines are noisy, and what disturbs one round disturbs all who are in it: a ratio
is that of two contestants of the same round, and the median of those.
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

from bench.peers import LIST, peer_versions, peers_python
from bench.places import Places, Store
from bench.saying import figure, say, table

ROOT = Path(__file__).parents[1]
ROUND_S = 900


@dataclass(frozen=True)
class Contestant:
    """`name` is what `--only` selects by. `asked` is what it alone is told, its own settings mostly, and `quick` what
    else it is told when there is little time."""

    name: str
    store: Store
    module: str
    question: str = ""
    asked: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    group: str = ""
    """Who is compared with whom, if not all with all."""

    @property
    def is_ocean(self) -> bool:
        return self.module.startswith("ocean")


@dataclass(frozen=True)
class Measure:
    """A figure of every answer. `title` says its unit."""

    key: str
    title: str


Answers = dict[str, list[dict[str, float] | None]]
"""Of every contestant, by round. None if it failed."""


class Contest:
    """One question. `sizes` become flags; the second value of each is for `--quick`.

    Ratios are those of every Ocean to each contestant; or, with `against`, of each contestant to the one of its group
    whose name ends so.
    """

    def __init__(
        self,
        doc: str,
        question: str,
        contestants: Sequence[Contestant],
        measures: Sequence[Measure],
        sizes: dict[str, tuple[int, int, str]],
        rounds: int = 5,
        against: str | None = None,
    ) -> None:
        self._doc = doc
        self._question = question
        self.contestants = contestants
        self._measures = measures
        self._sizes = sizes
        self._rounds = rounds
        self._against = against

    def main(self, arguments: Sequence[str] | None = None) -> None:
        # As Ctrl-C does: the server and the folders are removed.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        asked = self._parser().parse_args(arguments)
        sizes = {name: self._size(asked, name) for name in self._sizes}
        rounds = asked.rounds or (2 if asked.quick else self._rounds)
        chosen = [each for each in self.contestants if _is_chosen(each.name, asked.only)]
        if not chosen:
            raise SystemExit(
                f"--only {asked.only} names nobody; there are {', '.join(c.name for c in self.contestants)}"
            )
        places = Places(asked.db, asked.folder)
        answers = self.rounds(chosen, places, sizes, rounds, is_quick=asked.quick)
        print(self._report(chosen, places, sizes, rounds, answers), flush=True)

    def rounds(
        self, chosen: Sequence[Contestant], places: Places, sizes: dict[str, int], rounds: int, *, is_quick: bool
    ) -> Answers:
        answers: Answers = {each.name: [] for each in chosen}
        for number in range(1, rounds + 1):
            # Each round begins with another, so that nobody always comes after the same.
            shift = (number - 1) % len(chosen)
            for each in [*chosen[shift:], *chosen[:shift]]:
                answer = self._ask(each, places, sizes | each.asked | (each.quick if is_quick else {}))
                answers[each.name].append(answer)
                said = "failed" if answer is None else ", ".join(f"{k} {figure(v)}" for k, v in answer.items())
                say(f"round {number} of {rounds}: {each.name}: {said}")
        return answers

    def _ask(self, one: Contestant, places: Places, told: dict[str, Any]) -> dict[str, float] | None:
        with places.place(one.store) as db:
            return self.asked(one, {"db": db, "question": one.question or self._question, **told})

    def asked(self, one: Contestant, ask: dict[str, Any], under: Sequence[str] = ()) -> dict[str, float] | None:
        """What the contestant answers; `under` is a command that runs it."""
        python = sys.executable if one.is_ocean else peers_python()
        return _answered([*under, python, "-m", f"bench.contestants.{one.module}"], ask, one.name)

    def _size(self, asked: argparse.Namespace, name: str) -> int:
        given: int | None = getattr(asked, name)
        usual, quick, _ = self._sizes[name]
        return given if given is not None else quick if asked.quick else usual

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=self._doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        names = ", ".join(each.name for each in self.contestants)
        parser.add_argument("--only", metavar="NAMES", help=f"parts of names, with commas between; of {names}")
        parser.add_argument("--rounds", type=int, metavar="N", help=f"default {self._rounds}")
        parser.add_argument("--quick", action="store_true", help="smaller sizes and two rounds: does it work?")
        parser.add_argument("--db", metavar="URL", help="a PostgreSQL server to use; default: one of our own")
        parser.add_argument("--folder", help="where SQLite's files are, and our server's; default: the system's")
        for name, (usual, quick, says) in self._sizes.items():
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"{says} (default {usual}, quick {quick})"
            )
        return parser

    def _report(
        self, chosen: Sequence[Contestant], places: Places, sizes: dict[str, int], rounds: int, answers: Answers
    ) -> str:
        parts = [self._doc.splitlines()[0], ""]
        for group in dict.fromkeys(each.group for each in chosen):
            members = [each for each in chosen if each.group == group]
            parts += [f"{_comparison(members, measure, answers, self._against)}\n" for measure in self._measures]
        notes = [f"{each.name}: {each.note}" for each in chosen if each.note]
        told = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in sizes.items())
        parts += [*notes, f"medians of {rounds} rounds; {told}", *settings(chosen, places)]
        return "\n".join(parts) + "\n"


def _is_chosen(name: str, only: str | None) -> bool:
    return only is None or any(part.strip() in name for part in only.split(","))


def _answered(command: list[str], ask: dict[str, Any], name: str) -> dict[str, float] | None:
    """What the contestant answers; None, and why on stderr, if it fails or takes far too long."""
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
            answer, _ = process.communicate(json.dumps(ask) + "\n", timeout=ROUND_S)
        except subprocess.TimeoutExpired:
            answer = ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if answer:
            given: dict[str, float] = json.loads(answer)
            return given
        errors.seek(0)
        say(f"{name} did not answer:\n{errors.read()[-4_000:]}")
        return None


def _comparison(members: Sequence[Contestant], measure: Measure, answers: Answers, against: str | None) -> str:
    """A row for each contestant, and a column of ratios for each that the others are compared with."""
    if against is None:
        others = [each.name for each in members if each.is_ocean]
    else:
        others = [each.name for each in members if each.name.endswith(against)]
    values = {each.name: [_value(answer, measure) for answer in answers[each.name]] for each in members}
    rows = []
    for each in members:
        found = [value for value in values[each.name] if value is not None]
        middle = [median(found), min(found), max(found)] if found else [None, None, None]
        pairs = [
            (values[other], values[each.name]) if against is None else (values[each.name], values[other])
            for other in others
        ]
        ratios = [None if first is second else _ratio(first, second) for first, second in pairs]
        rows.append([each.name, *map(figure, middle), *map(figure, ratios)])
    heads = [f"{other} / it" if against is None else f"it / {other}" for other in others]
    return table([measure.title, "median", "least", "most", *heads], rows)


def _value(answer: dict[str, float] | None, measure: Measure) -> float | None:
    return None if answer is None else answer.get(measure.key)


def _ratio(ours: Sequence[float | None], theirs: Sequence[float | None]) -> float | None:
    pairs = [(our, their) for our, their in zip(ours, theirs, strict=True) if our is not None and their]
    return median(our / their for our, their in pairs) if pairs else None


def settings(chosen: Sequence[Contestant], places: Places) -> list[str]:
    """What was measured, on what: enough to repeat it."""
    stores = {each.store for each in chosen}
    lines = [
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}",
        f"Ocean {_ocean_version()}",
    ]
    if "sqlite" in stores:
        lines.append(f"SQLite {sqlite3.sqlite_version}; Ocean's with journal_mode WAL, synchronous FULL")
    if "postgres" in stores:
        lines.append(f"PostgreSQL: {places.postgres_settings()}")
    if not all(each.is_ocean for each in chosen):
        versions = ", ".join(f"{name} {version}" for name, version in peer_versions().items())
        lines.append(f"peers, from {LIST.relative_to(ROOT)}: {versions}")
    return lines


def _ocean_version() -> str:
    """As the tree says, which need not be installed, and the commit, if the tree is one of git's."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{version} ({commit})" if commit else version
