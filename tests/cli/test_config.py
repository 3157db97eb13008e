"""Settings: their sources, their precedence, and the errors when they are wrong."""

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from ocean.config import BadSettings, Settings, load_clogs, read_settings

MODULE = """
from ocean import Clog
one = Clog("one")
same = one
other_one = Clog("one")
several = [Clog("a"), Clog("b")]
def make(): return [one, Clog("made")]
def broken(): raise ValueError("no tea")
def quits(): raise SystemExit(0)
def needy(tea): return one
async def slow(): return one
none = []
word = "one"
mixed = [one, 3]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "tea_clogs.py").write_text(MODULE)
    (tmp_path / "tea_broken.py").write_text("import nothing_like_it\n")
    (tmp_path / "tea_script.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "tea_wrong.py").write_text("x = 1\n1 / 0\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("tea_")]:
        del sys.modules[name]


def read(folder: Path, db: str | None = None, clogs: str | None = None, **environ: str) -> Settings:
    return read_settings(db, clogs, environ=environ, folder=folder, entry_points=False)


def load(folder: Path, *places: str) -> list[str]:
    return [clog.clog_id for clog in load_clogs(Settings(clogs=places, clogs_from="--clogs"), folder)]


def test_without_settings_the_database_is_a_file_in_the_working_directory(tmp_path: Path) -> None:
    assert read(tmp_path) == Settings("sqlite:///ocean.db", (), "nowhere")


def test_the_flag_overrides_the_environment_which_overrides_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.ocean]\ndb = "sqlite:///p.db"\nclogs = ["p:p"]\n')
    assert read(tmp_path) == Settings("sqlite:///p.db", ("p:p",), "[tool.ocean]")
    environ = {"OCEAN_DB": "sqlite:///e.db", "OCEAN_CLOGS": "e:e, f:f,"}
    assert read(tmp_path, **environ) == Settings("sqlite:///e.db", ("e:e", "f:f"), "OCEAN_CLOGS")
    assert read(tmp_path, "sqlite:///f.db", "g:g", **environ) == Settings("sqlite:///f.db", ("g:g",), "--clogs")


def test_entry_points_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "tea-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tea\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ocean.clogs]\ntea = tea_clogs:one\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert metadata.entry_points(group="ocean.clogs")
    found = read_settings(None, None, environ={}, folder=tmp_path)
    assert found.clogs == ("tea_clogs:one",)
    assert read_settings(None, "a:a", environ={}, folder=tmp_path).clogs == ("a:a",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[tool.ocean\n", "pyproject.toml must be TOML"),
        ("[tool]\nocean = 3\n", "must be a table, got 3"),
        ("[tool.ocean]\nclog = []\n", "has no setting 'clog'; did you mean 'clogs'?"),
        ('[tool.ocean]\nclogs = "a:b"\n', "must be a list like"),
        ("[tool.ocean]\nclogs = [3]\n", "must be a list like"),
        ("[tool.ocean]\ndb = 3\n", "must be a database URL, got 3"),
    ],
)
def test_a_wrong_table_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(BadSettings, match="pyproject") as refused:
        read(tmp_path)
    assert reason in refused.value.message


def test_a_place_is_a_clog_a_list_or_a_function_in_the_working_directory(folder: Path) -> None:
    assert load(folder, "tea_clogs:one") == ["one"]
    assert load(folder, "tea_clogs:several", "tea_clogs:one") == ["a", "b", "one"]
    assert load(folder, "tea_clogs:make") == ["one", "made"]
    assert load(folder, "tea_clogs:one", "tea_clogs:same") == ["one"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("tea_clogs", "'tea_clogs' must be module:attr"),
        (":one", "must be module:attr"),
        ("tea_cups:one", "there is no module 'tea_cups'"),
        ("tea_clogs.deep:one", "there is no module 'tea_clogs.deep'"),
        ("tea_clogs:oen", "module 'tea_clogs' has no 'oen'; did you mean 'one'?"),
        ("tea_clogs:word", "must be a Clog, a list of them, or a function that returns them, got 'one'"),
        ("tea_clogs:none", "got an empty list"),
        ("tea_clogs:mixed", "each of tea_clogs:mixed must be a Clog, got 3"),
        ("tea_clogs:broken", "calling tea_clogs:broken failed: ValueError: no tea (tea_clogs.py:8)"),
        ("tea_clogs:needy", "calling tea_clogs:needy failed: TypeError"),
        ("tea_clogs:slow", "tea_clogs:slow() must be a Clog"),
        ("tea_broken:one", "importing 'tea_broken' failed: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("tea_clogs:quits", "calling tea_clogs:quits failed: SystemExit: 0"),
        ("tea_script:one", "importing 'tea_script' failed: SystemExit: 3 (tea_script.py:2)"),
        ("tea_wrong:one", "importing 'tea_wrong' failed: ZeroDivisionError: division by zero (tea_wrong.py:2)"),
    ],
)
def test_a_place_without_clogs_is_refused_with_what_it_contains(folder: Path, place: str, reason: str) -> None:
    with pytest.raises(BadSettings) as refused:
        load(folder, place)
    assert refused.value.message.startswith("--clogs: ")
    assert reason in refused.value.message


def test_two_clogs_of_one_id_are_refused_with_both_places(folder: Path) -> None:
    with pytest.raises(
        BadSettings, match="clog ids must be unique within an instance, got 'one' from 'tea_clogs:one' and"
    ):
        load(folder, "tea_clogs:one", "tea_clogs:other_one")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().db = "elsewhere"  # type: ignore[misc]
