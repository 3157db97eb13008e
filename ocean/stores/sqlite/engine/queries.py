"""Named SQL: each block of a `.sql` file is a name, optionally a comment, and a statement."""

import re
from importlib import resources

_BLOCK = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def load_queries(folder: str) -> dict[str, str]:
    """Return the statements of all files in `sql/<folder>` by name."""
    queries: dict[str, str] = {}
    files = resources.files("ocean.stores").joinpath("sql", folder).iterdir()
    for file in sorted(files, key=lambda file: file.name):
        for match in _BLOCK.finditer(file.read_text()):
            if match[1] in queries:
                raise ValueError(f"a query name must be unique in sql/{folder}, got {match[1]} again in {file.name}")
            queries[match[1]] = match[2].strip().rstrip(";")
    return queries
