"""A wrong name deserves the near one."""

from collections.abc import Iterable
from difflib import get_close_matches


def near_name(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"
