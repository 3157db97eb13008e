"""Rules that a machine can check: time and chance are arguments, and no test sleeps, skips or mocks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ocean
import ocean.public
from ocean.stores.sqlite.migrate import migrations

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "ocean").rglob("*.py"), *(ROOT / "clogs").rglob("*.py")])
TIMELESS = [file for file in SOURCES if ROOT / "ocean" / "cli" not in file.parents]
"""Commands run at the edge, in real time; everything else gets the time as an argument."""
TESTS = sorted((ROOT / "tests").rglob("*.py"))

AMBIENT = re.compile(
    r"time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep|localtime|gmtime)"
    r"|datetime\.(datetime|date)\.(now|utcnow|today)"
    r"|uuid\.(uuid1|uuid3|uuid4|uuid6|uuid7)"
    r"|(random|secrets)(\..*)?"
    r"|os\.(urandom|getrandom)"
    r"|(asyncio|anyio|trio)\.(sleep|sleep_until|timeout|timeout_at|wait_for|fail_after|move_on_after|current_time)"
)
"""Sources of time and chance that a test cannot control."""

ALLOWED = {
    "ocean/state/clock.py": {"time.time_ns"},
    "ocean/kernel/advance.py": {"anyio.move_on_after"},
    "ocean/state/ids.py": {"secrets", "secrets.SystemRandom"},
    "ocean/tools/fetch.py": {"time.monotonic", "anyio.fail_after"},
    "ocean/stores/sqlite/engine/database.py": {"asyncio.sleep"},
    "ocean/stores/postgres/client/connection.py": {"asyncio.sleep", "asyncio.timeout"},
    "ocean/stores/postgres/client/notifications.py": {"asyncio.timeout"},
    "ocean/testing/world_ocean.py": {"anyio.move_on_after"},
}
"""The seams themselves, how long a stop waits for handlers that ignore their cancellation, the deadline of an outgoing
request, the poll for other processes' commits, the pause before a lost server is tried again, how long a connection may
take to be closed, and how long `result` in a world waits for a handler that another task of the test is running."""

SLEEPING = re.compile(r"time\.sleep|(asyncio|anyio|trio)\.(sleep|sleep_until)")
SKIPPING = re.compile(r"pytest\.(skip|xfail|importorskip|mark\.(skip|skipif|xfail))|unittest\.(skip.*|mock.*)")

MAY_SKIP = ROOT / "tests" / "browser" / "conftest.py"
"""A browser is not a Python package: without one, its tests are skipped with instructions. In CI that is a failure."""


def names_used(source: str) -> Iterator[tuple[str, int]]:
    """Every dotted name that a module imports or reads, as spelled where it comes from, with its line."""
    tree = ast.parse(source)
    origin: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origin[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}", node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (parts := _dotted(node)) and parts[0] in origin:
            yield ".".join([origin[parts[0]], *parts[1:]]), node.lineno


def _dotted(node: ast.expr) -> list[str]:
    """`a.b.c` as its parts; nothing for anything that does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else []


def offences(file: Path, forbidden: re.Pattern[str], allowed: frozenset[str] | set[str] = frozenset()) -> list[str]:
    return sorted(
        {
            f"{file.relative_to(ROOT)}:{line} uses {name}"
            for name, line in names_used(file.read_text())
            if forbidden.fullmatch(name) and name not in allowed
        }
    )


@pytest.mark.parametrize("file", TIMELESS, ids=lambda file: str(file.relative_to(ROOT)))
def test_time_and_chance_come_through_their_seams_only(file: Path) -> None:
    assert offences(file, AMBIENT, ALLOWED.get(str(file.relative_to(ROOT)), set())) == []


def test_no_seam_is_allowed_more_than_it_uses() -> None:
    for name, allowed in ALLOWED.items():
        used = {found for found, _ in names_used((ROOT / name).read_text())}
        assert allowed <= used, name


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.time_ns()",
        "from time import monotonic as m",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.utcnow()",
        "from uuid import uuid4\nuuid4()",
        "import random",
        "from random import choice",
        "import asyncio\nasyncio.sleep(1)",
        "import anyio\nasync def f():\n    with anyio.fail_after(1): pass",
        "import os\nos.urandom(4)",
    ],
)
def test_the_rule_sees_through_every_way_to_import(source: str) -> None:
    assert any(AMBIENT.fullmatch(name) for name, _ in names_used(source))


def test_no_test_sleeps_skips_or_mocks() -> None:
    # Programs that a test starts as separate processes use real time.
    own = [file for file in TESTS if file.name.startswith(("test_", "conftest"))]
    assert [offence for file in own for offence in offences(file, SLEEPING)] == []
    assert [offence for file in TESTS if file != MAY_SKIP for offence in offences(file, SKIPPING)] == []
    assert len(offences(MAY_SKIP, SKIPPING)) == 1


def test_no_file_contains_a_marker_for_unfinished_work() -> None:
    later = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")))
    files = [*SOURCES, *TESTS, *(ROOT / "ocean").rglob("*.sql"), *(ROOT / "docs").rglob("*.md")]
    assert [str(file.relative_to(ROOT)) for file in files if later.search(file.read_text())] == []


def test_the_document_on_tables_names_every_table_and_index() -> None:
    schema = "".join(script for _, script in migrations())
    names = re.findall(r"CREATE (?:TABLE|(?:UNIQUE )?INDEX) (\w+)", schema)
    document = (ROOT / "docs" / "tables.md").read_text()
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in document] == []


def test_the_public_names_are_importable_and_no_others() -> None:
    assert [name for name in ocean.public.__all__ if getattr(ocean, name) is not getattr(ocean.public, name)] == []
    named: dict[str, object] = {}
    exec("from ocean import *", named)
    assert set(ocean.public.__all__) == named.keys() - {"__builtins__"}
    for name in ("nothing", "_Ocean", "__wrapped__"):
        assert not hasattr(ocean, name)
