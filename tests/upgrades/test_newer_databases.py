"""An older program refuses a database that a newer one has migrated, in one sentence, and writes nothing."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from ocean import Ocean, StoreUnusable
from ocean.stores.postgres import migrate as on_postgres
from ocean.stores.sqlite.migrate import migrations
from tests.cli.kit import PATIENCE_S, Shell
from tests.postgres.server import blank_database, blocking, drop_database
from tests.postgres.test_schema import shape
from tests.upgrades.story import kernel_clogs

NEWER = 999
SENTENCE = (
    f"the database has schema {NEWER}, this Ocean supports up to %s; upgrade ocean-runtime to the version that "
    "migrated the database, or a newer one. The database was not changed"
)


@dataclass(frozen=True, slots=True)
class NewerDatabase:
    """A database with a run, and with a migration that this version does not know."""

    url: str
    newest: int

    @property
    def sentence(self) -> str:
        return SENTENCE % self.newest

    def content(self) -> Any:
        """Everything in it: the bytes of the file and of those beside it, or the schema and all rows."""
        if self.url.startswith("postgres"):
            return blocking(self._rows())
        path = Path(self.url.removeprefix("sqlite:///"))
        return {file.name: file.read_bytes() for file in path.parent.glob(f"{path.name}*") if file.stat().st_size}

    async def _rows(self) -> Any:
        db: Any = await asyncpg.connect(self.url)
        tables = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        rows = [[row[0] for row in await db.fetch(f"SELECT t::text FROM {table[0]} t ORDER BY 1")] for table in tables]
        found = [await shape(db), rows, await db.fetchval("SELECT last_value FROM ocean_cursor")]
        await db.close()
        return found


async def _fill(url: str) -> None:
    async with Ocean.open(url, clogs=kernel_clogs()) as ocean:
        await ocean.create_run(session_id="s", clog_id="desk", run_id="r", input="begin")


async def _migrate_further(url: str) -> None:
    db: Any = await asyncpg.connect(url)
    await db.execute(f"ALTER TABLE runs ADD COLUMN mood TEXT; UPDATE ocean_schema SET version = {NEWER}")
    await db.close()


@pytest.fixture(params=["sqlite", "postgres"])
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewerDatabase]:
    if request.param == "sqlite":
        path = tmp_path / "ocean.db"
        anyio.run(_fill, f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as db:
            # Like a copy by VACUUM INTO, the file has no write-ahead log: to switch to one would be a change.
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("ALTER TABLE runs ADD COLUMN mood TEXT")
            db.execute(f"PRAGMA user_version = {NEWER}")
        yield NewerDatabase(f"sqlite:///{path}", migrations()[-1][0])
        return
    url = blank_database()
    anyio.run(_fill, url)
    blocking(_migrate_further(url))
    yield NewerDatabase(url, on_postgres.migrations()[-1][0])
    drop_database(url)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OCEAN_DB", raising=False)
    return Shell(tmp_path)


def test_opening_refuses_it_with_both_versions_and_what_to_do(newer: NewerDatabase) -> None:
    before = newer.content()
    with pytest.raises(StoreUnusable) as refused:
        anyio.run(_fill, newer.url)
    assert refused.value.message == newer.sentence
    assert newer.content() == before


def test_opening_refuses_it_while_its_own_program_is_migrating_further(newer: NewerDatabase) -> None:
    """It waits for no lock: what it reads is reason enough."""
    if newer.url.startswith("sqlite"):
        with closing(sqlite3.connect(newer.url.removeprefix("sqlite:///"), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnusable, match=f"schema {NEWER}"):
                anyio.run(_fill, newer.url)
        return

    async def open_beside() -> None:
        db: Any = await asyncpg.connect(newer.url)
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", on_postgres.MIGRATING)
            with anyio.fail_after(PATIENCE_S), pytest.raises(StoreUnusable, match=f"schema {NEWER}"):
                await _fill(newer.url)
        await db.close()

    anyio.run(open_beside)


COMMANDS = (
    "show r",
    "ps",
    "explain r",
    "tail",
    "create desk",
    "signal r",
    "cancel r",
    "advance",
    "sweep",
    "migrate",
    "serve --port 0",
    "keys list",
)


def test_every_command_prints_one_sentence_and_exits_with_4(newer: NewerDatabase, shell: Shell) -> None:
    before = newer.content()
    for command in COMMANDS:
        result = shell(*command.split(), "--db", newer.url)
        assert (result.code, result.out, result.err) == (4, "", f"ocean: {newer.sentence}\n"), command
    refused = shell("show", "r", "--json", "--db", newer.url)
    assert (refused.code, refused.error["code"]) == (4, "store_unusable")
    assert refused.error["message"] == newer.sentence
    assert newer.content() == before


def test_the_doctor_reports_both_versions_and_opens_nothing(newer: NewerDatabase, shell: Shell) -> None:
    before = newer.content()
    result = shell("doctor", "--json", "--db", newer.url)
    assert (result.code, result.err) == (1, "")
    checks = {check["check"]: check for check in json.loads(result.out)["checks"]}
    assert checks["schema"] == {
        "check": "schema",
        "ok": False,
        "said": f"{NEWER} of {newer.newest}",
        "advice": f"a newer Ocean migrated the database, this one supports up to {newer.newest}: upgrade ocean-runtime",
    }
    assert "opening" not in checks
    assert newer.content() == before


def test_a_server_process_exits_with_4_without_a_stack_trace(newer: NewerDatabase, shell: Shell) -> None:
    before = newer.content()
    process = shell.start("serve", "--port", "0", "--db", newer.url)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (4, "", f"ocean: {newer.sentence}\n")
    assert newer.content() == before
