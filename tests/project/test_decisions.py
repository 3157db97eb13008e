"""docs/decisions: every page has a context, a choice and a price, fits on one page, and is in the list."""

import re
from pathlib import Path

import pytest

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
PAGES = sorted(DECISIONS.glob("0*.md"))
LONGEST = 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_decision_has_context_choice_and_price_on_one_page(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= LONGEST
    assert lines[0].startswith("# ")
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert [heading for heading in headings if heading != "Rejected"] == ["Context", "Choice", "Price"]


def test_the_list_has_every_decision_in_order_under_its_own_title() -> None:
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    titles = [(page.read_text().splitlines()[0].removeprefix("# "), page.name) for page in PAGES]
    assert [(title, name) for _, title, name in listed] == titles
    assert [int(number) for number, _, _ in listed] == [int(page.name[:4]) for page in PAGES]
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))
