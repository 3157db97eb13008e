"""Checks of what callers pass, for verbs and ticks. Each returns the checked value or raises `InvalidValue`."""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from ocean.kernel.store.runs import Request
from ocean.state.errors import InvalidValue
from ocean.state.filters import FeedFilter
from ocean.state.records import Caller
from ocean.state.values import body_hash, checked_id, shown


class Sentinel(Enum):
    UNSET = "unset"
    CLEAR = "clear"


UNSET: Final = Sentinel.UNSET
"""Not given: `create_run` without `input` makes an idle run, while `input=None` is an input."""
CLEAR: Final = Sentinel.CLEAR
"""Written to a row, removes it; `None` would store JSON null."""

MOST_COUNT = 2**53
LONGEST_REQUEST_KEY: Final = 600
"""A key of 256 bytes, prefixed with the name of its actor."""


def request_of(key: str | None, verb: str, body: Any) -> Request | None:
    """Return a request key with the hash of its verb and body; None without a key."""
    return (
        None if key is None else Request(checked_id(key, "request_key", LONGEST_REQUEST_KEY), body_hash([verb, body]))
    )


def optional_id(value: str | None, what: str) -> str | None:
    return None if value is None else checked_id(value, what)


KERNEL_EVENTS: Final = frozenset({"run", "tick", "signal", "timer", "clog", "session", "call", "key", "tool"})
"""The first words of the kernel's own event types."""


def checked_event(type: str) -> str:
    checked_id(type, "an event's type", 128)
    if type.split(".")[0] in KERNEL_EVENTS:
        raise InvalidValue(f"event type {type!r} must not be one of the kernel's: {sorted(KERNEL_EVENTS)}.*")
    return type


def checked_flag(value: bool, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{what} must be True or False, got {shown(value)}")
    return value


def checked_choice(value: str, what: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidValue(f"{what} must be {' or '.join(map(repr, choices))}, got {shown(value)}")
    return value


def checked_caller(caller: Caller | None) -> Caller:
    if caller is None:
        return Caller()
    if not isinstance(caller, Caller):
        raise InvalidValue(f"caller must be a Caller(actor, roles), got {shown(caller)}")
    optional_id(caller.actor, "actor")
    return Caller(caller.actor, checked_names(caller.roles, "roles"))


def checked_count(value: int, what: str, *, least: int = 0, most: int = MOST_COUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        span = f"from {least} to {most}" if most < MOST_COUNT else f"of at least {least}"
        raise InvalidValue(f"{what} must be an integer {span}, got {shown(value)}")
    return value


def checked_limit(limit: int) -> int:
    return checked_count(limit, "limit", least=1, most=1_000)


def checked_names(names: Iterable[str] | None, what: str) -> tuple[str, ...]:
    """Check a list of ids and drop repeated ones. A single string is refused: it would be read as its letters."""
    if names is None or (isinstance(names, tuple) and not names):
        return ()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidValue(f"{what} must be a list of strings, got {shown(names)}")
    return tuple(dict.fromkeys(checked_id(name, f"each of {what}") for name in names))


def feed_filter(
    run_id: str | None,
    session_id: str | None,
    clog_id: str | None,
    types: Iterable[str],
    correlation_id: str | None,
) -> FeedFilter:
    return FeedFilter(
        optional_id(run_id, "run_id"),
        optional_id(session_id, "session_id"),
        optional_id(clog_id, "clog_id"),
        checked_names(types, "types"),
        optional_id(correlation_id, "correlation_id"),
    )
