"""`ocean doctor` finds what keeps runs from moving."""

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

from tests.cli.kit import Shell


def found(result: Any) -> dict[str, Any]:
    return {check["check"]: check for check in result["checks"]}


def examined(ocean: Shell, *args: object, code: int, **environ: str) -> dict[str, Any]:
    result = ocean("doctor", "--json", *args, **environ)
    assert (result.code, result.err) == (code, "")
    answer = json.loads(result.out)
    assert answer["ok"] is (code == 0)
    return found(answer)


def change(ocean: Shell, statement: str) -> None:
    """What no verb can do: time that has passed, or another version's work."""
    with closing(sqlite3.connect(ocean.folder / "ocean.db")) as db:
        db.execute(statement)
        db.commit()


def test_a_missing_database_is_reported_and_not_created(ocean: Shell) -> None:
    assert "ocean migrate" in examined(ocean, code=1)["database"]["advice"]
    assert not (ocean.folder / "ocean.db").exists()


def test_a_healthy_database_is_exit_zero(ocean: Shell) -> None:
    ocean("migrate")
    checks = examined(ocean, code=0)
    expected = {"python", "engine", "database", "schema", "journal", "clogs", "due"}
    assert expected <= set(checks)
    assert checks["clogs"]["said"] == "shop, porter (from OCEAN_CLOGS)"
    text = ocean("doctor").out
    assert "NO" not in text
    assert "\x1b" not in text


def test_clogs_that_do_not_load_are_a_finding_not_a_crash(ocean: Shell) -> None:
    ocean("migrate")
    assert "there is no module 'nowhere'" in examined(ocean, code=1, OCEAN_CLOGS="nowhere:x")["settings"]["said"]
    assert "--clogs" in examined(ocean, code=1, OCEAN_CLOGS="")["clogs"]["advice"]


def test_a_file_that_is_no_database_and_a_newer_schema_are_reported(ocean: Shell) -> None:
    (ocean.folder / "diary.db").write_text("dear diary, " * 50)
    assert "not a database" in examined(ocean, "--db", "sqlite:///diary.db", code=1)["database"]["said"]
    ocean("migrate")
    change(ocean, "PRAGMA user_version = 999")
    assert "upgrade" in examined(ocean, code=1)["schema"]["advice"]


def test_due_runs_that_are_not_poked_are_late(ocean: Shell) -> None:
    ocean.create()
    change(ocean, "UPDATE runs SET ready_at = ready_at - 600000, due_at = due_at - 600000")
    late = examined(ocean, code=1)["due"]
    assert late["said"] == "1 run due, the oldest for 10m"
    assert "nothing pokes" in late["advice"]


def test_runs_of_clogs_that_are_not_loaded_name_their_clogs(ocean: Shell) -> None:
    ocean.create()
    needed = examined(ocean, code=1, OCEAN_CLOGS="clogs.counter:counter")["clogs needed"]
    assert needed["said"] == "1 due run of clogs that are not loaded here: shop (1)"


def test_parked_runs_name_their_keys(ocean: Shell) -> None:
    ocean("limit", "set", "mail", 0)
    ocean.create("done", "--key", "mail")
    ocean("advance")
    parked = examined(ocean, code=1)["parked"]
    assert parked["said"] == "1 on mail (0 of 0 in use)"
    assert "ocean limit set mail" in parked["advice"]
    ocean("limit", "set", "mail", 1)
    assert examined(ocean, code=0)["parked"]["said"] == "none"


def test_lapsed_locks_are_reported(ocean: Shell) -> None:
    ocean.create()
    change(
        ocean,
        "UPDATE runs SET status = 'active', locked_by = 'i-dead', lock_expires_at = 1, due_at = 1, ready_at = NULL",
    )
    assert examined(ocean, code=1)["lapsed locks"]["said"] == "1, the first held by i-dead"


def test_other_instances_are_listed_with_when_they_were_last_seen(ocean: Shell) -> None:
    ocean("migrate")
    assert examined(ocean, code=0)["instances"]["said"] == "none other"
    ago = "strftime('%s', 'now') * 1000 - 65000"
    columns = "instance_id, boot_id, pid_namespace, pid, process_start, longest_lock_ms, started_at, seen_at"
    change(ocean, f"INSERT INTO ocean_instances ({columns}) VALUES ('i-far', 'boot', 'ns', 7, 1, 30000, 1, {ago})")
    assert re.fullmatch(r"i-far \(last seen [12]m ago, elsewhere\)", examined(ocean, code=0)["instances"]["said"])
