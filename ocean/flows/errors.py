"""What a flow can catch, and what puts it away."""

from collections.abc import Mapping
from typing import Any

from ocean.state.errors import ClogError, OceanError


class FlowError(OceanError):
    """What an operation came to, remembered: raised again whenever the flow comes by. Uncaught, the flow fails."""

    code = "flow_error"


class StepFailed(FlowError):
    """A step has used up its attempts. `error` is what the last one raised, as {code, message, details}."""

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
    """A child ended `failed`. `error` is the child's, as {code, message, details}."""

    code = "child_failed"

    def __init__(self, run_id: str, error: Mapping[str, Any]) -> None:
        super().__init__(f"child {run_id} failed: {error['message']}", run_id=run_id, error=dict(error))
        self.run_id = run_id
        self.error = error


class SignalTimeout(FlowError, TimeoutError):
    """No such signal has come in time."""

    code = "signal_timeout"

    def __init__(self, name: str, timeout_ms: int) -> None:
        super().__init__(f"no signal {name!r} came within {timeout_ms} ms", signal=name, timeout_ms=timeout_ms)


class FlowMisused(ClogError):
    """An operation of a flow where it cannot be remembered."""

    code = "flow_misused"


class Suspended(BaseException):
    """The flow is put away here. No `except Exception` takes it; whoever does gets it again from the next operation."""
