"""A clog's methods as tools of their own, with what their functions say of themselves."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from ocean.clog.clog import Clog
from ocean.mcp.schemas import COMPONENT
from ocean.mcp.tools import TOOLS, Tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""What the makers of models take for a tool's name. Methods of other names are for `call_method`."""


def method_tools(clogs: Iterable[Clog]) -> list[Tool]:
    """Of the clogs that let others call. A name that two methods would share is nobody's."""
    made = [_tool(clog, name, method) for clog in clogs if "call" in clog.allows for name, method in _sorted(clog)]
    count = Counter(tool.name for tool in (*TOOLS, *made))
    return [tool for tool in made if NAME.fullmatch(tool.name) and count[tool.name] == 1]


def _sorted(clog: Clog) -> list[tuple[str, Callable[..., Any]]]:
    return sorted(clog.methods.items())


def _tool(clog: Clog, name: str, method: Callable[..., Any]) -> Tool:
    (call_method,) = (tool for tool in TOOLS if tool.name == "call_method")
    said = inspect.getdoc(method)
    about = f"{said.strip()}\n\n" if said else ""
    return Tool(
        f"{clog.clog_id}__{name}",
        f"{about}Method {name} of clog {clog.clog_id}: on a run of it with runId, else perhaps in a session.",
        call_method.ops,
        fixed={"clogId": clog.clog_id, "method": name},
        payload=payload_schema(method),
    )


def payload_schema(method: Callable[..., Any]) -> dict[str, Any]:
    """By the annotation of its second parameter; anything where that says nothing, or nothing of JSON."""
    try:
        names = [*inspect.signature(method).parameters]
        hint = get_type_hints(method, include_extras=True).get(names[1], Any)
        return TypeAdapter(hint).json_schema(ref_template=f"{COMPONENT}{{model}}")
    except (PydanticUserError, NameError, TypeError, ValueError, IndexError):
        return {}
