"""The facts of a tick that a clog can read without a tool, and what all tools of a tick share."""

from typing import Any

from ocean.clog.clog import Clog
from ocean.kernel.arguments import checked_event
from ocean.kernel.call_context import CallContext
from ocean.state.dry_run_result import DryStop
from ocean.state.effects import Effects, NewEvent
from ocean.state.errors import ClogError
from ocean.state.records import Caller, ChildEnd, Input, InputKind, Lock, RunInfo, RunStatus
from ocean.state.values import encode
from ocean.tools.builtin import TOOLS
from ocean.tools.registry import check_allowed


class TickFacts:
    def __init__(self, context: CallContext, clog: Clog, depth: int = 0, effects: Effects | None = None) -> None:
        self._context = context
        self._clog = clog
        self._depth = depth
        # A nested call has its own buffer: if it fails, nothing of it is kept, whatever runs concurrently.
        self._effects = context.effects if effects is None else effects
        self._wrote: set[str] = set()

    def _use(self, tool: str) -> CallContext:
        """Check that the call is still running and the clog may use the tool."""
        self._context.check_alive()
        check_allowed(self._clog, tool)
        self._context.registry.toolset.check_not_denied(tool)
        if self._context.is_dry and TOOLS[tool].reaches_out:
            self._context.stop(DryStop("tool", tool, self.clog_id))
        return self._context

    def _lock(self, what: str) -> Lock:
        if self._context.lock is None:
            raise ClogError(f"{what} needs a tick; a direct call has none")
        return self._context.lock

    def _event(self, type: str, payload: Any) -> NewEvent:
        return NewEvent(checked_event(type), encode(payload, "payload"), self.clog_id)

    @property
    def run_id(self) -> str:
        """The id of the run that this is a tick of, or a call on."""
        return self.run.run_id

    @property
    def session_id(self) -> str:
        """The run's session, or the session of a direct call."""
        return self._context.session_id

    @property
    def clog_id(self) -> str:
        """The clog whose code is called."""
        return self._clog.clog_id

    @property
    def run(self) -> RunInfo:
        """The run as it was when this call began."""
        if self._context.run is None:
            raise ClogError("this direct call was made on a clog, not on a run")
        return self._context.run

    @property
    def has_run(self) -> bool:
        """False in a direct call on a clog."""
        return self._context.run is not None

    @property
    def number(self) -> int:
        """The tick's number, the same in all its calls; 0 in a direct call."""
        return self._context.tick

    @property
    def attempt(self) -> int:
        """How many calls have failed since the run last made progress; in a last tick, how many of its own calls."""
        return self.run.attempt if self.run.ending is None else self.run.end_attempt

    @property
    def cancel_requested(self) -> bool:
        """Whether the run is to end while this call is at work: a step in flight may finish, no other begins."""
        return self._context.is_ending

    @property
    def call_number(self) -> int:
        """Which call of this tick it is: 1, and higher after a crash, a failure or a conflict."""
        return self._context.call

    @property
    def reason(self) -> str:
        """created | signal | timer | wake | continue | child | cancel | deadline | exhausted, or `call`."""
        return self._context.reason

    @property
    def inputs(self) -> tuple[Input, ...]:
        """One input, or with `inputs="all"` all that are due; none when a wait ran out."""
        return self._context.inputs

    @property
    def input(self) -> Any:
        """The body of the first input; None if there is none."""
        return self._context.inputs[0].body if self._context.inputs else None

    @property
    def signal_id(self) -> str | None:
        """The id of the signal that is the first input, if it has one."""
        return self._context.inputs[0].signal_id if self._context.inputs else None

    @property
    def timer(self) -> str | None:
        """The name of the timer that is the first input, if it is one."""
        return self._context.inputs[0].timer if self._context.inputs else None

    @property
    def child(self) -> ChildEnd | None:
        """The end of a child run, if that is this tick's first input."""
        if not self._context.inputs or self._context.inputs[0].kind is not InputKind.CHILD:
            return None
        body = self._context.inputs[0].body
        return ChildEnd(body["run_id"], RunStatus(body["status"]), body["output"], body["error"])

    @property
    def now(self) -> int:
        """When this call began."""
        return self._context.now

    @property
    def deadline(self) -> int:
        """When this call is cancelled if it has not ended."""
        return self._context.deadline

    @property
    def elapsed_ms(self) -> int:
        """The time since this call began."""
        return max(self._context.clock.now() - self._context.now, 0)

    @property
    def idempotency_key(self) -> str:
        """The same in every call of this tick: pass it to external services."""
        return self._context.seed

    @property
    def caller(self) -> Caller:
        """The actor and roles of a direct call; in a tick, the actor of its first input."""
        return self._context.caller
