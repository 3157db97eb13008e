"""The walk in docs/architecture.md names every file that a signal passes, and no other."""

import re
from pathlib import Path

import pytest

from tests.project.walk import ROOT, walk

pytestmark = pytest.mark.anyio

MOST_FILES = 69
"""71 before files were joined and a coordinator replaced five ways to poke. Fewer is better; more needs a reason: 69
since stops, crashes and ends have rules of their own (`shutdown`, `probation`, `suspects`, `crashes`, `ends`,
`instances`), and what an instance needs is apart (`runtime`)."""
ROW = re.compile(r"^\| `(ocean/[\w/]+\.py)` \|", re.MULTILINE)


async def test_the_page_names_the_files_that_a_signal_passes(tmp_path: Path) -> None:
    named = ROW.findall((ROOT / "docs" / "architecture.md").read_text())
    assert len(named) == len(set(named)), "a file is named twice"
    assert set(named) == set(await walk(tmp_path / "ocean.db"))
    assert len(named) <= MOST_FILES
