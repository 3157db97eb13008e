"""Outcomes as JSON, `{"type": "done", "output": …}` and five others: sent by workers, shown by dry runs."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, model_validator

from ocean.http.framework.parsing import Body, Whole
from ocean.http.framework.responses import record
from ocean.state.dry_run_result import DryRun
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait, error_info, outcome_name
from ocean.state.tracebacks import checked_place


class ErrorBody(Body):
    code: str
    message: str
    details: Any = None
    where: dict[str, Any] | None = None

    def as_info(self) -> ErrorInfo:
        """Return the error as the kernel has it."""
        return ErrorInfo(self.code, self.message, self.details, checked_place(self.where))


def _shape(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "object" if isinstance(value, dict | ErrorBody) else None


ErrorField = Annotated[
    Annotated[str, Tag("text")] | Annotated[ErrorBody, Tag("object")],
    Discriminator(
        _shape,
        custom_error_type="error_shape",
        custom_error_message="an error must be a string, or an object with code, message and optionally details",
    ),
]


def _error(given: str | ErrorBody) -> str | ErrorInfo:
    return given if isinstance(given, str) else given.as_info()


class OkBody(Body):
    type: Literal["ok"]

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return Ok()


class DoneBody(Body):
    type: Literal["done"]
    output: Any = None

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return Done(self.output)


class ContinueBody(Body):
    type: Literal["continue"]
    input: Any = None

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return Continue(self.input)


class WaitBody(Body):
    type: Literal["wait"]
    until: Whole | None = None
    for_ms: Whole | None = None

    @model_validator(mode="after")
    def has_one_time(self) -> "WaitBody":
        """Refuse a wait without a time, or with two."""
        if (self.until is None) == (self.for_ms is None):
            raise ValueError("wait must have either until or forMs; to wait for a signal, complete with ok")
        return self

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return Wait(self.until, self.for_ms)


class RetryBody(Body):
    type: Literal["retry"]
    error: ErrorField
    after_ms: Whole | None = None

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return Retry(_error(self.error), self.after_ms)


class FailedBody(Body):
    type: Literal["failed"]
    error: ErrorField

    def outcome(self) -> Outcome:
        """Return the outcome."""
        return Failed(_error(self.error))


OutcomeBody = OkBody | DoneBody | ContinueBody | WaitBody | RetryBody | FailedBody


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome in the form in which a worker would send it."""
    content: dict[str, Any] = {"type": outcome_name(outcome)} | record(outcome)
    if isinstance(outcome, Retry | Failed):
        content["error"] = error_info(outcome.error).as_json()
    return content


def dry_run_json(shown: DryRun) -> dict[str, Any]:
    """Return the result of a dry run as JSON."""
    content: dict[str, Any] = record(shown)
    return content | {"outcome": None if shown.outcome is None else outcome_json(shown.outcome)}
