"""The outcomes that a handler may return. Anything else is a failed attempt."""

from dataclasses import dataclass
from typing import Any

from ocean.state.errors import InvalidValue
from ocean.state.redact import MOST_SCANNED, redacted_text
from ocean.state.values import checked_time, shown


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A structured error, as stored with the run and in its event."""

    code: str
    message: str
    details: Any = None

    def as_json(self) -> dict[str, Any]:
        """Return the error as JSON."""
        return {"code": self.code, "message": self.message, "details": self.details}


ErrorLike = ErrorInfo | str | dict[str, Any] | BaseException


def error_info(error: ErrorLike, code: str = "failed") -> ErrorInfo:
    """Return the structured form of an error."""
    match error:
        case ErrorInfo():
            return error
        case str():
            return ErrorInfo(code, error)
        case BaseException():
            own = getattr(error, "code", None)
            details = getattr(error, "details", None) or None
            return ErrorInfo(own if isinstance(own, str) else "exception", _message(error), details)
        case {"code": str(own), "message": str(message)} if set(error) <= {"code", "message", "details"}:
            return ErrorInfo(own, message, error.get("details"))
        case _:
            raise InvalidValue(f"an error must be a text or {{code, message, details?}}, got {shown(error)}")


def _message(error: BaseException) -> str:
    """Return the exception's text for storage, without what looks like a secret."""
    text = str(error).encode("utf-8", "replace").decode().replace("\x00", "\\0")[:MOST_SCANNED]
    text = redacted_text(text, None)[:4000]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


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
        error_info(self.error)
        if self.after_ms is not None:
            checked_time(self.after_ms, "Retry.after_ms")


@dataclass(frozen=True, slots=True)
class Failed:
    """The run ends failed, without another attempt."""

    error: ErrorLike

    def __post_init__(self) -> None:
        error_info(self.error)


Outcome = Ok | Done | Continue | Wait | Retry | Failed


def outcome_name(outcome: Outcome) -> str:
    """Return the name of an outcome in events and results: `ok`, `done`, …"""
    return type(outcome).__name__.lower()
