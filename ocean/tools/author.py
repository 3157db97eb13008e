"""Tools that authors write: a function with typed parameters, a name, and an effect.

    weather = ToolBox("weather")

    @weather.tool(effect="none")
    async def lookup(city: str, units: Literal["c", "f"] = "c") -> dict[str, Any]:
        \"\"\"The weather in a city.\"\"\"

The parameters become a pydantic model, and that a JSON Schema. A single parameter that is a model takes the whole
input; a parameter of the type `ToolCall` gets the facts of the call.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, Unpack, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError

from ocean.kernel.arguments import checked_choice, checked_count, checked_flag, checked_names
from ocean.state.errors import ClogError, InvalidValue
from ocean.state.values import shown
from ocean.tools.fetch import FetchRequest, FetchResponse
from ocean.tools.outside import Reach

Effect = Literal["none", "outside"]
Function = Callable[..., Any]

PART = r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"
NAME = re.compile(rf"[A-Za-z](?:[A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*)(?:\.{PART})*")
"""No part has a double underscore or one at its end, so that a dot can be written as two underscores."""
MOST_NAME = 64
FIELD_PREFIX = "argument_"
DEFAULT_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 3_600_000


class FetchOptions(TypedDict, total=False):
    method: str
    headers: dict[str, str]
    body: bytes | None
    timeout_ms: int
    max_bytes: int
    max_redirects: int


@dataclass(frozen=True, slots=True, eq=False)
class ToolCall:
    """The facts of a tool's call. `idempotency_key` is the same in every call of the step: pass it to the service."""

    tool: str
    clog_id: str
    session_id: str
    run_id: str | None
    tick: int
    now: int
    idempotency_key: str
    approved_by: str | None = None
    _reach: Reach | None = field(default=None, repr=False)

    async def fetch(self, url: str, **options: Unpack[FetchOptions]) -> FetchResponse:
        """Make an HTTP request to a public address, as `tick.fetch` does; for tools with an effect outside."""
        if self._reach is None:
            raise ClogError(f"tool {self.tool!r} must not fetch: it has effect='none', or ocean.http.fetch is denied")
        return await self._reach.fetch(FetchRequest(url, **options))


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A function that clogs and models can call by name. Created by `@tool` or `@box.tool`."""

    name: str
    description: str
    input: type[BaseModel]
    fn: Function = field(repr=False)
    effect: Effect = "outside"
    dangerous: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    credentials: frozenset[str] | None = None
    whole: str | None = None
    """The parameter that takes the whole input."""
    call: str | None = None
    """The parameter that takes the `ToolCall`."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the plain function, for its own tests: nothing is checked, stored or logged."""
        return self.fn(*args, **named)

    def arguments(self, checked: BaseModel, call: ToolCall) -> dict[str, Any]:
        """Return the arguments of the function."""
        given = {self.call: call} if self.call else {}
        if self.whole:
            return {self.whole: checked, **given}
        return {name.removeprefix(FIELD_PREFIX): getattr(checked, name) for name in type(checked).model_fields} | given


class ToolBox:
    """Tools whose names begin with the box's name. `ToolBox("")` adds no prefix."""

    def __init__(self, prefix: str = "", tools: Iterable[Tool] = ()) -> None:
        if prefix:
            checked_tool_name(prefix, "a tool box's name")
        self.prefix = prefix
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.add(each)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def add(self, tool: Tool) -> Tool:
        """Add a tool under its own name."""
        if not isinstance(tool, Tool):
            raise InvalidValue(f"a tool box must contain tools made by @tool, got {shown(tool)}")
        if tool.name in self._tools:
            raise InvalidValue(f"tool box {self.prefix!r} has a tool {tool.name!r} already")
        self._tools[tool.name] = tool
        return tool

    @overload
    def tool(self, fn: Function, /) -> Tool: ...

    @overload
    def tool(self, /, **options: Unpack["ToolOptions"]) -> Callable[[Function], Tool]: ...

    def tool(self, fn: Function | None = None, /, **options: Unpack["ToolOptions"]) -> Any:
        """Make a function a tool of this box. Takes the options of `tool`."""

        def made(fn: Function) -> Tool:
            name = options.get("name") or _name_of(fn)
            return self.add(tool(**options | {"name": f"{self.prefix}.{name}" if self.prefix else name})(fn))

        return made if fn is None else made(fn)


class ToolOptions(TypedDict, total=False):
    name: str
    description: str
    effect: Effect
    dangerous: bool
    timeout_ms: int
    credentials: Collection[str]


@overload
def tool(fn: Function, /) -> Tool: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Function], Tool]: ...


