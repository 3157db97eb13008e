"""The fixture `ocean_world`, in a separate pytest process."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = """
import asyncio
import pytest
from ocean import Clog, Done, Outcome, Tick
from ocean.testing import OpenWorld, Outside

clog = Clog("c", tools=["ocean.http.fetch"])

@clog.on_advance
async def advance(tick: Tick) -> Outcome:
    if tick.input == "hang":
        await asyncio.Event().wait()
    if tick.input == "fetch":
        await tick.fetch("https://nobody.example/")
    return Done(tick.now)

@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

"""
CASES = {
    "tidy": (
        """
async def body(ocean_world):
    async with ocean_world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input=1)
        await w.drain()
        assert await w.ocean.result(run.run_id) == w.clock.now()
""",
        None,
    ),
    "task": (
        """
async def forgotten():
    await asyncio.Event().wait()

async def body(ocean_world):
    async with ocean_world([clog]) as w:
        global kept
        kept = asyncio.create_task(forgotten())
        await asyncio.sleep(0)
""",
        "the world has ended, but the task forgotten is still running",
    ),
    "nobody": (
        """
async def body(ocean_world):
    async with ocean_world([clog], outside=Outside()) as w:
        await w.ocean.create_run(session_id="s", clog_id="c", input="fetch")
        await w.drain()
""",
        "the world has ended, but no answer is defined for GET https://nobody.example/",
    ),
    "open": (
        """
async def body(ocean_world):
    await ocean_world([clog]).__aenter__()
""",
        "a world was opened and not closed",
    ),
    "fails": (
        """
async def body(ocean_world):
    async with ocean_world([clog]) as w:
        assert w.clock.now() == "the test's own mistake"
""",
        "the test's own mistake",
    ),
}
RUN = """
@pytest.mark.anyio
async def test_it(ocean_world: OpenWorld) -> None:
    await body(ocean_world)
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of pytest for a folder with a test for each case, and one that imports the fixture."""
    folder = tmp_path_factory.mktemp("users")
    (folder / "conftest.py").write_text('pytest_plugins = ["ocean.testing.pytest_plugin"]\n')
    for name, (body, _) in CASES.items():
        (folder / f"test_{name}.py").write_text(HEAD + body + RUN)
    other = tmp_path_factory.mktemp("others") / "deep"
    other.mkdir()
    (other / "conftest.py").write_text("from ocean.testing.pytest_plugin import ocean_world  # noqa: F401\n")
    (other / "test_imported.py").write_text(HEAD + CASES["tidy"][0] + RUN)
    return run_pytest(folder) + run_pytest(other.parent)


def run_pytest(folder: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-p",
        "anyio.pytest_plugin",
        str(folder),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("name", CASES)
def test_the_fixture_opens_worlds_and_reports_what_was_left_in_them(name: str, output: str) -> None:
    complaint = CASES[name][1]
    verdict = "PASSED" if complaint in (None, CASES["open"][1]) else "FAILED"
    assert f"{verdict} test_{name}.py::test_it" in output
    assert complaint is None or complaint in output
    assert re.findall("^ERROR (test_.*)::", output, re.MULTILINE) == ["test_open.py"]


def test_the_fixture_can_be_imported_into_a_conftest_of_any_folder(output: str) -> None:
    assert "PASSED deep/test_imported.py::test_it" in output


def test_no_entry_point_loads_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "pytest11" not in project.get("entry-points", {})
