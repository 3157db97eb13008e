"""Where there is no browser, CI fails and everybody else is told how to get one."""

import os
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped

from tests.browser.conftest import a_browser


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a browser."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("OCEAN_CHROMIUM", "CI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_a_browser_the_tests_say_how_to_get_one(nowhere: Path) -> None:
    with pytest.raises(Skipped, match="apt-get install chromium"):
        a_browser()


def test_without_a_browser_ci_fails(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Failed, match="OCEAN_CHROMIUM"):
        a_browser()


@pytest.mark.parametrize("name", ["chromium", "google-chrome"])
def test_a_browser_is_found_where_programs_are(nowhere: Path, name: str) -> None:
    program = nowhere / name
    program.write_text("")
    program.chmod(0o755)
    assert a_browser() == str(program)


def test_a_named_browser_comes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCEAN_CHROMIUM", os.devnull)
    assert a_browser() == os.devnull
