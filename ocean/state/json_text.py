"""JSON text from outside, read strictly: what says one thing twice, or is no JSON to others, is refused."""

import json
from typing import Any


def strict_json(text: str) -> Any:
    """The value, or a `ValueError` that says what is wrong."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refused_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has {name!r} twice")
            seen.add(name)
    return made


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
