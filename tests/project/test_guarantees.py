"""docs/guarantees.md: every guarantee names its stores and its tests, and these tests exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.simulation import final_checks, run_checks

ROOT = Path(__file__).parents[2]
OF_CLOGS = (ROOT / "docs" / "guarantees-of-clogs.md").read_text()
PAGE = (ROOT / "docs" / "guarantees.md").read_text() + OF_CLOGS
PROMISES, _, REST = PAGE.partition("## How the guarantees are tested")
PROMISES += OF_CLOGS
GUARANTEE = re.compile(r"^\*\*(\d+)\. (.*?)(?=^\*\*|^## |\Z)", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"^\*\*(.*?)(?=^\*\*|^## |\Z)", re.MULTILINE | re.DOTALL)
"""A guarantee, or one of the unnumbered sentences on tools and clogs."""
FOLDED = re.compile(r"^<details><summary>Tests</summary><ul>(.*)</ul></details>$", re.MULTILINE)
NAMED = re.compile(r"(?:`|<code>)(tests/[\w/]+\.py)::(\w+)(?:`|</code>)")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_guarantees_are_numbered_in_order() -> None:
    numbers = [int(number) for number, _ in GUARANTEE.findall(PROMISES)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 40


def test_every_promise_has_its_tests_folded_below_it() -> None:
    promises = PROMISE.findall(PROMISES)
    assert len(promises) > len(GUARANTEE.findall(PROMISES))
    assert [text.splitlines()[0] for text in promises if len(FOLDED.findall(text)) != 1] == []
    assert [text.splitlines()[0] for text in promises if not NAMED.findall("".join(FOLDED.findall(text)))] == []


@pytest.mark.parametrize(("number", "text"), GUARANTEE.findall(PROMISES), ids=lambda part: part[:2].strip())
def test_a_guarantee_names_its_stores_and_its_tests(number: str, text: str) -> None:
    assert NAMED.findall(text), f"guarantee {number} has no test"
    assert re.search(r"Both|SQLite|PostgreSQL|both", text), f"guarantee {number} does not name its stores"


ON_BOTH = ("conformance", "lifecycle", "races", "crash", "linearizability", "flows")
"""Folders whose tests run on SQLite and on PostgreSQL, with few exceptions."""


@pytest.mark.parametrize(("number", "text"), GUARANTEE.findall(PROMISES), ids=lambda part: part[:2].strip())
def test_a_guarantee_for_both_stores_has_tests_on_both(number: str, text: str) -> None:
    folders = {path.split("/")[1] for path, _ in NAMED.findall(text)}
    is_on_both = bool(folders & set(ON_BOTH)) or {"postgres"} < folders
    assert is_on_both or "Both" not in text, f"guarantee {number} has tests in {folders} only"


def test_every_test_that_the_page_names_exists() -> None:
    missing = [f"{path}::{name}" for path, name in NAMED.findall(PAGE) if name not in names_in(path)]
    assert missing == []


def test_a_check_that_the_page_names_is_made_for_every_seed() -> None:
    files = ("tests/simulation/final_checks.py", "tests/simulation/run_checks.py")
    named = {name for path, name in NAMED.findall(PAGE) if path in files}
    made = {check.__name__ for check in (*final_checks.CHECKS, *run_checks.CHECKS)}
    assert named
    assert named <= made


def test_the_page_lists_what_is_not_promised() -> None:
    assert REST.partition("## What is not promised")[2].count("\n- **") > 5
