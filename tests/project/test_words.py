"""The project's texts are plain technical English: the words that `tests.project.words` lists are not in them."""

from pathlib import Path

import pytest

from tests.project.words import CHECKED, ROOT, files, found_in

FILES = list(files(ROOT / name for name in CHECKED))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_text_uses_an_avoided_word(file: Path) -> None:
    assert found_in(file) == []


@pytest.mark.parametrize(
    "line",
    [
        "It answers the run.",
        "Whoever asks gets it.",
        "raise ValueError('PostgreSQL has no time: retry')",
        "# what goes along with a commit",
        "Nobody reads it, and it is gone for good.",
    ],
)
def test_the_check_finds_the_words(tmp_path: Path, line: str) -> None:
    (tmp_path / "page.md").write_text(f"# Title\n\n{line}\n")
    assert len(found_in(tmp_path / "page.md")) >= 1
