"""The tools: each is a name for routes of the table, and takes what these routes take.

The methods of clogs are tools too, described by their functions' docstrings and annotations.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints
from urllib.parse import quote

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from ocean.clog.clog import Clog
from ocean.http.framework.parsing import SIDES
from ocean.http.framework.responses import camel
from ocean.http.framework.routing import Op, Repeat, Scope
from ocean.http.openapi import PARAMETER, SCHEMAS
from ocean.http.routes import TABLE
from ocean.mcp.in_process import AppRequest
from ocean.state.errors import InvalidValue, near_name
from ocean.state.values import shown

REQUEST_KEY = "idempotencyKey"
PAGE = 20
"""The default limit of lists, instead of 100: the result is read by a model."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""The tool names that models' APIs accept. Methods with other names can be called with `call_method`."""


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool. Its routes differ in their path parameters: the arguments that are given select the route.

    `fixed` arguments are added to every call and cannot be given; `defaults` are added unless they are given.
    """

    name: str
    about: str
    ops: tuple[Op, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    payload: Any = None
    """The schema of a method's payload, if it is known."""

    @property
    def scope(self) -> Scope:
        """The scope that a key must have; it is the same for all routes of a tool."""
        return self.ops[0].scope

    @property
    def is_read_only(self) -> bool:
        """Whether it changes nothing."""
        return all(op.repeat is Repeat.SAFE for op in self.ops)

    def request(self, arguments: Mapping[str, Any]) -> AppRequest:
        """Return the request for a call. Only names are checked here; the application checks the values."""
        op = self._selected({*self.fixed, *arguments})
        accepted = [*sorted(path_parameters(op)), *fields_of(op), *([REQUEST_KEY] if is_keyed(op) else [])]
        accepted = [name for name in accepted if name not in self.fixed]
        for name in arguments:
            if name not in accepted:
                hint = near_name(name, accepted)
                raise InvalidValue(f"{self.name}{self._variant(op)} has no argument {name!r}; {hint}")
        known = {*fields_of(op), *path_parameters(op)}
        given = {name: value for name, value in {**self.defaults, **self.fixed}.items() if name in known}
        given |= arguments
        path = {name: _text(given.pop(camel(name)), camel(name)) for name in PARAMETER.findall(op.path)}
        key = given.pop(REQUEST_KEY, None)
        in_query = query_fields(op)
        return AppRequest(
            op.method,
            PARAMETER.sub(lambda match: quote(path[match[1]], safe=""), op.path),
            tuple(pair for name in in_query if name in given for pair in as_query(name, given[name])),
            {name: value for name, value in given.items() if name not in in_query} if op.body else None,
            None if key is None else _text(key, REQUEST_KEY),
        )

    def _selected(self, named: set[str]) -> Op:
        matching = [op for op in self.ops if path_parameters(op) <= named]
        if not matching:
            ways = " or ".join(" and ".join(sorted(path_parameters(op))) for op in self.ops)
            raise InvalidValue(f"{self.name} must be called with {ways}")
        return max(matching, key=lambda op: len(path_parameters(op)))

    def _variant(self, op: Op) -> str:
        """Return which of several routes was selected, for an error message."""
        names = sorted(path_parameters(op).difference(self.fixed))
        return f" with {' and '.join(names)}" if len(self.ops) > 1 and names else ""


def path_parameters(op: Op) -> set[str]:
    """Return the names of the parameters in an operation's path."""
    return {camel(name) for name in PARAMETER.findall(op.path)}


def query_fields(op: Op) -> list[str]:
    """Return the names in an operation's query string."""
    return [camel(name) for name in op.query.model_fields]


def fields_of(op: Op) -> list[str]:
    """Return the names in an operation's query string and body."""
    return [*query_fields(op), *(camel(name) for name in (op.body.model_fields if op.body else ()))]


def is_keyed(op: Op) -> bool:
    """Return whether an operation accepts an Idempotency-Key."""
    return op.repeat in (Repeat.KEYED, Repeat.KEPT)


