"""The schema: the same tables as on SQLite, made once however many come at once, and with the server's own time."""

import sqlite3

import anyio
import asyncpg
import pytest

from ocean import Clog, Ocean, StoreUnusable
from ocean.stores.migrate import migrate as migrate_sqlite
from ocean.stores.postgres.migrate import MIGRATING, migrations
from tests.postgres.server import blank_database

pytestmark = pytest.mark.anyio

OWN = {"ocean_schema", "ocean_groups", "ocean_unsettled"}


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


async def test_the_time_that_is_shipped_is_the_servers(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    body = await db.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'ocean_now'")
    has_test_clock = await db.fetchval("SELECT to_regclass('ocean_test_clock')")
    await db.close()
    assert "clock_timestamp()" in body
    assert has_test_clock is None


async def test_a_blank_database_is_prepared_once_by_many_at_once() -> None:
    url = blank_database()
    opened = []

    async def open_one() -> None:
        async with Ocean.open(url, clogs=[Clog("c")]) as ocean:
            opened.append(await ocean.create_run(session_id="s", clog_id="c"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(open_one)
    assert len(opened) == 5
    db = await asyncpg.connect(url)
    assert [row["version"] for row in await db.fetch("SELECT version FROM ocean_schema")] == [migrations()[-1][0]]
    await db.close()


async def test_whoever_finds_another_preparing_it_waits_longer_than_for_anything_else() -> None:
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
            # Longer than any statement of theirs may take, and than the driver waits for one.
            await db.execute("SELECT pg_sleep(1)")
            assert opened == []
    assert opened == ["late"]
    await db.close()


async def test_a_newer_schema_is_left_alone(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    await db.execute("UPDATE ocean_schema SET version = version + 1")
    try:
        with pytest.raises(StoreUnusable, match="upgrade ocean-runtime"):
            async with Ocean.open(real_database):
                pass
    finally:
        await db.execute("UPDATE ocean_schema SET version = version - 1")
        await db.close()


async def test_a_server_that_is_not_there_is_said_without_its_password() -> None:
    with pytest.raises(StoreUnusable, match="cannot open PostgreSQL") as refused:
        async with Ocean.open("postgresql://someone:secret@127.0.0.1:1/nothing"):
            pass
    assert "secret" not in str(refused.value)
