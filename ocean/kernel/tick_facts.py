"""What a clog can know of its tick without asking anybody."""

from typing import Any

from ocean.clog.clog import Clog
from ocean.kernel.call_context import Scene
from ocean.state.errors import ClogError
from ocean.state.records import Caller, ChildEnd, Input, InputKind, RunInfo, RunStatus


class TickFacts:
    def __init__(self, scene: Scene, clog: Clog) -> None:
        self._scene = scene
        self._clog = clog

    @property
    def run_id(self) -> str:
        """The run that this is a tick of, or a call on."""
        return self.run.run_id

    @property
    def session_id(self) -> str:
        """The run's session, or the one that a direct call was made in."""
        return self._scene.session_id

    @property
    def clog_id(self) -> str:
        """The clog whose code is called."""
        return self._clog.clog_id

    @property
    def run(self) -> RunInfo:
        """The run as it was when this call began."""
        if self._scene.run is None:
            raise ClogError("this direct call was made on a clog, not on a run")
        return self._scene.run

    @property
    def has_run(self) -> bool:
        """False in a direct call on a clog."""
        return self._scene.run is not None

    @property
    def number(self) -> int:
        """The tick's number, the same over all its calls; 0 in a direct call."""
        return self._scene.tick

    @property
    def attempt(self) -> int:
        """How many calls of this run have failed since it last made progress."""
        return self.run.attempt

    @property
    def call_number(self) -> int:
        """Which call of this tick it is: 1, and higher after a crash, a failure or a conflict."""
        return self._scene.call

    @property
    def reason(self) -> str:
        """created | signal | timer | wake | continue | child | cancel | deadline | exhausted, or `call`."""
        return self._scene.reason

    @property
    def inputs(self) -> tuple[Input, ...]:
        """One input, or with `inputs="all"` all that are due; none when a wait ran out."""
        return self._scene.inputs

    @property
    def input(self) -> Any:
        """The body of the first input; None if there is none."""
        return self._scene.inputs[0].body if self._scene.inputs else None

    @property
    def signal_id(self) -> str | None:
        """The id of the signal that is the first input, if it has one."""
        return self._scene.inputs[0].signal_id if self._scene.inputs else None

    @property
    def timer(self) -> str | None:
        """The name of the timer that is the first input, if it is one."""
        return self._scene.inputs[0].timer if self._scene.inputs else None

    @property
    def child(self) -> ChildEnd | None:
        """How the child ended whose end is this tick's first input."""
        if not self._scene.inputs or self._scene.inputs[0].kind is not InputKind.CHILD:
            return None
        body = self._scene.inputs[0].body
        return ChildEnd(body["run_id"], RunStatus(body["status"]), body["output"], body["error"])

    @property
    def now(self) -> int:
        """When this call began."""
        return self._scene.now

    @property
    def deadline(self) -> int:
        """When this call is stopped if it has not ended."""
        return self._scene.deadline

    @property
    def elapsed_ms(self) -> int:
        """How long this call has been at work."""
        return max(self._scene.clock.now() - self._scene.now, 0)

    @property
    def idempotency_key(self) -> str:
        """Stable over every call of this tick: hand it to the outside world."""
        return self._scene.seed

    @property
    def caller(self) -> Caller:
        """Who made the direct call: actor and roles; nobody in a tick."""
        return self._scene.caller
