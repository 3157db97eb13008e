"""What people type, made into values: JSON, durations, times, attributes. All refusals are `InvalidValue`."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from ocean import UNSET, InvalidValue, Within
from ocean.cli.options import Selection
from ocean.kernel.run_query import RunQuery
from ocean.state.json_text import strict_json

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DURATION = re.compile(r"(\d{1,12})(ms|s|m|h|d|w)")
COMPARISON = re.compile(r"([^=<>]+)(>=|<=|=|>|<)(.*)", re.DOTALL)
SIDES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def json_input(text: str | None, what: str = "--input") -> Any:
    """`UNSET` if not given. `@FILE` and `-` are read."""
    if text is None:
        return UNSET
    where = what
    if text == "-":
        text, where = _standard_input(what), f"{what} (standard input)"
    elif text.startswith("@"):
        text, where = _read(text[1:], what), f"{what} ({text[1:]})"
    try:
        return strict_json(text)
    except ValueError as error:
        hint = "; a string needs its quotes: '\"text\"'" if where == what else ""
        raise InvalidValue(f"{where} is no JSON: {error}{hint}") from error


def _standard_input(what: str) -> str:
    if sys.stdin is None:
        raise InvalidValue(f"{what} is to be read from standard input, which is closed")
    try:
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{what}: cannot read standard input: {error}") from error


def _read(name: str, what: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{what}: cannot read {name!r}: {getattr(error, 'strerror', None) or error}") from error


def duration_ms(text: str | None, what: str) -> int | None:
    if text is None:
        return None
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidValue(f"{what} is a duration like 500ms, 30s, 10m, 2h or 7d, got {text!r}")
    return int(match[1]) * UNITS[match[2]]


def time_at(text: str | None, what: str, now: int, *, ago: bool) -> int | None:
    """A duration before or after now, or an ISO time; one without an offset is UTC."""
    if text is None:
        return None
    if DURATION.fullmatch(text.strip()):
        return now + (duration_ms(text, what) or 0) * (-1 if ago else 1)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        example = "10m or 2h (ago)" if ago else "10m or 2h (from now)"
        raise InvalidValue(f"{what} is {example}, or an ISO time like 2026-01-31T08:00:00Z, got {text!r}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def scalar(text: str) -> Any:
    """Numbers, true, false and quoted strings as JSON has them; any other text is itself."""
    try:
        value = strict_json(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def attributes(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Of a new run: `NAME=VALUE`."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not name or not sign:
            raise InvalidValue(f"--attr is NAME=VALUE, got {pair!r}")
        if name in found:
            raise InvalidValue(f"--attr gives {name!r} twice")
        found[name] = scalar(value)
    return found


def attribute_filters(conditions: Sequence[str] | None) -> dict[str, Any]:
    """Equal values of one name are alternatives; its comparisons make one range."""
    equal: dict[str, list[Any]] = {}
    ranges: dict[str, dict[str, Any]] = {}
    for condition in conditions or ():
        match = COMPARISON.fullmatch(condition)
        if match is None:
            raise InvalidValue(f"--attr is NAME=VALUE, or NAME with >, >=, < or <= and a VALUE, got {condition!r}")
        name, sign, value = match[1], match[2], scalar(match[3])
        if sign == "=":
            equal.setdefault(name, []).append(value)
        elif ranges.setdefault(name, {}).setdefault(SIDES[sign], value) is not value:
            raise InvalidValue(f"--attr gives {name!r} two bounds with {sign}")
    for name in ranges.keys() & equal.keys():
        raise InvalidValue(f"--attr gives {name!r} a value and a range; leave one of them out")
    return {**equal, **{name: Within(**sides) for name, sides in ranges.items()}}


def run_query(now: int, selection: Selection) -> RunQuery:
    """The query that a selection means. An option that was not given is left out."""
    query: dict[str, Any] = {
        "clog_id": selection.clog or None,
        "status": selection.status or None,
        "session_id": selection.session or None,
        "parent_run_id": selection.parent or None,
        "attributes": attribute_filters(selection.attr) or None,
        "created_from": time_at(selection.created_since, "--created-since", now, ago=True),
        "created_until": time_at(selection.created_until, "--created-until", now, ago=True),
        "ended_from": time_at(selection.ended_since, "--ended-since", now, ago=True),
        "ended_until": time_at(selection.ended_until, "--ended-until", now, ago=True),
    }
    return cast(RunQuery, {name: value for name, value in query.items() if value is not None})
