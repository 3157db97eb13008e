"""The walk in docs/architecture.md names every file that a signal passes, and no other."""

import re
from pathlib import Path

import pytest

from tests.project.walk import ROOT, walk

pytestmark = pytest.mark.anyio

MOST_FILES = 63
"""71 before files were joined and a coordinator replaced five ways to poke. Fewer is better; more needs a reason: 63
since a poke also looks for instances whose process is gone."""
ROW = re.compile(r"^\| `(ocean/[\w/]+\.py)` \|", re.MULTILINE)


async def test_the_page_names_the_files_that_a_signal_passes(tmp_path: Path) -> None:
    named = ROW.findall((ROOT / "docs" / "architecture.md").read_text())
    assert len(named) == len(set(named)), "a file is named twice"
    assert set(named) == set(await walk(tmp_path / "ocean.db"))
    assert len(named) <= MOST_FILES
