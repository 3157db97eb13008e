"""What keeps the tree readable, checked: short files and functions, names that exist once, a core of bounded size."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "ocean").rglob("*.py"), *(ROOT / "clogs").rglob("*.py")])
STATEMENTS = sorted((ROOT / "ocean" / "stores" / "sql").rglob("*.sql"))

LONGEST_FILE = 300
LONGEST_FUNCTION = 60
LONGEST_CORE = 8_200

MAY_BE_LONGER = {
    "ocean/http/routes.py": "a list: every route of Ocean's own, in the order of the documentation",
    "ocean/state/errors.py": "a list: every error, with its code, status and what to do",
    "ocean/state/records.py": "a list: every record, field by field",
    "ocean/stores/sql/postgres/0001_kernel.sql": "a migration, which is never edited after its release",
}
"""Files over the limit, with the reason."""


def lengths(files: list[Path]) -> dict[str, int]:
    return {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in files}


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes of these kinds in all sources, each with the file it is in."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, kinds):
                yield str(file.relative_to(ROOT)), node


def test_no_file_is_longer_than_the_limit_without_a_reason() -> None:
    long = {name for name, length in lengths([*SOURCES, *STATEMENTS]).items() if length > LONGEST_FILE}
    assert long == set(MAY_BE_LONGER)


def test_no_function_is_longer_than_the_limit() -> None:
    long = {
        f"{file}:{node.lineno} {node.name}"
        for file, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    }
    assert long == set()


def test_a_class_name_exists_once() -> None:
    homes = defaultdict(list)
    for file, node in nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        homes[node.name].append(file)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_the_core_can_be_read_in_an_afternoon() -> None:
    """`state` and `kernel`, without the verbs: what a newcomer reads first."""
    core = [*(ROOT / "ocean" / "state").glob("*.py"), *(ROOT / "ocean" / "kernel").glob("*.py")]
    core += (ROOT / "ocean" / "kernel" / "store").glob("*.py")
    assert sum(lengths(core).values()) <= LONGEST_CORE


def test_packages_are_at_most_two_levels_below_ocean_and_clogs() -> None:
    deep = [str(file.relative_to(ROOT)) for file in SOURCES if len(file.relative_to(ROOT).parts) > 5]
    assert deep == []
