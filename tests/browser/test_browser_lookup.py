"""Without a browser CI fails, and other users see how to install one."""

import os
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped

from tests.browser.conftest import a_browser


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a browser."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("OCEAN_CHROMIUM", "CI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_a_browser_the_tests_explain_how_to_install_one(no_browser: Path) -> None:
    with pytest.raises(Skipped, match="apt-get install chromium"):
        a_browser()


def test_without_a_browser_ci_fails(no_browser: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Failed, match="OCEAN_CHROMIUM"):
        a_browser()


@pytest.mark.parametrize("name", ["chromium", "google-chrome"])
def test_a_browser_is_found_on_the_path(no_browser: Path, name: str) -> None:
    program = no_browser / name
    program.write_text("")
    program.chmod(0o755)
    assert a_browser() == str(program)


def test_a_configured_browser_takes_precedence(no_browser: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCEAN_CHROMIUM", os.devnull)
    assert a_browser() == os.devnull
