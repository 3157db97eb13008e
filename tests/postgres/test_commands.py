"""The command line on PostgreSQL: the same commands, with another URL."""

from pathlib import Path

from tests.cli.kit import Shell
from tests.postgres.server import blank_database


def test_a_blank_database_is_made_used_and_examined(tmp_path: Path) -> None:
    url, shell = blank_database(), Shell(tmp_path)
    before = shell("doctor", "--db", url)
    assert "there is no" in before.out
    assert before.code != 0
    assert shell.json("migrate", "--db", url)["from"] == 0
    assert shell.json("migrate", "--db", url)["from"] == shell.json("migrate", "--db", url)["to"]
    run_id = shell.json("create", "shop", "--input", '{"do": "done"}', "--db", url)["runId"]
    assert shell.json("advance", "--db", url)["advanced"] == 1
    assert shell.json("show", run_id, "--db", url)["run"]["status"] == "done"
    after = shell("doctor", "--db", url)
    assert (after.code, "PostgreSQL" in after.out) == (0, True)


def test_a_server_that_is_not_there_is_a_finding_and_no_secret(tmp_path: Path) -> None:
    found = Shell(tmp_path)("doctor", "--db", "postgresql://someone:secret@127.0.0.1:1/nothing")
    assert found.code != 0
    assert "secret" not in found.out + found.err
