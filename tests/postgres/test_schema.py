"""The schema: the same tables as on SQLite, created once by concurrent instances, and with the server's time."""

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import asyncpg
import pytest

from ocean import Clog, Done, Ocean, OceanError, Outcome, StoreUnusable, Tick
from ocean.stores.postgres.migrate import MIGRATING, functions, migrate, migrations, schema_version
from ocean.stores.sqlite.migrate import migrate as migrate_sqlite
from tests.postgres.server import blank_database

pytestmark = pytest.mark.anyio

OWN = {"ocean_schema", "ocean_groups"}
RECORD = Path(__file__).with_name("schema_digests.json")
ROOT = Path(__file__).parents[2]
NEWEST = migrations()[-1][0]


async def test_both_databases_have_the_same_tables_with_the_same_columns(real_database: str) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate_sqlite(db)
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    on_sqlite = {
        name: {row[1] for row in db.execute(f"PRAGMA table_xinfo({name})")}
        for name in names
        if not name.startswith("sqlite_")
    }
    db.close()
    server = await asyncpg.connect(real_database)
    rows = await server.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    )
    on_postgres: dict[str, set[str]] = {}
    for row in rows:
        on_postgres.setdefault(row["table_name"], set()).add(row["column_name"])
    await server.close()
    assert {name: on_postgres[name] for name in on_postgres.keys() - OWN} == on_sqlite


async def test_every_text_sorts_by_its_bytes(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    others = await db.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        " AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C' AND table_name <> 'ocean_groups'"
    )
    await db.close()
    assert others == []


async def test_the_default_time_is_the_servers(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    body = await db.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'ocean_now'")
    has_test_clock = await db.fetchval("SELECT to_regclass('ocean_test_clock')")
    await db.close()
    assert "clock_timestamp()" in body
    assert has_test_clock is None


def digests() -> dict[str, str]:
    """The digests of every migration, and of the functions of the newest."""
    scripts = {f"{number:04}": script for number, script in migrations()}
    texts = {**scripts, f"{NEWEST:04} functions": functions()}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def test_released_migrations_are_not_edited() -> None:
    """A change to functions or tables needs a new migration once the newest one is released: databases that have it
    would not get the change. Before that, and when a migration is added, run: python -m tests.postgres.test_schema
    """
    assert json.loads(RECORD.read_text()) | digests() == json.loads(RECORD.read_text())


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    db = await asyncpg.connect(url)
    try:
        yield db
    finally:
        await db.close()


async def shape(db: Any) -> list[Any]:
    """The columns, indexes, constraints, functions and table settings."""
    queries = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY 1, 2",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
        "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1",
        "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
        "SELECT version FROM ocean_schema",
    )
    return [[tuple(row) for row in await db.fetch(query)] for query in queries]


@pytest.mark.parametrize("number", range(NEWEST))
async def test_an_older_schema_is_brought_up_to_date(number: int, real_database: str) -> None:
    """From an empty database, and from every migration since."""
    steps = [step for step in migrations() if step[0] <= number]
    async with connected(blank_database()) as db, connected(real_database) as fresh:
        if steps:
            await migrate(db, steps)
        assert (await schema_version(db) or 0) == number
        await migrate(db)
        assert await shape(db) == await shape(fresh)


async def test_the_next_migration_runs_what_is_new_and_replaces_the_functions() -> None:
    following = [*migrations(), (NEWEST + 1, "ALTER TABLE runs ADD COLUMN mood TEXT; DROP FUNCTION ocean_last_event")]
    async with connected(blank_database()) as db:
        await migrate(db)
        await migrate(db, following)
        assert await schema_version(db) == NEWEST + 1
        assert await db.fetchval("SELECT count(mood) FROM runs") == 0
        assert await db.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'ocean_last_event'") == 1


async def test_a_migration_that_fails_leaves_the_schema_as_it_was() -> None:
    failing = [*migrations(), (NEWEST + 1, "ALTER TABLE runs ADD COLUMN mood TEXT; SELECT 1 / 0")]
    async with connected(blank_database()) as db:
        await migrate(db)
        before = await shape(db)
        with pytest.raises(asyncpg.DivisionByZeroError):
            await migrate(db, failing)
        assert await shape(db) == before


