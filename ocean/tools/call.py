"""One call of an author's tool: its time limit, its credentials, what it gives away, the event that tells of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import BaseModel

from ocean.kernel.invoke import invoke
from ocean.kernel.steps import remembered
from ocean.state.dry_run_result import DryStop
from ocean.state.errors import (
    ApprovalNeeded,
    InvalidValue,
    LockLost,
    OceanError,
    StoreBusy,
    StoreFailed,
    ToolDenied,
    ToolFailed,
    ToolNotAllowed,
    UnknownTool,
)
from ocean.state.outcomes import ErrorInfo
from ocean.state.redact import HIDDEN, redacted, redacted_text
from ocean.state.values import decode, encode
from ocean.tools.author import Tool, ToolCall
from ocean.tools.credentials import Scrubber, resolved, revealing

if TYPE_CHECKING:
    from ocean.kernel.tick import Tick

CALLED = "tool.called"
MOST_SAID = 2_000
MOST_CODE = 64
REFUSALS = (UnknownTool, ToolNotAllowed, ToolDenied, ApprovalNeeded, InvalidValue)
NOT_THE_TOOLS = (LockLost, StoreBusy, StoreFailed)


class InvalidInput(InvalidValue):
    """An input that does not fit; at these places are values that were given for references, and are not told."""

    def __init__(self, message: str, places: Sequence[Sequence[str | int]] = ()) -> None:
        super().__init__(message)
        self.places = places


@dataclass(frozen=True, slots=True)
class Approval:
    """Who approved a call of a dangerous tool, and which: by what `tick.tools.fingerprint` said of it."""

    by: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One call of an author's tool that may be made."""

    tick: "Tick"
    tool: Tool
    input: Any
    checked: BaseModel
    credentials: frozenset[str]
    step: str | None
    approval: Approval | None

    async def taken(self, *, remembers_failure: bool) -> dict[str, Any]:
        """`{"output": …}` or, if failures are remembered, `{"error": …}`."""
        call = partial(self._called, remembers_failure)
        if self.step is None:
            return await call(self.tick.idempotency_key)
        result: dict[str, Any] = await self._remembered(self.step, call)
        if "error" in result and not remembers_failure:
            said = result["error"]
            raise ToolFailed(said["message"], code=said["code"], tool=self.tool.name, details=said["details"])
        return result

    async def _remembered(self, step: str, call: Callable[[str], Any]) -> Any:
        tick, stop = self.tick, DryStop("tool", self.tool.name, self.tick.clog_id)
        return await remembered(tick._scene, tick._lock("step"), tick.clog_id, step, call, stop)

    async def _called(self, remembers_failure: bool, key: str) -> dict[str, Any]:
        scene = self.tick._scene
        began = scene.clock.now()
        error, output = None, None
        try:
            output = await self._answer(key)
        except NOT_THE_TOOLS:
            raise
        except ToolFailed as failed:
            error = failed
        await self.tick._note(CALLED, told_of(self.tool.name, self.input, scene.clock.now() - began, error, self))
        if error is None:
            return {"output": output}
        if not remembers_failure:
            raise error
        return {"error": told_error(error).as_json()}

    async def _answer(self, key: str) -> Any:
        """What the tool answers, without the values of its credentials; whatever it raises is a `ToolFailed`."""
        values = await resolved(self.credentials, self.tick._scene.registry.toolset.credentials, self.tool.name)
        scrubber = Scrubber(values)
        try:
            with revealing(values):
                answer = await self._in_time(key)
            return scrubber.value(decode(encode(answer, "its answer")))
        except NOT_THE_TOOLS:
            raise
        except Exception as error:
            failed = _failed(self.tool.name, error, scrubber)
        # Out of the block: nothing of what the tool raised hangs on to this.
        raise failed

    async def _in_time(self, key: str) -> Any:
        limit_ms = self.tool.timeout_ms
        arguments = self.tool.arguments(self.checked, self._call(key))
        with anyio.CancelScope() as scope:
            cancel = self.tick._scene.clock.call_later(limit_ms, scope.cancel)
            try:
                return await invoke(partial(self.tool.fn, **arguments))
            finally:
                cancel()
        raise ToolFailed(f"it took longer than {limit_ms} ms", code="tool_timeout", details={"timeout_ms": limit_ms})

    def _call(self, key: str) -> ToolCall:
        tick = self.tick
        reaches_out = self.tool.effect == "outside" and "ocean.http.fetch" not in tick._scene.registry.toolset.denied
        return ToolCall(
            tool=self.tool.name,
            clog_id=tick.clog_id,
            session_id=tick.session_id,
            run_id=tick._scene.run.run_id if tick._scene.run else None,
            tick=tick.number,
            now=tick._scene.clock.now(),
            idempotency_key=key,
            approved_by=self.approval.by if self.approval else None,
            _reach=tick._scene.reach if reaches_out else None,
        )


def _failed(tool: str, error: Exception, scrubber: Scrubber) -> ToolFailed:
    """What the tool raised, with a code, and without secrets: cut after they are taken out, not before."""
    said = str(error) if isinstance(error, OceanError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    code = getattr(error, "code", None)
    known = code if isinstance(error, OceanError) and isinstance(code, str) else "tool_failed"
    details = {name: item for name, item in _details(error).items() if name != "tool"}
    return ToolFailed(
        redacted_text(scrubber.text(said), MOST_SAID),
        code=redacted_text(scrubber.text(known), MOST_CODE),
        tool=tool,
        details=redacted(scrubber.value(details)),
    )


def _details(error: Exception) -> dict[str, Any]:
    """Those of a refusal, if they can be stored."""
    try:
        found = decode(encode(getattr(error, "details", None) if isinstance(error, OceanError) else None))
    except InvalidValue:
        return {}
    return found if isinstance(found, dict) else {}


def told_error(error: OceanError) -> ErrorInfo:
    """In its own words, for whoever asked for the call: a model has no use for the names of classes."""
    return ErrorInfo(error.code, error.message, dict(error.details) or None)


def told_of(
    tool: str, input: Any, ms: int, error: OceanError | None = None, use: "Use | None" = None
) -> dict[str, Any]:
    """The event's payload. References are no secrets, whatever their parameters are called."""
    refs = use.credentials if use else frozenset()
    outcome = "ok" if error is None else "refused" if isinstance(error, REFUSALS) else "failed"
    shown = _shown(input)
    for place in error.places if isinstance(error, InvalidInput) else ():
        shown = _hidden(shown, place)
    told: dict[str, Any] = {"tool": tool, "outcome": outcome, "input": redacted(shown, refs), "ms": ms}
    told |= {"credentials": sorted(refs)} if refs else {}
    told |= {"approved_by": use.approval.by} if use and use.approval else {}
    told |= {"error": {"code": error.code, "message": redacted_text(error.message)}} if error else {}
    return told


def _shown(input: Any) -> Any:
    """An input that is refused because it is no JSON is told by its kind only."""
    try:
        return decode(encode(input))
    except InvalidValue:
        return f"a {type(input).__name__} that is not JSON"


def _hidden(value: Any, place: Sequence[str | int]) -> Any:
    """Without what is at the place; a place that is not found hides it all."""
    first = place[0] if place else None
    if isinstance(value, dict) and first in value:
        return {name: _hidden(item, place[1:]) if name == first else item for name, item in value.items()}
    if isinstance(value, list) and isinstance(first, int) and first < len(value):
        return [_hidden(item, place[1:]) if index == first else item for index, item in enumerate(value)]
    return HIDDEN