def as_query(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a query string for a JSON value; null is left out."""
    if name == "attributes" and isinstance(value, dict):
        for attribute, wanted in value.items():
            is_range = isinstance(wanted, dict) and bool(wanted) and wanted.keys() <= SIDES
            for side, each in wanted.items() if is_range else [("", wanted)]:
                parameter = f"attr.{attribute}.{side}" if side else f"attr.{attribute}"
                for one in _values(each, f"attributes.{attribute}"):
                    yield parameter, json.dumps(_scalar(one, attribute))
        return
    for each in _values(value, name):
        yield name, each if isinstance(each, str) else json.dumps(each)


def _values(value: Any, name: str) -> list[Any]:
    """Return the values of a filter. An empty list is refused: in a query string it would mean no filter at all."""
    if value in ([], {}):
        raise InvalidValue(f"{name} must not be empty: leave it out, or give at least one value")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _scalar(value: Any, attribute: str) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise InvalidValue(
            f"attributes.{attribute} must be a string, a number, true or false; a list of these; or an object of gt, "
            f"gte, lt and lte; got {shown(value)}"
        )
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a string that is not empty, got {shown(value)}")
    return value


def _ops(*names: str) -> tuple[Op, ...]:
    found = {f"{op.method} {op.path}": op for op in TABLE}
    return tuple(found[name] for name in names)


def _tool(name: str, about: str, *ops: str, **defaults: Any) -> McpTool:
    return McpTool(name, about, _ops(*ops), defaults)


TOOLS = (
    _tool(
        "create_run",
        "Create a run of a clog: pending with an input, idle without. With waitMs the run is advanced, and the call "
        "returns when it has settled or the time is over; without, it is advanced after the call has returned.",
        "POST /v1/runs",
    ),
    _tool(
        "get_run",
        "Get a run: status, attempt, output, error with its place and traceback, and what it waits for.",
        "GET /v1/runs/{run_id}",
    ),
    _tool(
        "list_runs",
        "Find runs by clog, session, status, parent, times and attributes; newest first. Continue with nextCursor.",
        "GET /v1/runs",
        limit=PAGE,
    ),
    _tool(
        "signal_run",
        "Send an input to a run; signalId makes it idempotent. With waitMs the call returns when the run has settled.",
        "POST /v1/runs/{run_id}/signal",
    ),
    _tool(
        "call_method",
        "Call a method of a run's clog, or with clogId of a clog, optionally in a session; returns at once.",
        "POST /v1/runs/{run_id}/call/{method}",
        "POST /v1/clogs/{clog_id}/call/{method}",
    ),
    _tool("cancel_run", "End a run as failed, with the code cancelled.", "POST /v1/runs/{run_id}/cancel"),
    _tool("pause_run", "Pause a run; signals are queued.", "POST /v1/runs/{run_id}/pause"),
    _tool("resume_run", "Resume a paused run.", "POST /v1/runs/{run_id}/resume"),
    _tool("retry_run", "Retry a failed run as a new run.", "POST /v1/runs/{run_id}/retry"),
    _tool(
        "explain_run",
        "Explain why a run is not advancing: every condition that holds it back, and what removes it.",
        "GET /v1/runs/{run_id}/explain",
    ),
    _tool(
        "read_events",
        "Read a page of the log: of a run, a session, a clog's runs, or of everything. Continue with after = "
        "nextCursor; after = latest selects only future events.",
        "GET /v1/runs/{run_id}/events",
        "GET /v1/sessions/{session_id}/events",
        "GET /v1/clogs/{clog_id}/events",
        "GET /v1/events",
        limit=PAGE,
    ),
    _tool("list_ticks", "List the ticks of a run with their outcomes.", "GET /v1/runs/{run_id}/ticks", limit=PAGE),
    _tool("list_inputs", "List a run's inbox, delivered inputs included.", "GET /v1/runs/{run_id}/inputs", limit=PAGE),
    _tool(
        "advance",
        "Advance due runs, or one run. dryRun shows a run's next tick and changes nothing.",
        "POST /v1/advance",
    ),
    _tool("list_clogs", "List the clogs, with the verbs that each allows for its runs.", "GET /v1/clogs"),
)


def method_tools(clogs: Iterable[Clog]) -> list[McpTool]:
    """Return the methods of clogs that allow calls. A name that two methods would share is left out."""
    tools = [
        _method_tool(clog, name, method)
        for clog in clogs
        if "call" in clog.allows
        for name, method in sorted(clog.methods.items())
    ]
    count = Counter(tool.name for tool in (*TOOLS, *tools))
    return [tool for tool in tools if TOOL_NAME.fullmatch(tool.name) and count[tool.name] == 1]


def _method_tool(clog: Clog, name: str, method: Callable[..., Any]) -> McpTool:
    (call_method,) = (tool for tool in TOOLS if tool.name == "call_method")
    doc = inspect.getdoc(method)
    about = f"{doc.strip()}\n\n" if doc else ""
    return McpTool(
        f"{clog.clog_id}__{name}",
        f"{about}Method {name} of clog {clog.clog_id}: of a run with runId, otherwise optionally in a session.",
        call_method.ops,
        fixed={"clogId": clog.clog_id, "method": name},
        payload=payload_schema(method),
    )


def payload_schema(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema for the annotation of the second parameter; an empty one if it has none for JSON."""
    try:
        names = [*inspect.signature(method).parameters]
        hint = get_type_hints(method, include_extras=True).get(names[1], Any)
        return TypeAdapter(hint).json_schema(ref_template=f"{SCHEMAS}{{model}}")
    except (PydanticUserError, NameError, TypeError, ValueError, IndexError):
        return {}
