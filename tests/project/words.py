"""The words that the project's texts avoid, and what to write instead.

    python -m tests.project.words [PATH ...]

lists every place below the paths (by default all that the test checks) that still uses one.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

INSTEAD = {
    r"answers|answered|answering": "returns, responds with, the result",
    r"tells|told|telling": "reports, contains, is notified",
    r"says|said|saying": "states, contains, specifies",
    r"hands? (it |them |this )?on|handed on": "passes",
    r"whoever|whomever": "the caller, the process that",
    r"somebody|someone else|nobody|everybody|anybody": "another process, no process, the caller, every user",
    r"who asks": "the caller",
    r"anew": "again",
    r"besides": "also, in addition",
    r"goes along|go along|went along|going along": "is added to the same transaction",
    r"on (?:its|their|the|his|her) way": "in flight, in progress",
    r"for good": "permanently",
    r"the house|house's|rooms": "the project, the server, packages",
    r"has no time": "is busy (lock timeout); retry",
}
"""A pattern of words and what to write in their place."""

AVOIDED = re.compile(r"\b(?:" + "|".join(INSTEAD) + r")\b", re.IGNORECASE)

CHECKED = ("ocean", "clogs", "docs", "README.md", "CONTRIBUTING.md", "examples", "bench", "wrangler-free-deploy")
MIGRATION = re.compile(r"\d{4}_\w+\.sql")
"""Migrations are never edited after their release, not even their comments."""
ENDINGS = {".py", ".md", ".sql", ".html", ".js", ".sh", ".yaml", ".yml", ".toml", ".txt"}


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the text files at and below `paths`."""
    for path in paths:
        if path.is_file():
            yield path
        else:
            found = (file for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file())
            yield from sorted(
                file for file in found if not MIGRATION.fullmatch(file.name) and ".peers" not in file.parts
            )


def is_name(line: str, word: re.Match[str]) -> bool:
    """Whether a word alone is quoted, or ends a dotted name: a field, a status or an event type, not prose."""
    before, after = line[: word.start()][-1:], line[word.end() :][:1]
    return before in set("\"'`.") and after in set("\"'`") and bool(before and after)


def found_in(file: Path) -> list[str]:
    """Return one line for each avoided word of a file: where it is, the word, and the line that has it."""
    return [
        f"{file}:{number}: {match.group()}: {line.strip()}"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for match in AVOIDED.finditer(line)
        if not is_name(line, match)
    ]


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:]] or [ROOT / name for name in CHECKED]
    places = [place for file in files(paths) for place in found_in(file)]
    sys.stdout.write("".join(f"{place}\n" for place in [*places, f"{len(places)} places"]))
