"""The documentation site: the link checker finds what is broken, and every page of docs/ is in the navigation."""

import re
from pathlib import Path

import pytest

from tests.project.site_links import problems

ROOT = Path(__file__).parents[2]
GOOD = '<h1 id="top">A</h1><a href="b/c.html#there">C</a><a href="#top">top</a><a href="https://example.org/x">x</a>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.html").write_text('<h2 id="there">C</h2><a href="../index.html">A</a><a href="..">A</a>')
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "style.css").write_text("a { background: url(data:image/svg+xml;base64,AA) }")
    return tmp_path


def test_a_site_whose_links_all_lead_somewhere_has_no_problems(site: Path) -> None:
    assert problems(site) == []


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ('<a href="b/d.html">D</a>', "index.html: b/d.html: no such page"),
        ('<a href="../outside.html">D</a>', "index.html: ../outside.html: no such page"),
        ('<a href="b/c.html#here">C</a>', "index.html: b/c.html#here: no such anchor"),
        ('<a href="#here">C</a>', "index.html: #here: no such anchor"),
        ('<img src="missing.svg">', "index.html: missing.svg: no such file"),
        ('<script src="https://cdn.example/a.js"></script>', "index.html: loads https://cdn.example/a.js"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "index.html: loads //fonts.example/a.css"),
        ('<p style="background: url(https://a.example/b.png)">', "index.html: loads https://a.example/b.png"),
    ],
)
def test_what_is_broken_or_loaded_from_elsewhere_is_found(site: Path, added: str, problem: str) -> None:
    (site / "index.html").write_text(GOOD + added)
    assert problems(site) == [problem]


def test_a_style_sheet_that_loads_from_elsewhere_is_found(site: Path) -> None:
    (site / "style.css").write_text('@import "https://fonts.example/a.css"; b { src: url(//fonts.example/b.woff2) }')
    assert problems(site) == [
        "style.css: loads https://fonts.example/a.css",
        "style.css: loads //fonts.example/b.woff2",
    ]


def test_a_folder_without_pages_is_a_problem(tmp_path: Path) -> None:
    assert len(problems(tmp_path)) == 1


def test_ci_builds_the_site_strictly_and_checks_it() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    assert "mkdocs build --strict" in run
    assert f"python -m {problems.__module__} " in run


def test_every_page_is_in_the_navigation_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/*-]+\.md)", text)
    expanded = [
        str(page.relative_to(ROOT / "docs"))
        for entry in listed
        for page in sorted((ROOT / "docs").glob(entry))
        if "*" not in entry or page.name != "README.md"
    ]
    assert sorted(expanded) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_the_list_of_documents_has_the_groups_and_the_order_of_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("Home: README.md")[2]
    overview = (ROOT / "docs" / "README.md").read_text().partition("## Examples")[0]
    listed = re.findall(r"^##+ (.+)$|^\| \[.+?\]\((?!\.\.)(.+?)\)", overview, re.MULTILINE)
    shown = re.findall(r"- ([^:\n]+):$|([\w/-]+\.md)", navigation, re.MULTILINE)
    assert shown == listed
