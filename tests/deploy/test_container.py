"""The container without a daemon: its files are read, and its program is started as a process."""

import fnmatch
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kit import (
    DEPLOY,
    OCEAN,
    ROOT,
    dockerfile,
    document,
    instruction,
    key_made_by,
    ran,
    served,
    smoke,
    words,
)

pytestmark = pytest.mark.xdist_group("processes")


def service() -> dict[str, Any]:
    found: dict[str, Any] = document("container/compose.yaml")["services"]["ocean"]
    return found


def settings(folder: Path) -> dict[str, str]:
    """The image's, then compose's; with a folder instead of the volume, and loopback instead of the container's net."""
    pairs = re.findall(r"(\w+)=(\S+)", instruction("ENV"))
    env = {name: value for name, value in pairs if name != "PATH"} | service()["environment"]
    assert (env["OCEAN_DB"], env["OCEAN_HOST"], env["PORT"]) == ("sqlite:////data/ocean.db", "0.0.0.0", "8080")
    return {**env, "OCEAN_DB": f"sqlite:///{folder}/ocean.db", "OCEAN_HOST": "127.0.0.1"}


def started() -> tuple[str, ...]:
    program, *rest = words(instruction("ENTRYPOINT")) + tuple(service().get("command", words(instruction("CMD"))))
    assert program == "ocean"
    return (*OCEAN, *rest)


def healthcheck() -> tuple[str, ...]:
    program, *rest = words(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert program == "python"
    return (sys.executable, *rest)


def test_what_it_starts_passes_the_smoke_test(tmp_path: Path) -> None:
    key = key_made_by("A container", tmp_path, settings(tmp_path))
    with served(started(), tmp_path, settings(tmp_path)) as url:
        code, details, complained = smoke(url, "counter", OCEAN_KEY=key)
        assert (code, complained, details.splitlines()[-1]) == (0, "", "smoke: passed")
        port = url.rpartition(":")[2]
        assert ran(healthcheck(), {"PORT": port}) == (0, "", "")
    assert ran(healthcheck(), {"PORT": port})[0] == 1


def test_without_a_key_it_refuses_to_listen_beyond_loopback(tmp_path: Path) -> None:
    code, details, complained = ran(started(), settings(tmp_path) | {"OCEAN_HOST": "0.0.0.0", "PORT": "0"}, tmp_path)
    assert (code, details) == (2, "")
    assert "`ocean keys create`" in complained


def test_another_command_can_be_run_on_the_same_volume(tmp_path: Path) -> None:
    """As `docker compose run --rm ocean ps` does: what comes after the service's name takes the place of CMD."""
    details = ran((*OCEAN, "ps"), settings(tmp_path), tmp_path)
    assert (details[0], details[2]) == (0, "")


def test_it_runs_as_an_unprivileged_user_and_writes_to_its_volume_only() -> None:
    assert instruction("USER") == "10001"
    assert "-o ocean -g ocean /data" in instruction("RUN")
    assert instruction("VOLUME") == "/data"
    inside = service()
    assert (inside["read_only"], inside["cap_drop"], inside["volumes"]) == (True, ["ALL"], ["data:/data"])
    assert inside["security_opt"] == ["no-new-privileges:true"]


def test_it_is_published_to_this_machine_only() -> None:
    assert service()["ports"] == [f"127.0.0.1:8080:{instruction('EXPOSE')}"]


def test_everything_it_copies_is_there_and_let_through() -> None:
    """And everything that a build of the package reads is copied."""
    folder = DEPLOY / "container"
    build = service()["build"]
    assert (folder / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).samefile(folder / "Dockerfile")
    lines = (folder / "Dockerfile.dockerignore").read_text().split()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source for name, rest in dockerfile() if name == "COPY" and "--from" not in rest for source in rest.split()[:-1]
    }
    assert lines[0] == "*"
    assert copied == let_through == {name for name in copied if (ROOT / name).exists()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    }
    assert needed == copied
    assert [line for line in lines if fnmatch.fnmatch("ocean", line)] == ["*"]
