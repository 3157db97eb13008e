"""All tools of one instance by name: the built-in ones and the authors', and which of them are denied."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, get_args

from ocean.kernel.arguments import checked_choice, checked_names
from ocean.state.errors import InvalidValue, ToolDenied, ToolNotAllowed, UnknownTool, near_name
from ocean.state.values import shown
from ocean.tools.author import Tool, ToolBox
from ocean.tools.builtin import TOOLS, ToolSpec
from ocean.tools.credentials import Credentials

if TYPE_CHECKING:
    from ocean.clog.clog import Clog

ToolFormat = Literal["openai", "anthropic"]


class Toolset:
    """The tools of an instance. `denied` are names and patterns (`mail.*`) that no clog may use, built-in ones too."""

    def __init__(
        self,
        tools: Iterable[Tool | ToolBox | str] = (),
        denied: Collection[str] = (),
        credentials: Credentials | None = None,
    ) -> None:
        self.own: dict[str, Tool] = {}
        for each in flattened(tools, "tools"):
            if isinstance(each, str):
                raise InvalidValue(f"tools must be made by @tool or ToolBox, got the name {each!r}")
            if self.own.setdefault(each.name, each) is not each:
                raise InvalidValue(f"tool names must be unique within an instance, got {each.name!r} twice")
        if credentials is not None and not isinstance(credentials, Mapping) and not callable(credentials):
            raise InvalidValue(f"credentials must be a mapping or a function of a name, got {shown(credentials)}")
        self.credentials = credentials
        patterns = checked_names(denied, "deny_tools")
        for pattern in patterns:
            if pattern.startswith("ocean.") and not _matching(pattern, TOOLS):
                raise UnknownTool(f"deny_tools has an unknown tool {pattern!r}; {near_name(pattern, TOOLS)}")
        self.denied = {name: pattern for pattern in patterns for name in _matching(pattern, self._names())}

    def _names(self) -> list[str]:
        return [*TOOLS, *self.own]

    def specs(self) -> list[ToolSpec]:
        own = [
            ToolSpec(tool.name, tool.description, tool.input, None, tool.effect == "outside", tool.dangerous)
            for tool in self.own.values()
        ]
        return [replace(spec, denied=self.denied.get(spec.name)) for spec in (*TOOLS.values(), *own)]

    def find(self, name: str) -> Tool | ToolSpec:
        """Return the tool by its name or by the name that models use, if it can be invoked with JSON."""
        found = self._get(name) or self._get(plain_name(name) if isinstance(name, str) else name)
        if found is None:
            raise UnknownTool(f"there is no tool {name!r} to invoke; {near_name(str(name), self._names())}")
        return found

    def _get(self, name: str) -> Tool | ToolSpec | None:
        builtin = TOOLS.get(name)
        return builtin if builtin is not None and builtin.invoke is not None else self.own.get(name)

    def check_not_denied(self, tool: str) -> None:
        if tool in self.denied:
            pattern = self.denied[tool]
            raise ToolDenied(
                f"tool {tool!r} is denied on this instance, by {pattern!r}: see deny_tools and OCEAN_TOOLS_DENY",
                tool=tool,
                pattern=pattern,
            )

    def check_names(self, clog: "Clog") -> None:
        for name in sorted({*(clog.tools or ()), *clog.toolbox}):
            if name not in TOOLS and name not in self.own:
                hint = near_name(name, self._names())
                raise UnknownTool(f"clog {clog.clog_id!r} lists an unknown tool {name!r}; {hint}")

    def usable(self, clog: "Clog") -> list[ToolSpec]:
        """Return the tools that the clog can invoke here by name."""
        specs = (spec for spec in self.specs() if spec.input is not None and spec.denied is None)
        return [spec for spec in specs if is_allowed(clog, spec.name)]


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def denied_tools(given: Collection[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the denied tools: those given, and those that the environment adds."""
    named = environ.get("OCEAN_TOOLS_DENY", "").split(",")
    return (*checked_names(given, "deny_tools"), *(name.strip() for name in named if name.strip()))


def flattened(tools: Iterable[Tool | ToolBox | str], what: str) -> list[Tool | str]:
    """Return the tools of all boxes in one list; names stay names."""
    if isinstance(tools, str | Tool) or not isinstance(tools, Iterable):
        raise InvalidValue(f"{what} must be a list of tools, tool boxes or names, got {shown(tools)}")
    found: list[Tool | str] = []
    for each in [tools] if isinstance(tools, ToolBox) else tools:
        if isinstance(each, ToolBox):
            found += each
        elif isinstance(each, Tool | str):
            found.append(each)
        else:
            raise InvalidValue(f"each of {what} must be made by @tool, or a ToolBox, got {shown(each)}")
    return found


def wire_name(name: str) -> str:
    """Return the name for model APIs, which allow no dots. `plain_name` is the inverse."""
    return name.replace(".", "__")


def plain_name(name: str) -> str:
    return name.replace("__", ".")


def described(spec: ToolSpec, format: ToolFormat) -> dict[str, Any]:
    """Return a tool in the form that a model's API takes."""
    checked_choice(format, "format", get_args(ToolFormat))
    about = {"name": wire_name(spec.name), "description": spec.description}
    if format == "anthropic":
        return about | {"input_schema": spec.json_schema()}
    return {"type": "function", "function": about | {"parameters": spec.json_schema()}}


def is_allowed(clog: "Clog", tool: str) -> bool:
    """Return whether the clog lists the tool or has it in its tool box; without a list it has the built-in tools that
    do not reach out."""
    if tool in clog.toolbox or clog.tools is not None:
        return tool in clog.toolbox or tool in (clog.tools or ())
    return tool in TOOLS and not TOOLS[tool].reaches_out


def check_allowed(clog: "Clog", tool: str) -> None:
    """Raise `ToolNotAllowed` unless the clog may use the tool."""
    if not is_allowed(clog, tool):
        raise ToolNotAllowed(f"clog {clog.clog_id!r} must list {tool} in Clog(..., tools=[…]) to use it", tool=tool)
