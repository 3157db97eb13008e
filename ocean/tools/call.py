"""One call of an author's tool: its time limit, its credentials, the redaction of its result, and its event."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import BaseModel

from ocean.kernel.invoke import invoke
from ocean.kernel.steps import run_step
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
from ocean.state.tracebacks import carry, place_of
from ocean.state.values import decode, encode
from ocean.tools.author import Tool, ToolCall
from ocean.tools.credentials import Scrubber, resolved, revealing

if TYPE_CHECKING:
    from ocean.kernel.tick import Tick

CALLED = "tool.called"
MOST_MESSAGE = 2_000
MOST_CODE = 64
REFUSALS = (UnknownTool, ToolNotAllowed, ToolDenied, ApprovalNeeded, InvalidValue)
STORE_ERRORS = (LockLost, StoreBusy, StoreFailed)


class InvalidInput(InvalidValue):
    """An input that does not match the schema. `places` have values passed as references, which are not shown."""

    def __init__(self, message: str, places: Sequence[Sequence[str | int]] = ()) -> None:
        super().__init__(message)
        self.places = places


@dataclass(frozen=True, slots=True)
class Approval:
    """The approval of one call of a dangerous tool: by whom, and the `tick.tools.fingerprint` of the call."""

    by: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class ToolUse:
    """One permitted call of an author's tool."""

    tick: "Tick"
    tool: Tool
    input: Any
    checked: BaseModel
    credentials: frozenset[str]
    step: str | None
    approval: Approval | None

    async def result(self, *, stores_failure: bool) -> dict[str, Any]:
        """Return `{"output": …}` or, if failures are stored, `{"error": …}`."""
        call = partial(self._call_and_log, stores_failure)
        if self.step is None:
            return await call(self.tick.idempotency_key)
        result: dict[str, Any] = await self._stored(self.step, call)
        if "error" in result and not stores_failure:
            error = result["error"]
            raise ToolFailed(error["message"], code=error["code"], tool=self.tool.name, details=error["details"])
        return result

    async def _stored(self, step: str, call: Callable[[str], Any]) -> Any:
        tick, stop = self.tick, DryStop("tool", self.tool.name, self.tick.clog_id)
        return await run_step(tick._context, tick._lock("step"), tick.clog_id, step, call, stop)

    async def _call_and_log(self, stores_failure: bool, key: str) -> dict[str, Any]:
        context = self.tick._context
        began_at = context.clock.now()
        error, output = None, None
        try:
            output = await self._call_tool(key)
        except STORE_ERRORS:
            raise
        except ToolFailed as failed:
            error = failed
        await self.tick._note(
            CALLED, call_event(self.tool.name, self.input, context.clock.now() - began_at, error, self)
        )
        if error is None:
            return {"output": output}
        if not stores_failure:
            raise error
        return {"error": error_of(error).as_json()}

    async def _call_tool(self, key: str) -> Any:
        """Return the tool's result without the values of its credentials. Any exception becomes `ToolFailed`."""
        values = await resolved(self.credentials, self.tick._context.registry.toolset.credentials, self.tool.name)
        scrubber = Scrubber(values)
        try:
            with revealing(values):
                result = await self._in_time(key)
            return scrubber.value(decode(encode(result, "its result")))
        except STORE_ERRORS:
            raise
        except Exception as error:
            failed = _failed(self.tool.name, error, scrubber)
        # Outside the block, so that the exception of the tool is not its context.
        raise failed

    async def _in_time(self, key: str) -> Any:
        limit_ms = self.tool.timeout_ms
        arguments = self.tool.arguments(self.checked, self._call(key))
        with anyio.CancelScope() as scope:
            cancel = self.tick._context.clock.call_later(limit_ms, scope.cancel)
            try:
                return await invoke(partial(self.tool.fn, **arguments))
            finally:
                cancel()
        raise ToolFailed(f"it took longer than {limit_ms} ms", code="tool_timeout", details={"timeout_ms": limit_ms})

    def _call(self, key: str) -> ToolCall:
        tick = self.tick
        reaches_out = self.tool.effect == "outside" and "ocean.http.fetch" not in tick._context.registry.toolset.denied
        return ToolCall(
            tool=self.tool.name,
            clog_id=tick.clog_id,
            session_id=tick.session_id,
            run_id=tick._context.run.run_id if tick._context.run else None,
            tick=tick.number,
            now=tick._context.clock.now(),
            idempotency_key=key,
            approved_by=self.approval.by if self.approval else None,
            _reach=tick._context.reach if reaches_out else None,
        )


def _failed(tool: str, error: Exception, scrubber: Scrubber) -> ToolFailed:
    """Return what the tool raised, with a code and without secrets, which are removed before the text is cut."""
    message = str(error) if isinstance(error, OceanError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    code = getattr(error, "code", None)
    known = code if isinstance(error, OceanError) and isinstance(code, str) else "tool_failed"
    details = {name: item for name, item in _details(error).items() if name != "tool"}
    failed = ToolFailed(
        redacted_text(scrubber.text(message), MOST_MESSAGE),
        code=redacted_text(scrubber.text(known), MOST_CODE),
        tool=tool,
        details=redacted(scrubber.value(details)),
    )
    carry(failed, place_of(error, scrubber.text))
    return failed


def _details(error: Exception) -> dict[str, Any]:
    """Return the details of an `OceanError`, if they can be stored."""
    try:
        found = decode(encode(getattr(error, "details", None) if isinstance(error, OceanError) else None))
    except InvalidValue:
        return {}
    return found if isinstance(found, dict) else {}


def error_of(error: OceanError) -> ErrorInfo:
    """Return the error for the caller of the tool, without the name of its class: a model has no use for it."""
    return ErrorInfo(error.code, error.message, dict(error.details) or None)


def call_event(
    tool: str, input: Any, ms: int, error: OceanError | None = None, use: "ToolUse | None" = None
) -> dict[str, Any]:
    """Return the payload of the `tool.called` event. References are no secrets, whatever their parameters' names."""
    refs = use.credentials if use else frozenset()
    outcome = "ok" if error is None else "refused" if isinstance(error, REFUSALS) else "failed"
    shown = _shown(input)
    for place in error.places if isinstance(error, InvalidInput) else ():
        shown = _hidden(shown, place)
    payload: dict[str, Any] = {"tool": tool, "outcome": outcome, "input": redacted(shown, refs), "ms": ms}
    payload |= {"credentials": sorted(refs)} if refs else {}
    payload |= {"approved_by": use.approval.by} if use and use.approval else {}
    payload |= {"error": {"code": error.code, "message": redacted_text(error.message)}} if error else {}
    return payload


def _shown(input: Any) -> Any:
    """Return the input; of one that is refused because it is not JSON, only its type."""
    try:
        return decode(encode(input))
    except InvalidValue:
        return f"a {type(input).__name__} that is not JSON"


def _hidden(value: Any, place: Sequence[str | int]) -> Any:
    """Hide what is at the place; if the place is not found, hide everything."""
    first = place[0] if place else None
    if isinstance(value, dict) and first in value:
        return {name: _hidden(item, place[1:]) if name == first else item for name, item in value.items()}
    if isinstance(value, list) and isinstance(first, int) and first < len(value):
        return [_hidden(item, place[1:]) if index == first else item for index, item in enumerate(value)]
    return HIDDEN
