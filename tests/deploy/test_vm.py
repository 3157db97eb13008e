"""The plain VM: valid systemd units, and the programs that they start."""

import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.deploy.kit import DEPLOY, OCEAN, PATIENCE_S, key_made_by, plain_settings, ran, served, smoke, unit

pytestmark = pytest.mark.xdist_group("processes")

PROGRAM = "/opt/ocean/venv/bin/ocean"
UNITS = ("ocean.service", "ocean-poke.service", "ocean-poke.timer")
SERVICES = ("ocean.service", "ocean-poke.service")
ANALYZERS = [path for path in [shutil.which("systemd-analyze")] if path]
"""Empty without systemd: the tests that need it are then reported as skipped for lack of parameters."""
MOST_EXPOSED = 20
"""Of 100; systemd calls this OK."""


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units, with a program that exists."""
    for name in UNITS:
        text = (DEPLOY / "vm" / name).read_text()
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable))
    return [tmp_path / name for name in UNITS]


def settings(folder: Path) -> dict[str, str]:
    env = plain_settings((DEPLOY / "vm" / "ocean.env").read_text())
    assert env["OCEAN_DB"].startswith("sqlite:////var/lib/ocean/"), "the folder that StateDirectory=ocean makes"
    return env | {"OCEAN_DB": env["OCEAN_DB"].replace("/var/lib/ocean", str(folder))}


def started_by(name: str) -> tuple[str, ...]:
    (line,) = unit(name)["ExecStart"]
    program, *rest = line.split()
    assert program == PROGRAM
    return (*OCEAN, *rest)


@pytest.mark.parametrize("analyze", ANALYZERS)
def test_systemd_finds_nothing_wrong_with_the_units(analyze: str, installed: list[Path]) -> None:
    assert ran((analyze, "verify", "--man=no", *installed), {}) == (0, "", "")


@pytest.mark.parametrize("analyze", ANALYZERS)
@pytest.mark.parametrize("name", SERVICES)
def test_systemd_finds_the_services_well_shut_in(analyze: str, name: str, installed: list[Path]) -> None:
    path = installed[UNITS.index(name)]
    command = (analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", path)
    code, details, complained = ran(command, {})
    assert (code, complained) == (0, ""), details


def test_both_services_are_shut_in_alike() -> None:
    def walls(name: str) -> list[str]:
        text = (DEPLOY / "vm" / name).read_text().split("\n[Install]")[0]
        return text[text.index("UMask=") :].strip().splitlines()

    assert walls("ocean.service") == walls("ocean-poke.service")


def test_the_service_passes_the_smoke_test(tmp_path: Path) -> None:
    key = key_made_by("A plain VM", tmp_path, settings(tmp_path))
    with served(started_by("ocean.service"), tmp_path, settings(tmp_path)) as url:
        code, details, complained = smoke(url, "counter", OCEAN_KEY=key)
        assert (code, complained, details.splitlines()[-1]) == (0, "", "smoke: passed")
        code, _, complained = smoke(url, "counter")
    assert (code, "refused with 401" in complained, "set OCEAN_KEY" in complained) == (1, True, True)


def test_the_service_reports_that_it_is_ready(tmp_path: Path) -> None:
    assert unit("ocean.service")["Type"] == ["notify"]
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waiting:
        waiting.bind(str(address))
        waiting.settimeout(PATIENCE_S)
        details = settings(tmp_path) | {"NOTIFY_SOCKET": str(address)}
        with served(started_by("ocean.service"), tmp_path, details):
            assert waiting.recv(100) == b"READY=1"


def test_the_timer_starts_a_poke_that_does_what_is_due_and_ends(tmp_path: Path) -> None:
    details = settings(tmp_path)
    for _ in range(2):
        assert ran((*OCEAN, "create", "counter", "--input", "{}"), details, tmp_path)[0] == 0
    poked = ran(started_by("ocean-poke.service"), details, tmp_path)
    assert poked == (0, "6 ticks: 4 continue, 2 done\nnothing is due\n", "")
    listed = json.loads(ran((*OCEAN, "ps", "--json"), details, tmp_path)[1])
    assert [run["status"] for run in listed["runs"]] == ["done", "done"]


def test_the_timer_is_exact_and_comes_again_after_the_poke_has_ended() -> None:
    timer = unit("ocean-poke.timer")
    assert (timer["AccuracySec"], timer["OnUnitInactiveSec"]) == (["1s"], ["5s"])


def test_a_poke_that_cannot_start_fails_with_the_reason(tmp_path: Path) -> None:
    details = settings(tmp_path) | {"OCEAN_CLOGS": "clogs.gone:gone"}
    code, content, complained = ran(started_by("ocean-poke.service"), details, tmp_path)
    assert (code, content) == (2, "")
    assert complained.startswith("ocean: OCEAN_CLOGS: there is no module 'clogs.gone'")
    assert list(tmp_path.iterdir()) == []


A_PYTHON = """#!/bin/sh
# Creates no environment and installs nothing, but prints its arguments.
[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
echo "$2" "$3"
"""


def test_installing_puts_the_files_where_the_units_look_and_keeps_the_settings(tmp_path: Path) -> None:
    python, root = tmp_path / "python", tmp_path / "root"
    python.write_text(A_PYTHON)
    python.chmod(0o755)
    command, details = ("sh", DEPLOY / "vm" / "install.sh"), {"DESTDIR": str(root), "PYTHON": str(python)}
    assert ran(command, details, tmp_path) == (0, f"venv {root}/opt/ocean/venv\npip install\n", "")
    assert (root / "opt/ocean/venv/bin/python").exists()
    assert {path.name for path in (root / "etc/systemd/system").iterdir()} == set(UNITS)
    assert (root / "usr/local/bin/ocean").stat().st_mode & 0o777 == 0o755
    (root / "etc/ocean.env").write_text("PORT=9090\n")
    assert (root / "etc/ocean.env").stat().st_mode & 0o777 == 0o640
    (root / "etc/systemd/system/ocean.service").write_text("old")
    assert ran(command, details, tmp_path)[0] == 0
    assert (root / "etc/ocean.env").read_text() == "PORT=9090\n"
    assert (root / "etc/systemd/system/ocean.service").read_text() == (DEPLOY / "vm" / "ocean.service").read_text()


def test_installing_names_every_file_of_the_recipe() -> None:
    script = (DEPLOY / "vm" / "install.sh").read_text()
    files = {path.name for path in (DEPLOY / "vm").iterdir()} - {"install.sh"}
    assert files == {"ocean", "ocean.env", *UNITS}
    assert [name for name in files if f'"$here/{name}"' not in script] == []
