"""Outcomes as a worker says them: `{"type": "done", "output": …}` and the five others."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, model_validator

from ocean.http.framework.bodies import Body, Whole
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait


class ErrorBody(Body):
    code: str
    message: str
    details: Any = None

    def as_info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.details)


def _shape(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "object" if isinstance(value, dict | ErrorBody) else None


ErrorSaid = Annotated[
    Annotated[str, Tag("text")] | Annotated[ErrorBody, Tag("object")],
    Discriminator(
        _shape,
        custom_error_type="error_shape",
        custom_error_message="an error is a text, or an object with code, message and perhaps details",
    ),
]


def _error(said: str | ErrorBody) -> str | ErrorInfo:
    return said if isinstance(said, str) else said.as_info()


class OkBody(Body):
    type: Literal["ok"]

    def outcome(self) -> Outcome:
        return Ok()


class DoneBody(Body):
    type: Literal["done"]
    output: Any = None

    def outcome(self) -> Outcome:
        return Done(self.output)


class ContinueBody(Body):
    type: Literal["continue"]
    input: Any = None

    def outcome(self) -> Outcome:
        return Continue(self.input)


class WaitBody(Body):
    type: Literal["wait"]
    until: Whole | None = None
    for_ms: Whole | None = None

    @model_validator(mode="after")
    def says_when(self) -> "WaitBody":
        if (self.until is None) == (self.for_ms is None):
            raise ValueError("wait takes either until or forMs; to wait for a signal, answer ok")
        return self

    def outcome(self) -> Outcome:
        return Wait(self.until, self.for_ms)


class RetryBody(Body):
    type: Literal["retry"]
    error: ErrorSaid
    after_ms: Whole | None = None

    def outcome(self) -> Outcome:
        return Retry(_error(self.error), self.after_ms)


class FailedBody(Body):
    type: Literal["failed"]
    error: ErrorSaid

    def outcome(self) -> Outcome:
        return Failed(_error(self.error))


OutcomeBody = OkBody | DoneBody | ContinueBody | WaitBody | RetryBody | FailedBody
