"""`ocean keys`: create, list, revoke; and a server that others can reach needs a key."""

import json

import httpx2
import pytest

from tests.cli.kit import Shell


def test_a_key_is_printed_once_and_listed_without_its_secret(ocean: Shell) -> None:
    made = ocean("keys", "create", "--actor", "ann", "--scope", "read", "--scope", "signal", "--role", "owner")
    key = made.out.strip()
    key_id = key.split("_")[1]
    assert made.err == f"key {key_id} for ann; store it now, it cannot be shown again\n"
    listed = ocean("keys", "list", COLUMNS="200").out
    heading, row = listed.splitlines()
    assert heading.split() == ["KEY", "ACTOR", "SCOPES", "ROLES", "SESSIONS", "CREATED", "STATE"]
    assert row.split()[:6] == [key_id, "ann", "read,", "signal", "owner", "all"]
    assert row.split()[-1] == "valid"
    assert key not in listed
    assert key not in (ocean.folder / "ocean.db").read_bytes().decode("latin-1")


def test_keys_as_json(ocean: Shell) -> None:
    args = ("--actor", "ann", "--scope", "admin", "--session", "s", "--expires", "30d")
    made = ocean.json("keys", "create", *args)
    assert made["key"].startswith(f"ocean_{made['info']['keyId']}_")
    assert made["info"]["expiresAt"] - made["info"]["createdAt"] in range(30 * 86_400_000 - 60_000, 30 * 86_400_000 + 1)
    assert ocean.json("keys", "list") == [made["info"]]
    assert made["info"]["sessions"] == ["s"]
    revoked = ocean.json("keys", "revoke", made["info"]["keyId"])
    assert revoked["revokedAt"] is not None
    assert ocean("keys", "list", COLUMNS="200").out.splitlines()[1].split()[-1] == "revoked"


def test_a_revoked_key_is_reported_and_an_unknown_one_is_missing(ocean: Shell) -> None:
    key_id = ocean.json("keys", "create", "--actor", "ann", "--scope", "read")["info"]["keyId"]
    assert ocean("keys", "revoke", key_id).out == f"revoked {key_id} of ann\n"
    missing = ocean("keys", "revoke", "nope")
    assert (missing.code, missing.out) == (3, "")
    assert ocean("keys", "list", DB="x").code == 0


def test_an_empty_list_of_keys_is_reported(ocean: Shell) -> None:
    assert ocean("keys", "list").out == "no keys: only this machine may use the HTTP API\n"
    assert ocean.json("keys", "list") == []


@pytest.mark.parametrize(
    "args",
    [
        ("--actor", "ann", "--scope", "reed"),
        ("--actor", "", "--scope", "read"),
        ("--actor", "ann"),
        ("--scope", "read"),
        ("--actor", "ann", "--scope", "work", "--session", "s"),
        ("--actor", "ann", "--scope", "read", "--expires", "yesterday"),
    ],
)
def test_an_invalid_key_is_refused(ocean: Shell, args: tuple[str, ...]) -> None:
    assert ocean("keys", "create", *args).code == 2
    assert ocean.json("keys", "list") == []


def test_a_server_binds_another_address_only_if_there_is_a_key(ocean: Shell) -> None:
    refused = ocean("serve", "--host", "0.0.0.0", "--port", 0, "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_value")
    assert "ocean keys create" in refused.error["message"]
    made = ocean.json("keys", "create", "--actor", "ann", "--scope", "read")
    with ocean.start("serve", "--host", "0.0.0.0", "--port", 0, "--json", "--no-ticker") as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["url"].rpartition(":")[2]
            for key, status in (("nope", 401), (made["key"], 200)):
                headers = {"authorization": f"Bearer {key}"}
                assert httpx2.get(f"http://127.0.0.1:{port}/v1/runs", headers=headers).status_code == status
        finally:
            server.terminate()
        assert server.wait(60) == 0


def test_what_a_clog_keeps_is_refused_from_the_command_line_too(ocean: Shell) -> None:
    own = {"OCEAN_CLOGS": "tests.cli.keeper:keeper"}
    refused = ocean("create", "keeper", "--json", **own)
    assert (refused.code, refused.error["code"]) == (1, "not_generic")
    run_id = ocean.json("call", "begin", "--clog", "keeper", **own)
    for command in (("signal", run_id), ("pause", run_id), ("delete", run_id), ("retry", run_id)):
        assert ocean(*command, "--json", **own).error["code"] == "not_generic"
    assert ocean("delete", "--clog", "keeper", "--yes", "--json").error["code"] == "not_generic"
    assert ocean.json("delete", "--everything", "--yes")["seen"] == 0
    assert ocean("show", run_id).code == 0
    assert ocean("cancel", run_id).code == 0
