"""What can go wrong with a model, and what a tick answers then."""

from typing import Any

from ocean import ErrorInfo, Failed, Retry


class ModelError(Exception):
    """A model did not answer. `is_passing`: the same request may succeed later, at the soonest after `after_ms`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        is_passing: bool = False,
        after_ms: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_passing = is_passing
        self.after_ms = after_ms
        self.details = details

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.details)

    @property
    def outcome(self) -> Retry | Failed:
        """What passes is tried again, when the model says or the run's policy does; the rest fails the run."""
        return Retry(self.info, after_ms=self.after_ms) if self.is_passing else Failed(self.info)
