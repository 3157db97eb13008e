"""The exceptions of a flow: those it can catch, and the one that suspends it."""

from collections.abc import Mapping
from typing import Any, Literal

from ocean.state.errors import ClogError, OceanError


class FlowError(OceanError):
    """An operation failed. The error is stored, and raised again at each replay. Uncaught, it fails the flow."""

    code = "flow_error"


class StepFailed(FlowError):
    """A step has used up its attempts. `error` is that of the last attempt, as {code, message, details}."""

    code = "step_failed"

    def __init__(self, step: str, attempts: int, error: Mapping[str, Any]) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(
            f"step {step!r} failed {times}: {error['message']}", step=step, attempts=attempts, error=dict(error)
        )
        self.step = step
        self.attempts = attempts
        self.error = error


class ChildFailed(FlowError):
    """A child ended `failed`. `error` is the child's error, as {code, message, details}."""

    code = "child_failed"

    def __init__(self, run_id: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"child {run_id} failed: {error['message']}", run_id=run_id, error=dict(error))
        self.run_id = run_id
        self.error = error


class SignalTimeout(FlowError, TimeoutError):
    """No matching signal arrived in time."""

    code = "signal_timeout"

    def __init__(self, name: str, timeout_ms: int) -> None:
        super().__init__(f"no signal {name!r} arrived within {timeout_ms} ms", signal=name, timeout_ms=timeout_ms)


class FlowMisused(ClogError):
    """An operation of a flow was used where it cannot be stored in the journal."""

    code = "flow_misused"


CancelReason = Literal["cancel", "parent", "deadline", "exhausted"]


class Cancelled(BaseException):
    """The run was ended from outside while the flow waited here. `except Exception` does not catch this.

    `reason` is "cancel", "parent" (its parent has ended), "deadline" or "exhausted" (its attempts). `error` is the
    error with which the run ends, as {code, message, details}. What `except` and `finally` do is stored like everything
    else in a flow. The run ends as failed whatever they do, so let this exception leave the function.
    """

    def __init__(self, reason: CancelReason, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.reason = reason
        self.error = error


class Suspended(BaseException):
    """The flow is suspended. `except Exception` does not catch this; if caught, the next operation raises it again."""