def tool(fn: Function | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a tool of a function, async or plain; a plain one runs in a thread.

    `effect` is by default `outside`: the result is stored as a step's, and a dry run stops before it. `none` is for
    functions that only compute or look things up: they are called again with their tick, and in dry runs. A
    `dangerous` tool is called only with a human's approval. `credentials` are the names it may be called with.
    """
    return _made(options) if fn is None else _made(options)(fn)


def _made(options: ToolOptions) -> Callable[[Function], Tool]:
    def make(fn: Function) -> Tool:
        if not callable(fn) or isinstance(fn, Tool):
            raise InvalidValue(f"@tool needs a function, got {shown(fn)}")
        name = checked_tool_name(options.get("name") or _name_of(fn))
        where = f"tool {name!r}"
        about = inspect.cleandoc(options.get("description") or fn.__doc__ or "")
        if not about:
            raise InvalidValue(f"{where} must have a docstring or description=")
        effect = checked_choice(options.get("effect", "outside"), f"effect of {where}", get_args(Effect))
        dangerous = checked_flag(options.get("dangerous", False), f"dangerous of {where}")
        if dangerous and effect == "none":
            raise InvalidValue(
                f"{where} must not be dangerous with effect='none': without an effect it needs no approval"
            )
        timeout = options.get("timeout_ms", DEFAULT_TIMEOUT_MS)
        checked_count(timeout, f"timeout_ms of {where}", least=1, most=LONGEST_TIMEOUT_MS)
        named = options.get("credentials")
        allowed = None if named is None else frozenset(checked_names(named, f"credentials of {where}"))
        hints, call = _parameters(fn, where)
        whole = _whole(hints)
        model = hints[whole][0] if whole else _model(name, hints, where)
        made = Tool(name, about, model, fn, effect, dangerous, timeout, allowed, whole, call)  # type: ignore[arg-type]
        _schema_of(model, where)
        return made

    return make


def checked_tool_name(name: str, what: str = "a tool's name") -> str:
    """Check a tool's name. Model APIs take letters, digits, `_` and `-`, at most 64; a dot becomes two underscores."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name.replace(".", "__")) > MOST_NAME:
        raise InvalidValue(
            f"{what} must be like 'weather.lookup': letters, digits, single - and _ inside, at most {MOST_NAME} "
            f"characters with each dot counting twice; got {shown(name)}"
        )
    if name.split(".")[0] == "ocean":
        raise InvalidValue(f"{what} must not begin with 'ocean', got {name!r}: that prefix is for built-in tools")
    return name


def _name_of(fn: Function) -> str:
    return getattr(fn, "__name__", "") or type(fn).__name__


def _parameters(fn: Function, where: str) -> tuple[dict[str, tuple[Any, Any]], str | None]:
    """Return the type and default of each parameter, and the name of the one that takes the call."""
    try:
        types = get_type_hints(fn, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidValue(f"{where}: the types of its parameters cannot be resolved: {error}") from error
    hints: dict[str, tuple[Any, Any]] = {}
    call = None
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidValue(f"{where}: parameter {name!r} must be passed by name: no /, *args or **named")
        if name not in types:
            raise InvalidValue(f"{where}: parameter {name!r} must have a type, as {name}: str, or a pydantic model")
        if types[name] is ToolCall:
            call = name
        else:
            hints[name] = (types[name], ... if parameter.default is parameter.empty else parameter.default)
    return hints, call


def _whole(hints: dict[str, tuple[Any, Any]]) -> str | None:
    if len(hints) != 1:
        return None
    ((name, (type_, default)),) = hints.items()
    return name if isinstance(type_, type) and issubclass(type_, BaseModel) and default is ... else None


def _model(name: str, hints: dict[str, tuple[Any, Any]], where: str) -> type[BaseModel]:
    # With a prefix: a parameter may have the name of one of the model's methods.
    fields: dict[str, Any] = {
        f"{FIELD_PREFIX}{name}": (Annotated[type_, Field(alias=name)], default)
        for name, (type_, default) in hints.items()
    }
    config = ConfigDict(extra="forbid", strict=True)
    title = "".join(word.title() for word in re.split(r"[._-]", name))
    try:
        model: type[BaseModel] = create_model(title, __config__=config, **fields)
    except PydanticUserError as error:
        raise InvalidValue(f"{where}: pydantic cannot check its parameters: {error.message}") from error
    return model


def _schema_of(model: type[BaseModel], where: str) -> None:
    try:
        model.model_json_schema(by_alias=True)
    except PydanticUserError as error:
        raise InvalidValue(f"{where}: its parameters have no JSON Schema: {error.message}") from error
