"""Named SQL: each block of a `.sql` file is a name, a sentence and a statement."""

import re
from importlib import resources

_BLOCK = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def load_queries(file_name: str) -> dict[str, str]:
    text = resources.files("ocean.stores").joinpath("sql", file_name).read_text()
    found = [(match[1], match[2].strip().rstrip(";")) for match in _BLOCK.finditer(text)]
    queries = dict(found)
    if len(queries) != len(found):
        raise ValueError(f"{file_name} names a query twice")
    return queries
