"""Named SQL: every name is used, and every used name exists."""

import re
import sqlite3
from pathlib import Path

import pytest

from ocean.stores.sqlite.engine.queries import load_queries
from ocean.stores.sqlite.engine.write_buffer import QUERIES
from ocean.stores.sqlite.migrate import migrate

STORES = Path(__file__).parents[2] / "ocean" / "stores"
_NAMED = r"(?:all|one|do|later|stored|search|query|buffer)"
CALL = re.compile(rf"""(?:\b{_NAMED}\(\s*|(?:QUERIES|row_of)\[)(f?)"([\w{{}}.]+)\"""")
SCOPES = ("global", "session", "run", "tick")


def _used() -> set[str]:
    """The names in calls like `u.one("get_run", …)`; one with the scope in it stands for four."""
    found: set[str] = set()
    for file in (STORES / "sqlite").rglob("*.py"):
        for is_pattern, name in CALL.findall(file.read_text()):
            if is_pattern:
                found |= {re.sub(r"\{[\w.]+\}", scope, name) for scope in SCOPES}
            else:
                found.add(name)
    return found


def test_every_query_is_used_and_every_used_name_exists() -> None:
    named = set(load_queries("sqlite"))
    assert named - _used() == set()
    assert _used() - named == set()


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_fits_the_schema(name: str) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    statement = QUERIES[name]
    db.execute(f"EXPLAIN {statement}", dict.fromkeys(re.findall(r":(\w+)", statement), 1))
    db.close()


@pytest.mark.parametrize(
    "files",
    [
        {"one.sql": "-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n"},
        {"one.sql": "-- name: a\nSELECT 1;\n", "two.sql": "-- name: a\nSELECT 2;\n"},
    ],
    ids=["in one file", "in two files"],
)
def test_a_name_given_twice_is_refused(files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sql" / "twice"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.setattr("ocean.stores.sqlite.engine.queries.resources.files", lambda package: tmp_path)
    with pytest.raises(ValueError, match="must be unique in sql/twice, got a again"):
        load_queries("twice")
