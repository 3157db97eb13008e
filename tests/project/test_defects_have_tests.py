"""Every defect of the source document and of its first implementation is named by a test that would find it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
DEFECTS = [
    f"{letter}{number}"
    for letter, last in {"D": 12, "S": 8, "L": 10, "R": 10, "O": 11}.items()
    for number in range(1, last + 1)
]


def _docstrings_of_tests() -> Iterator[str]:
    for path in TESTS.rglob("test_*.py"):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield ast.get_docstring(node) or ""


@pytest.fixture(scope="module")
def named() -> set[str]:
    """The ids before the colon of every test's docstring: `D5, S6: …`."""
    heads = (re.match(r"((?:[DSLRO]\d+(?:, )?)+):", text) for text in _docstrings_of_tests())
    return {defect for head in heads if head for defect in head[1].split(", ")}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_known_defect_has_a_test(defect: str, named: set[str]) -> None:
    assert defect in named, f"no test's docstring begins with '{defect}:'"


def test_a_docstring_names_no_defect_that_is_not_listed(named: set[str]) -> None:
    assert named <= set(DEFECTS)
