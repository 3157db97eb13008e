"""The tools: each is a name for routes of the table, and what it takes is what they take."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ocean.http.framework.openapi import PARAMETER
from ocean.http.framework.operation import Op, Repeat, Scope
from ocean.http.framework.query_strings import SIDES
from ocean.http.framework.wire import camel
from ocean.http.routes import TABLE
from ocean.mcp.in_process import Asked
from ocean.state.errors import InvalidValue, near_name
from ocean.state.values import shown

REQUEST_KEY = "idempotencyKey"
PAGE = 20
"""Instead of a hundred: what is answered here is read by a model."""


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """`ops` differ in their places: the one is meant whose places are named.

    `fixed` is said for the caller, who cannot say it; `defaults` are, unless the caller says otherwise.
    """

    name: str
    about: str
    ops: tuple[Op, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    payload: Any = None
    """The schema of a method's payload, where that is known."""

    @property
    def scope(self) -> Scope:
        """The same for all that it may mean."""
        return self.ops[0].scope

    @property
    def is_reading(self) -> bool:
        return all(op.repeat is Repeat.SAFE for op in self.ops)

    def asked(self, arguments: Mapping[str, Any]) -> Asked:
        """The request that a call means. Only names are looked at here; values are for the application to judge."""
        op = self._meant({*self.fixed, *arguments})
        takes = [*sorted(places_of(op)), *fields_of(op), *([REQUEST_KEY] if is_keyed(op) else [])]
        takes = [name for name in takes if name not in self.fixed]
        for name in arguments:
            if name not in takes:
                raise InvalidValue(f"{self.name}{self._how(op)} takes no {name!r}; {near_name(name, takes)}")
        known = {*fields_of(op), *places_of(op)}
        said = {name: value for name, value in {**self.defaults, **self.fixed}.items() if name in known}
        said |= arguments
        places = {name: _text(said.pop(camel(name)), camel(name)) for name in PARAMETER.findall(op.path)}
        key = said.pop(REQUEST_KEY, None)
        in_query = query_fields(op)
        return Asked(
            op.method,
            PARAMETER.sub(lambda match: quote(places[match[1]], safe=""), op.path),
            tuple(pair for name in in_query if name in said for pair in as_query(name, said[name])),
            {name: value for name, value in said.items() if name not in in_query} if op.body else None,
            None if key is None else _text(key, REQUEST_KEY),
        )

    def _meant(self, named: set[str]) -> Op:
        fitting = [op for op in self.ops if places_of(op) <= named]
        if not fitting:
            ways = " or ".join(" and ".join(sorted(places_of(op))) for op in self.ops)
            raise InvalidValue(f"{self.name} needs {ways}")
        return max(fitting, key=lambda op: len(places_of(op)))

    def _how(self, op: Op) -> str:
        """Which of several it was taken for."""
        places = sorted(places_of(op).difference(self.fixed))
        return f" with {' and '.join(places)}" if len(self.ops) > 1 and places else ""


def places_of(op: Op) -> set[str]:
    return {camel(name) for name in PARAMETER.findall(op.path)}


def query_fields(op: Op) -> list[str]:
    return [camel(name) for name in op.query.model_fields]


def fields_of(op: Op) -> list[str]:
    """The names that it takes besides its places."""
    return [*query_fields(op), *(camel(name) for name in (op.body.model_fields if op.body else ()))]


def is_keyed(op: Op) -> bool:
    return op.repeat in (Repeat.KEYED, Repeat.KEPT)


def as_query(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """JSON as a query string has it; what is null is left out."""
    if name == "attributes" and isinstance(value, dict):
        for attribute, wanted in value.items():
            is_range = isinstance(wanted, dict) and bool(wanted) and wanted.keys() <= SIDES
            for side, each in wanted.items() if is_range else [("", wanted)]:
                place = f"attr.{attribute}.{side}" if side else f"attr.{attribute}"
                for one in _several(each, f"attributes.{attribute}"):
                    yield place, json.dumps(_scalar(one, attribute))
        return
    for each in _several(value, name):
        yield name, each if isinstance(each, str) else json.dumps(each)


def _several(value: Any, name: str) -> list[Any]:
    """A query string cannot say "none of them", and leaving a filter out would mean all."""
    if value in ([], {}):
        raise InvalidValue(f"{name} is empty: leave it out, or say at least one value")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _scalar(value: Any, attribute: str) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise InvalidValue(
            f"attributes.{attribute} is a text, a number, true or false; a list of these; or an object of gt, gte, lt "
            f"and lte; got {shown(value)}"
        )
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} is a text, got {shown(value)}")
    return value


def _ops(*names: str) -> tuple[Op, ...]:
    found = {f"{op.method} {op.path}": op for op in TABLE}
    return tuple(found[name] for name in names)


def _tool(name: str, about: str, *ops: str, **defaults: Any) -> Tool:
    return Tool(name, about, _ops(*ops), defaults)


TOOLS = (
    _tool(
        "create_run",
        "Create a run of a clog: pending with an input, idle without. With waitMs it is advanced, and answered when it "
        "has settled or the time is over; without, it is worked on behind the answer.",
        "POST /v1/runs",
    ),
    _tool("get_run", "Look at a run: status, attempt, output, error, what it waits for.", "GET /v1/runs/{run_id}"),
    _tool(
        "list_runs",
        "Find runs by clog, session, status, parent, times and attributes; newest first. Go on with nextCursor.",
        "GET /v1/runs",
        limit=PAGE,
    ),
    _tool(
        "signal_run",
        "Give a run an input. signalId makes that idempotent. With waitMs it is answered when the run has settled.",
        "POST /v1/runs/{run_id}/signal",
    ),
    _tool(
        "call_method",
        "Call a method of a run's clog, or with clogId of a clog, perhaps in a session; answered at once.",
        "POST /v1/runs/{run_id}/call/{method}",
        "POST /v1/clogs/{clog_id}/call/{method}",
    ),
    _tool("cancel_run", "End a run as failed, with the code cancelled.", "POST /v1/runs/{run_id}/cancel"),
    _tool("pause_run", "Hold a run back; signals queue.", "POST /v1/runs/{run_id}/pause"),
    _tool("resume_run", "Let a paused run go on.", "POST /v1/runs/{run_id}/resume"),
    _tool("retry_run", "Begin a failed run anew, as another run.", "POST /v1/runs/{run_id}/retry"),
    _tool(
        "explain_run",
        "Why a run is not moving: every condition that holds it back, and what lifts it.",
        "GET /v1/runs/{run_id}/explain",
    ),
    _tool(
        "read_events",
        "A page of the log: of a run, a session, a clog's runs, or of everything. Go on with after = nextCursor; "
        "after = latest is for what is still to come.",
        "GET /v1/runs/{run_id}/events",
        "GET /v1/sessions/{session_id}/events",
        "GET /v1/clogs/{clog_id}/events",
        "GET /v1/events",
        limit=PAGE,
    ),
    _tool("list_ticks", "What each tick of a run answered.", "GET /v1/runs/{run_id}/ticks", limit=PAGE),
    _tool("list_inputs", "A run's inbox, delivered or not.", "GET /v1/runs/{run_id}/inputs", limit=PAGE),
    _tool(
        "advance",
        "Do what is due, or what is due of one run. dryRun shows a run's next tick and changes nothing.",
        "POST /v1/advance",
    ),
    _tool("list_clogs", "The clogs, with what each allows to be done with its runs here.", "GET /v1/clogs"),
)
