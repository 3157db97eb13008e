"""Tools: the clog's only hands, each with a name, a JSON Schema, and a check that the clog may use it."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ocean.kernel.arguments import CLEAR, UNSET
from ocean.state.attributes import Within
from ocean.state.errors import ToolNotAllowed
from ocean.state.records import Key

if TYPE_CHECKING:
    from ocean.clog.clog import Clog
    from ocean.kernel.tick import Tick


class ToolInput(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


LEFT_OUT: Any = Field(default_factory=lambda: UNSET)
"""A field that may be left out, which is not the same as null; its schema shows no default."""


class ReadScoped(ToolInput):
    """Name every row that is to be written: a clog has one read per tick."""

    run: bool = False
    session: bool = False
    global_: bool = Field(default=False, alias="global")
    tick: list[str] = []
    runs: list[str] = []
    keys: list[str] = []
    ticks: list[int] = []
    history: int = 0
    guard: bool = False


class WriteScoped(ToolInput):
    """Rows to replace; those under `clear` are removed. Every row must have been read."""

    run: Any = LEFT_OUT
    session: Any = LEFT_OUT
    global_: Any = Field(default_factory=lambda: UNSET, alias="global")
    tick: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    clear: list[Literal["run", "session", "global"]] = []
    delete_ticks: list[int] = []
    delete_runs: list[str] = []
    delete_session: bool = False


class EmitEvent(ToolInput):
    type: str
    payload: Any = None


class CallClog(ToolInput):
    clog_id: str
    method: str
    payload: Any = None


class HeldKey(ToolInput):
    name: str
    hold: Literal["tick", "run"] = "tick"


class CreateRun(ToolInput):
    clog_id: str
    input: Any = LEFT_OUT
    session_id: str | None = None
    run_id: str | None = None
    priority: int = 5
    attributes: dict[str, str | int | float | bool] = {}
    deadline_at: int | None = None
    dedupe_key: str | None = None
    dedupe_ms: int | None = None
    concurrency_keys: list[str | HeldKey] = []
    queue: str | None = None
    rate_key: str | None = None
    rate_limit: int | None = None
    rate_per_ms: int | None = None
    notify_parent: bool = False
    on_parent_end: Literal["live", "cancel"] = "live"


class SignalRun(ToolInput):
    run_id: str
    input: Any = LEFT_OUT
    signal_id: str | None = None
    deliver_at: int | None = None
    required: bool = False


class GetRun(ToolInput):
    run_id: str


Status = Literal["idle", "pending", "active", "waiting", "done", "failed"]


class WithinInput(ToolInput):
    """A range of values: gt or gte, lt or lte, or one of each."""

    gt: str | int | float | None = None
    gte: str | int | float | None = None
    lt: str | int | float | None = None
    lte: str | int | float | None = None


class ListRuns(ToolInput):
    """Lists mean any of their values; times are half-open; one attribute may have a range, which sets the order."""

    clog_id: str | list[str] | None = None
    session_id: str | list[str] | None = None
    status: Status | list[Status] | None = None
    parent_run_id: str | list[str] | None = None
    created_from: int | None = None
    created_until: int | None = None
    ended_from: int | None = None
    ended_until: int | None = None
    attributes: dict[str, str | int | float | bool | list[str | int | float | bool] | WithinInput] = {}
    order: Literal["newest", "oldest", "ascending", "descending"] | None = None
    limit: int = 100
    cursor: str | None = None


class SetAttributes(ToolInput):
    attributes: dict[str, str | int | float | bool | None]


class SetTimerInput(ToolInput):
    name: str
    at: int | None = None
    after_ms: int | None = None
    input: Any = None


class CancelTimerInput(ToolInput):
    name: str


class TakeInput(ToolInput):
    """Without `per_ms` a total; with it, `limit` come back in every `per_ms`. `n` = 0 only looks."""

    key: str
    n: int = 1
    limit: int | None = None
    per_ms: int | None = None
    refill: Literal["steady", "at_once"] = "steady"


class PendingInput(ToolInput):
    limit: int = 100


class NoInput(ToolInput):
    pass


class FetchInput(ToolInput):
    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    timeout_ms: int = 10_000
    max_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """`reaches_out`: it acts outside the database, so a clog has it only if it lists it. `invoke` is the house's own;
    a tool without one that has an `input` is an author's. `denied` is the pattern that denies it on this instance.
    """

    name: str
    description: str
    input: type[BaseModel] | None
    invoke: Callable[["Tick", Any], Awaitable[Any]] | None
    reaches_out: bool = False
    dangerous: bool = False
    denied: str | None = None

    def json_schema(self) -> dict[str, Any]:
        """Of its input."""
        return self.input.model_json_schema(by_alias=True) if self.input else {}


def _given(model: ToolInput) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.model_fields_set}


async def _read(tick: "Tick", ask: ReadScoped) -> Any:
    rows = asdict(await tick.read(**_given(ask)))
    return rows | {"global": rows.pop("global_")}


async def _write(tick: "Tick", ask: WriteScoped) -> Any:
    values = _given(ask)
    names = {"run": "run", "session": "session", "global": "global_"}
    await tick.write(**values | {names[scope]: CLEAR for scope in values.pop("clear", [])})


async def _take(tick: "Tick", ask: TakeInput) -> Any:
    return asdict(await tick.take(**_given(ask)))


async def _create(tick: "Tick", ask: CreateRun) -> Any:
    keys = [key if isinstance(key, str) else Key(key.name, key.hold) for key in ask.concurrency_keys]
    return await tick.create_run(**_given(ask) | {"concurrency_keys": keys})


async def _list(tick: "Tick", ask: ListRuns) -> Any:
    values = _given(ask)
    for name, value in ask.attributes.items():
        if isinstance(value, WithinInput):
            values["attributes"] = values["attributes"] | {name: Within(**_given(value))}
    page = await tick.list_runs(**values)
    return {"runs": [asdict(run) for run in page.runs], "next_cursor": page.next_cursor}


async def _get(tick: "Tick", ask: GetRun) -> Any:
    run = await tick.get_run(ask.run_id)
    return None if run is None else asdict(run)


async def _clogs(tick: "Tick", ask: NoInput) -> Any:
    return [asdict(clog) for clog in await tick.list_clogs()]


async def _pending(tick: "Tick", ask: PendingInput) -> Any:
    return [asdict(each) for each in await tick.pending(**_given(ask))]


async def _fetch(tick: "Tick", ask: FetchInput) -> Any:
    values = _given(ask)
    if "body" in values:
        values["body"] = None if ask.body is None else ask.body.encode()
    response = await tick.fetch(**values)
    return {
        "status": response.status,
        "headers": response.headers,
        "text": response.text,
        "url": response.url,
    }


TOOLS: dict[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        ToolSpec("ocean.storage.read_scoped", "Read rows: the clog's one read of this tick.", ReadScoped, _read),
        ToolSpec("ocean.storage.write_scoped", "Write rows: the clog's one write.", WriteScoped, _write),
        ToolSpec(
            "ocean.events.emit",
            "Append an event with the commit.",
            EmitEvent,
            lambda t, i: t.emit(**_given(i)),
        ),
        ToolSpec("ocean.events.stream", "Append an event at once.", EmitEvent, lambda t, i: t.stream(**_given(i))),
        ToolSpec("ocean.clog.call", "Call a method of a clog.", CallClog, lambda t, i: t.call(**_given(i))),
        ToolSpec("ocean.clogs.list", "List the clogs of all instances.", NoInput, _clogs),
        ToolSpec("ocean.runs.create", "Create a child run.", CreateRun, _create),
        ToolSpec("ocean.runs.signal", "Signal a run.", SignalRun, lambda t, i: t.signal(**_given(i))),
        ToolSpec("ocean.inbox.pending", "See what has come for this run since its tick began.", PendingInput, _pending),
        ToolSpec("ocean.runs.list", "List runs by clog, status, session, parent, times, attributes.", ListRuns, _list),
        ToolSpec("ocean.runs.get", "Show a run as it is now.", GetRun, _get),
        ToolSpec(
            "ocean.runs.set_attributes",
            "Set what this run is found by.",
            SetAttributes,
            lambda t, i: t.set_attributes(**i.attributes),
        ),
        ToolSpec(
            "ocean.runs.release_dedupe_key",
            "Free this run's dedupe key.",
            NoInput,
            lambda t, i: t.release_dedupe_key(),
        ),
        ToolSpec("ocean.timers.set", "Set a named timer.", SetTimerInput, lambda t, i: t.set_timer(**_given(i))),
        ToolSpec(
            "ocean.timers.cancel",
            "Cancel a named timer.",
            CancelTimerInput,
            lambda t, i: t.cancel_timer(i.name),
        ),
        ToolSpec("ocean.counters.take", "Take from a counter: a cap, a quota, a rate.", TakeInput, _take),
        ToolSpec("ocean.http.fetch", "Make an HTTP request to a public address.", FetchInput, _fetch, True),
        ToolSpec("ocean.steps.run", "Run a function once and remember its result (from code only).", None, None),
    )
}


def is_allowed(clog: "Clog", tool: str) -> bool:
    """A clog has what it lists and what is in its tool box; without a list, also the house's that stay inside."""
    if tool in clog.toolbox or clog.tools is not None:
        return tool in clog.toolbox or tool in (clog.tools or ())
    return tool in TOOLS and not TOOLS[tool].reaches_out


def check_allowed(clog: "Clog", tool: str) -> None:
    if not is_allowed(clog, tool):
        raise ToolNotAllowed(f"clog {clog.clog_id!r} may not use {tool}; list it in Clog(..., tools=[…])", tool=tool)
