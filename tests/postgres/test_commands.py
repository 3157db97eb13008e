"""The command line on PostgreSQL: the same commands, with another URL."""

from pathlib import Path

import asyncpg

from tests.cli.kit import Shell
from tests.postgres.server import blank_database, blocking


def test_an_empty_database_is_migrated_used_and_inspected(tmp_path: Path) -> None:
    url, shell = blank_database(), Shell(tmp_path)
    before = shell("doctor", "--db", url)
    assert "does not have Ocean's tables yet" in " ".join(before.out.split())
    assert before.code != 0
    assert shell.json("migrate", "--db", url)["from"] == 0
    assert shell.json("migrate", "--db", url)["from"] == shell.json("migrate", "--db", url)["to"]
    run_id = shell.json("create", "shop", "--input", '{"do": "done"}', "--db", url)["runId"]
    assert shell.json("advance", "--db", url)["advanced"] == 1
    assert shell.json("show", run_id, "--db", url)["run"]["status"] == "done"
    after = shell("doctor", "--db", url)
    assert (after.code, f"PostgreSQL {blocking(_version(url))}" in after.out) == (0, True)


async def _version(url: str) -> str:
    """The server's version, without what a packager may have added."""
    db = await asyncpg.connect(url)
    try:
        return str(await db.fetchval("SHOW server_version")).split()[0]
    finally:
        await db.close()


def test_an_unreachable_server_is_reported_without_its_password(tmp_path: Path) -> None:
    found = Shell(tmp_path)("doctor", "--db", "postgresql://someone:secret@127.0.0.1:1/nothing")
    assert found.code != 0
    assert "secret" not in found.out + found.err
