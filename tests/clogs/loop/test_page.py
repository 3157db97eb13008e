"""The page on the Loop API names an existing test for every section of the document and every promise."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(tests/clogs/loop/test_\w+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_exists_and_every_section_has_one() -> None:
    named = NAMED.findall((ROOT / "docs" / "loop-api.md").read_text())
    there = {path: names_in(path) for path, _ in named}
    assert [name for path, name in named if name not in there[path]] == []
    sections = names_in("tests/clogs/loop/test_document.py") | names_in("tests/clogs/loop/test_document_examples.py")
    assert sections - {name for _, name in named} == {"test_the_closed_sets_are_the_documents"}


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}
