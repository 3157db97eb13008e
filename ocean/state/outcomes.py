"""The outcomes that a handler may return. Anything else is a failed attempt."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ocean.state.errors import Abort, InvalidValue
from ocean.state.redact import MOST_SCANNED, redacted_text
from ocean.state.tracebacks import checked_place, first_leaf, place_of, text_of
from ocean.state.values import checked_time, shown

LONGEST_MESSAGE = 4_000
LONGEST_SENTENCE = 500
LONGEST_OF_GROUP = 200
MOST_OF_GROUP = 3
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A structured error, as stored with the run and in its event."""

    code: str
    message: str
    details: Any = None
    where: dict[str, Any] | None = None
    """The place of the exception, if it was one: type, file, line, function, and perhaps a traceback."""

    def as_json(self) -> dict[str, Any]:
        """Return the error as JSON, without `where` if there is no place."""
        found = {"code": self.code, "message": self.message, "details": self.details}
        return found if self.where is None else found | {"where": self.where}


ErrorLike = ErrorInfo | str | dict[str, Any] | BaseException


def error_info(error: ErrorLike, code: str = "failed") -> ErrorInfo:
    """Return the structured form of an error."""
    match error:
        case ErrorInfo():
            return error
        case str():
            return ErrorInfo(code, error)
        case BaseException():
            return _raised(error)
        case {"code": str(own), "message": str(message)} if set(error) <= {"code", "message", "details", "where"}:
            return ErrorInfo(own, message, error.get("details"), checked_place(error.get("where")))
        case _:
            raise InvalidValue(f"an error must be a text or {{code, message, details?}}, got {shown(error)}")


def _check_error(error: ErrorLike) -> None:
    if not isinstance(error, BaseException):
        error_info(error)


def _raised(error: BaseException) -> ErrorInfo:
    try:
        own, details = getattr(error, "code", None), getattr(error, "details", None) or None
    except Exception:
        own, details = None, None
    return ErrorInfo(own if isinstance(own, str) else "exception", _message(error), details, place_of(error))


def aborted(error: Abort) -> ErrorInfo:
    """Return the error of a run that its clog has ended."""
    return ErrorInfo(error.code, text_of(error) or "aborted", error.details, place_of(error))


def _message(error: BaseException) -> str:
    """Return an exception's text for storage, without what looks like a secret. A group names its first exceptions."""
    text = redacted_text(text_of(error), None)[:LONGEST_MESSAGE]
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        leaves = map(first_leaf, error.exceptions[:MOST_OF_GROUP])
        text = "; ".join([text, *(_message(each)[:LONGEST_OF_GROUP] for each in leaves)])
    return text


def sentence_of(error: Mapping[str, Any] | None) -> str:
    """Return a stored error with its place, in one line: `ValueError: no such card, at shop.py:41 in charge`."""
    error = error or {}
    code, message = error.get("code"), str(error.get("message"))[:MOST_SCANNED]
    where = error.get("where") or {}
    has_type = message.startswith(str(where.get("type", "-")).rpartition(".")[2])
    text = message if has_type or code in ("exception", "failed") else f"{plain_code(str(code))}: {message}"
    text = redacted_text(one_line(text), LONGEST_SENTENCE)
    place = place_text(error)
    return f"{text}, at {place}" if place else text


def one_line(text: str) -> str:
    """Return the text without line breaks and control characters: in a log it must not look like several lines."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))


def plain_code(code: str) -> str:
    """Return the code if it looks like one, else "other": a clog can choose any text."""
    return code if CODE.fullmatch(code) else "other"


def place_text(error: Mapping[str, Any] | None) -> str | None:
    """Return the place of a stored error as `shop.py:41 in charge`; None if it has none."""
    match (error or {}).get("where"):
        case {"file": file, "line": line, "function": function}:
            return one_line(f"{file}:{line} in {function}")
        case _:
            return None


def note_of(error: Mapping[str, Any] | None) -> str | None:
    """Return the place of a stored error with its traceback, as a note for an exception; None if it has no place."""
    place = place_text(error)
    if error is None or place is None:
        return None
    text = error["where"].get("traceback")
    return f"raised at {place}:\n{text}" if text else f"raised at {place}"


@dataclass(frozen=True, slots=True)
class Ok:
    """The tick is done: the run is idle until the next signal, or waiting if a timer is set."""


@dataclass(frozen=True, slots=True)
class Done:
    """The run ends done; `output` is stored."""

    output: Any = None


@dataclass(frozen=True, slots=True)
class Continue:
    """There is more to do: the next tick gets `input`, before anything in the inbox."""

    input: Any = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a time, a timer or a signal, whichever comes first."""

    until: int | None = None
    for_ms: int | None = None

    def __post_init__(self) -> None:
        if (self.until is None) == (self.for_ms is None):
            raise InvalidValue(
                "Wait needs either until=<ms since 1970> or for_ms=<ms>; to wait for a signal, return Ok()"
            )
        checked_time(self.until if self.for_ms is None else self.for_ms, "Wait")

    def wake_at(self, now: int) -> int:
        """Return when a wait that begins now is over."""
        return self.until if self.until is not None else now + (self.for_ms or 0)


@dataclass(frozen=True, slots=True)
class Retry:
    """This attempt failed: none of its effects are committed, and the tick is called again after the back-off."""

    error: ErrorLike
    after_ms: int | None = None

    def __post_init__(self) -> None:
        _check_error(self.error)
        if self.after_ms is not None:
            checked_time(self.after_ms, "Retry.after_ms")


@dataclass(frozen=True, slots=True)
class Failed:
    """The run ends failed, without another attempt."""

    error: ErrorLike

    def __post_init__(self) -> None:
        _check_error(self.error)


Outcome = Ok | Done | Continue | Wait | Retry | Failed


def outcome_name(outcome: Outcome) -> str:
    """Return the name of an outcome in events and results: `ok`, `done`, …"""
    return type(outcome).__name__.lower()
