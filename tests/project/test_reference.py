"""The reference is made from the code: `python -m tests.project.test_reference` writes it."""

import re
from pathlib import Path

import ocean.public
import ocean.testing
from tests.project.reference import undocumented, written

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_the_reference_is_made_from_the_code_as_it_is() -> None:
    assert PAGE.read_text() == written(), "run: python -m tests.project.test_reference"


def test_every_public_name_is_in_it() -> None:
    text = PAGE.read_text()
    listed = {*re.findall(r"^### (\w+)$", text, re.MULTILINE), *re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)}
    assert {*ocean.public.__all__, *ocean.testing.__all__} - listed == set()


def test_it_is_the_same_on_every_machine() -> None:
    assert re.findall(r"0x[0-9a-f]{6,}|<[a-z]+ object|/home/|site-packages", PAGE.read_text()) == []


def test_every_public_name_has_a_docstring() -> None:
    assert undocumented() == []


if __name__ == "__main__":
    PAGE.write_text(written())
