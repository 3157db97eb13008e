"""Tools by name, with JSON: check the permission and the input, call the tool, and append the event.

An author's tool with an effect outside is a step: once its result is stored, it is not called again. Every call and
every refusal is a `tool.called` event, with the redacted input and without the output. In a tick the event is visible
at once and stays if the tick fails; in a direct call it is part of the commit.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from ocean.kernel.steps import step_key
from ocean.state.errors import ApprovalNeeded, ClogError, InvalidValue, OceanError, UnknownTool
from ocean.state.outcomes import ErrorInfo, error_info
from ocean.state.redact import redacted_text
from ocean.state.values import body_hash, decode, encode
from ocean.tools.author import Tool
from ocean.tools.builtin import ToolSpec
from ocean.tools.call import CALLED, REFUSALS, STORE_ERRORS, Approval, InvalidInput, ToolUse, call_event, error_of
from ocean.tools.credentials import INVALID_REF, refs_in
from ocean.tools.registry import ToolFormat, Toolset, check_allowed, described

if TYPE_CHECKING:
    from ocean.kernel.tick import Tick


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: an output, or an error."""

    output: Any = None
    error: ErrorInfo | None = None

    @property
    def is_ok(self) -> bool:
        """Whether there is no error."""
        return self.error is None


class ToolInvoker:
    """The tools by name, for code that has names and JSON, such as the tool calls of an agent."""

    def __init__(self, tick: "Tick") -> None:
        self._tick = tick

    @property
    def _toolset(self) -> Toolset:
        return self._tick._context.registry.toolset

    def usable(self) -> list[ToolSpec]:
        """Return the tools that this clog can invoke."""
        return self._toolset.usable(self._tick._clog)

    def schemas(self, format: ToolFormat = "openai", names: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Return them in the form that a model's API takes; `names` selects some."""
        return [described(spec, format) for spec in self.usable() if names is None or spec.name in names]

    def find(self, name: str) -> ToolSpec:
        """Return a tool that this clog can invoke, by its name or by the name that models use."""
        found = self._toolset.find(name)
        for spec in self.usable():
            if spec.name == found.name:
                return spec
        self._check(found.name)
        raise UnknownTool(f"there is no tool {name!r} to invoke")

    def fingerprint(self, name: str, input: Any = None) -> str:
        """Return what an approval refers to: a hash of the tool and its whole input."""
        return _fingerprint(self._toolset.find(name), decode(encode({} if input is None else input, "input")))

    async def invoke(
        self, name: str, input: Any = None, *, step: str | None = None, approval: Approval | None = None
    ) -> Any:
        """Check the input against the tool's schema, and call the tool.

        If it fails, nothing is stored: the tick's next call calls it again. `step` names the step that stores the
        result; without it, the calls of a tool in one tick are distinguished by their input.
        """
        found = self._toolset.find(name)
        if isinstance(found, ToolSpec):
            return await self._call_builtin(found, input)
        use = await self._permitted(found, input, step, approval)
        return (await use.result(stores_failure=False))["output"]

    async def attempt(
        self, name: str, input: Any = None, *, step: str | None = None, approval: Approval | None = None
    ) -> ToolResult:
        """Do the same for a model: failures and refusals are results, and failures are stored."""
        try:
            found = self._toolset.find(name)
            if isinstance(found, ToolSpec):
                return ToolResult(await self._call_builtin(found, input))
            use = await self._permitted(found, input, step, approval)
        except STORE_ERRORS:
            raise
        except OceanError as error:
            return ToolResult(error=error_of(error))
        result = await use.result(stores_failure=True)
        return ToolResult(result.get("output"), error_info(result["error"]) if "error" in result else None)

    async def _call_builtin(self, spec: ToolSpec, input: Any) -> Any:
        model = spec.input
        assert spec.invoke is not None
        assert model is not None
        checked = _validated(spec.name, lambda: model.model_validate(input or {}))
        if not spec.reaches_out:
            return await spec.invoke(self._tick, checked)
        tick, began_at = self._tick, self._tick._context.clock.now()
        tick._use(spec.name)
        try:
            result = await spec.invoke(tick, checked)
        except OceanError as error:
            await tick._note(CALLED, call_event(spec.name, input, tick._context.clock.now() - began_at, error))
            raise
        await tick._note(CALLED, call_event(spec.name, input, tick._context.clock.now() - began_at))
        return result

    async def _permitted(self, tool: Tool, input: Any, step: str | None, approval: Approval | None) -> "ToolUse":
        """Check everything that can be refused before the tool is called."""
        tick = self._tick
        tick._context.check_alive()
        if tool.effect == "outside" and tick._context.lock is None:
            raise ClogError(
                f"tool {tool.name!r} has an effect outside and needs a tick to store its result; send a signal instead"
            )
        try:
            text = encode({} if input is None else input, "input")
            self._check(tool.name)
            checked = _validated(tool.name, lambda: tool.input.model_validate_json(text))
            names = {ref.name for ref in refs_in(checked)}
            if tool.credentials is not None and not names <= tool.credentials:
                raise InvalidValue(f"{tool.name}: credentials must be among {sorted(tool.credentials)}")
            self._check_approval(tool, decode(text), approval)
        except REFUSALS as error:
            await tick._note(CALLED, call_event(tool.name, input, 0, error))
            raise
        if step is None and tool.effect == "outside":
            step = self._unused_step(tool.name, _fingerprint(tool, decode(text)))
        return ToolUse(tick, tool, decode(text), checked, frozenset(names), step, approval)

    def _unused_step(self, tool: str, fingerprint: str) -> str:
        """Return a free step name. The same call twice in a tick is two steps; other calls may come in any order."""
        taken, prefix = self._tick._context.steps, f"tool/{tool}/{fingerprint[:16]}"
        names = (f"{prefix}/{number}" for number in count(1))
        return next(name for name in names if ("tick", step_key(self._tick.clog_id, name)) not in taken)

    def _check(self, name: str) -> None:
        check_allowed(self._tick._clog, name)
        self._toolset.check_not_denied(name)

    def _check_approval(self, tool: Tool, input: Any, approval: Approval | None) -> None:
        if not tool.dangerous:
            return
        if approval is None:
            raise ApprovalNeeded(
                f"tool {tool.name!r} is dangerous: get an approval, then pass approval=Approval(by, fingerprint)",
                tool=tool.name,
            )
        if approval.fingerprint != _fingerprint(tool, input):
            raise ApprovalNeeded(
                f"the approval must be of this call of {tool.name!r}; it is of another", tool=tool.name
            )


def _fingerprint(tool: Tool | ToolSpec, input: Any) -> str:
    return body_hash([tool.name, input])


def _validated(name: str, check: Callable[[], BaseModel]) -> BaseModel:
    try:
        return check()
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        where = ".".join(map(str, found[0]["loc"])) or "input"
        places = [each["loc"] for each in found if each["type"] == INVALID_REF]
        raise InvalidInput(f"{name}: {where}: {redacted_text(found[0]['msg'])}", places) from None
