"""What a handler may answer. Anything else is treated as a failed call."""

from dataclasses import dataclass
from typing import Any

from ocean.state.errors import InvalidValue
from ocean.state.redact import MOST_LOOKED_AT, redacted_text
from ocean.state.values import checked_time, shown


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A structured error, as stored on the run and in its event."""

    code: str
    message: str
    details: Any = None

    def as_json(self) -> dict[str, Any]:
        """As it is stored, and travels."""
        return {"code": self.code, "message": self.message, "details": self.details}


ErrorLike = ErrorInfo | str | dict[str, Any] | BaseException


def error_info(error: ErrorLike, code: str = "failed") -> ErrorInfo:
    match error:
        case ErrorInfo():
            return error
        case str():
            return ErrorInfo(code, error)
        case BaseException():
            own = getattr(error, "code", None)
            details = getattr(error, "details", None) or None
            return ErrorInfo(own if isinstance(own, str) else "exception", _said(error), details)
        case {"code": str(own), "message": str(message)} if set(error) <= {"code", "message", "details"}:
            return ErrorInfo(own, message, error.get("details"))
        case _:
            raise InvalidValue(f"an error is a text or {{code, message, details?}}, got {shown(error)}")


def _said(error: BaseException) -> str:
    """Its text is stored, and was not written to be: what looks like a secret is left out."""
    text = str(error).encode("utf-8", "replace").decode().replace("\x00", "\\0")[:MOST_LOOKED_AT]
    text = redacted_text(text, None)[:4000]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True, slots=True)
class Ok:
    """Done for now: idle until the next signal, or waiting if a timer is set."""


@dataclass(frozen=True, slots=True)
class Done:
    """The run's last word; `output` is kept."""

    output: Any = None


@dataclass(frozen=True, slots=True)
class Continue:
    """More to do: the next tick gets `input`, before anything in the inbox."""

    input: Any = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until a time, a timer or a signal, whichever is first."""

    until: int | None = None
    for_ms: int | None = None

    def __post_init__(self) -> None:
        if (self.until is None) == (self.for_ms is None):
            raise InvalidValue(
                "Wait takes either until=<ms since 1970> or for_ms=<ms>; to wait for a signal, answer Ok()"
            )
        checked_time(self.until if self.for_ms is None else self.for_ms, "Wait")

    def wake_at(self, now: int) -> int:
        """When the wait is over, if it begins now."""
        return self.until if self.until is not None else now + (self.for_ms or 0)


@dataclass(frozen=True, slots=True)
class Retry:
    """This call failed: nothing of it is committed, and the same tick is called again after the back-off."""

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
    return type(outcome).__name__.lower()
