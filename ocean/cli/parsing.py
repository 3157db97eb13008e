"""Typed text to values: JSON, durations, times, attributes, run queries. Bad text raises `InvalidValue`."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from ocean import UNSET, InvalidValue, Within
from ocean.cli.options import Selection
from ocean.kernel.run_query import RunQuery
from ocean.state.values import strict_json

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
DURATION = re.compile(r"(\d{1,12})(ms|s|m|h|d|w)")
COMPARISON = re.compile(r"([^=<>]+)(>=|<=|=|>|<)(.*)", re.DOTALL)
SIDES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


def json_input(text: str | None, what: str = "--input") -> Any:
    """Parse JSON text, the file of `@FILE`, or standard input for `-`. Returns `UNSET` for None."""
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
        hint = "; a string needs quotes: '\"text\"'" if where == what else ""
        raise InvalidValue(f"{where} must be JSON: {error}{hint}") from error


def _standard_input(what: str) -> str:
    if sys.stdin is None:
        raise InvalidValue(f"{what}: cannot read standard input: it is closed")
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
    """Parse a duration such as 30s, in milliseconds. `what` names the option in errors."""
    if text is None:
        return None
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidValue(f"{what} must be a duration such as 500ms, 30s, 10m, 2h or 7d, got {text!r}")
    return int(match[1]) * UNITS[match[2]]


def time_at(text: str | None, what: str, now: int, *, ago: bool) -> int | None:
    """Parse a duration before (`ago`) or after now, or an ISO time, which is UTC if it has no offset."""
    if text is None:
        return None
    if DURATION.fullmatch(text.strip()):
        return now + (duration_ms(text, what) or 0) * (-1 if ago else 1)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        example = "10m or 2h (ago)" if ago else "10m or 2h (from now)"
        raise InvalidValue(
            f"{what} must be {example}, or an ISO time such as 2026-01-31T08:00:00Z, got {text!r}"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def scalar(text: str) -> Any:
    """Parse a number, true, false or a quoted string as JSON; return any other text unchanged."""
    try:
        value = strict_json(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def attributes(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Parse the attributes of a new run, each `NAME=VALUE`."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not name or not sign:
            raise InvalidValue(f"--attr must be NAME=VALUE, got {pair!r}")
        if name in found:
            raise InvalidValue(f"--attr must name each attribute once, got {name!r} twice")
        found[name] = scalar(value)
    return found


def attribute_filters(conditions: Sequence[str] | None) -> dict[str, Any]:
    """Parse conditions on attributes. Several values of one name are alternatives; comparisons make one range."""
    equal: dict[str, list[Any]] = {}
    ranges: dict[str, dict[str, Any]] = {}
    for condition in conditions or ():
        match = COMPARISON.fullmatch(condition)
        if match is None:
            raise InvalidValue(f"--attr must be NAME=VALUE, or NAME, one of > >= < <=, and VALUE, got {condition!r}")
        name, sign, value = match[1], match[2], scalar(match[3])
        if sign == "=":
            equal.setdefault(name, []).append(value)
        elif ranges.setdefault(name, {}).setdefault(SIDES[sign], value) is not value:
            raise InvalidValue(f"--attr must have at most one bound with {sign} for {name!r}")
    for name in ranges.keys() & equal.keys():
        raise InvalidValue(f"--attr must have a value or a range for {name!r}, not both")
    return {**equal, **{name: Within(**sides) for name, sides in ranges.items()}}


def run_query(now: int, selection: Selection) -> RunQuery:
    """Return the query of a selection. Options that were not given are left out."""
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
        "end_incomplete": True if selection.end_incomplete else None,
    }
    return cast(RunQuery, {name: value for name, value in query.items() if value is not None})