async def test_an_empty_database_is_migrated_once_by_concurrent_instances() -> None:
    url = blank_database()
    opened = []

    async def open_one() -> None:
        async with Ocean.open(url, clogs=[Clog("c")]) as ocean:
            opened.append(await ocean.create_run(session_id="s", clog_id="c"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(open_one)
    assert len(opened) == 5
    async with connected(url) as db:
        assert [row["version"] for row in await db.fetch("SELECT version FROM ocean_schema")] == [NEWEST]


async def test_opening_again_changes_nothing(real_database: str) -> None:
    """Not even the transaction id of a function changes."""
    made_by = "SELECT array_agg(xmin::text ORDER BY oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    async with connected(real_database) as db:
        before = await db.fetchval(made_by)
        async with Ocean.open(real_database):
            pass
        assert await db.fetchval(made_by) == before


async def test_an_instance_that_waits_for_a_migration_has_a_longer_limit() -> None:
    url = blank_database()
    db = await asyncpg.connect(url)
    opened: list[str] = []

    async def open_one() -> None:
        async with Ocean.open(f"{url}?lock_ms=100&statement_ms=400", clogs=[Clog("c")]):
            opened.append("late")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks, db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
            tasks.start_soon(open_one)
            # Longer than their statements may take, and than the driver waits for one.
            await db.execute("SELECT pg_sleep(1)")
            assert opened == []
    assert opened == ["late"]
    await db.close()


async def test_a_newer_schema_is_refused_and_not_changed(real_database: str) -> None:
    async with connected(real_database) as db:
        await db.execute("UPDATE ocean_schema SET version = version + 1")
        try:
            with pytest.raises(StoreUnusable, match="upgrade ocean-runtime"):
                async with Ocean.open(real_database):
                    pass
        finally:
            await db.execute("UPDATE ocean_schema SET version = version - 1")


@asynccontextmanager
async def restricted(url: str, grants: str) -> AsyncIterator[str]:
    """The same database, for a role that owns nothing and may create nothing."""
    role = f"worker_{os.getpid()}"
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    async with connected(url) as db:
        await db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'word'")
        try:
            await db.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            await db.execute(re.sub(r"\bworker\b", role, grants))
            yield urlunsplit(parts._replace(netloc=f"{role}:word@{place}"))
        finally:
            await db.execute(f"GRANT USAGE ON SCHEMA public TO PUBLIC; DROP OWNED BY {role}; DROP ROLE {role}")


def documented_grants() -> str:
    found = re.search(r"^```sql\n(GRANT .*?)^```", (ROOT / "docs" / "operating-postgresql.md").read_text(), re.M | re.S)
    assert found
    return found[1]


async def test_a_role_that_may_create_nothing_can_run(real_database: str) -> None:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.read(run=True, global_=True)
        await tick.write(run=1, global_=lambda old: (old or 0) + 1)
        await tick.step("once", lambda key: 1)
        await tick.stream("word", 1)
        return Done(tick.input)

    async with restricted(real_database, documented_grants()) as url:
        async with connected(url) as db:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.execute("CREATE TABLE mine ()")
        async with Ocean.open(url, clogs=[clog]) as ocean:
            run = await ocean.create_run(
                session_id="s",
                clog_id="c",
                input=7,
                concurrency_keys=["k"],
                dedupe_key="d",
                attributes={"size": 1},
            )
            assert await ocean.result(run.run_id, timeout_ms=5_000) == 7
            assert len((await ocean.list_runs(clog_id="c", attributes={"size": 1})).runs) == 1
            with pytest.raises(OceanError, match="ended"):
                await ocean.signal(run.run_id)
            assert await ocean.read_events(run.run_id)
            assert await ocean.delete_session("s") == 1
            await ocean.sweep(events_older_than_ms=0)


async def test_a_role_that_may_create_nothing_cannot_migrate() -> None:
    async with restricted(blank_database(), "GRANT USAGE ON SCHEMA public TO worker") as url:
        with pytest.raises(StoreUnusable, match="permission denied"):
            async with Ocean.open(url):
                pass


async def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnusable, match="cannot open PostgreSQL") as refused:
        async with Ocean.open("postgresql://someone:secret@127.0.0.1:1/nothing"):
            pass
    assert "secret" not in str(refused.value)


if __name__ == "__main__":
    RECORD.write_text(json.dumps(json.loads(RECORD.read_text()) | digests(), indent=1, sort_keys=True) + "\n")
