"""The built-in tools: each has a name, a JSON Schema, and a check that the clog may use it."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ocean.kernel.arguments import CLEAR
from ocean.state.attributes import Within
from ocean.state.records import Key
from ocean.tools.inputs import (
    CallClog,
    CancelTimerInput,
    CreateRun,
    EmitEvent,
    FetchInput,
    GetRun,
    ListRuns,
    NoInput,
    PendingInput,
    ReadScoped,
    SetAttributes,
    SetTimerInput,
    SignalRun,
    TakeInput,
    ToolInput,
    WithinInput,
    WriteScoped,
)

if TYPE_CHECKING:
    from ocean.kernel.tick import Tick


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is listed. With `reaches_out` it acts outside the database, so a clog has it only if it lists it.

    Built-in tools have `invoke`; a tool with `input` and without `invoke` is an author's. `denied` is the pattern that
    denies it on this instance.
    """

    name: str
    description: str
    input: type[BaseModel] | None
    invoke: Callable[["Tick", Any], Awaitable[Any]] | None
    reaches_out: bool = False
    dangerous: bool = False
    denied: str | None = None

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its input."""
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
        ToolSpec("ocean.inbox.pending", "Show inputs that came since this tick began.", PendingInput, _pending),
        ToolSpec("ocean.runs.list", "List runs by clog, status, session, parent, times, attributes.", ListRuns, _list),
        ToolSpec("ocean.runs.get", "Show a run as it is now.", GetRun, _get),
        ToolSpec(
            "ocean.runs.set_attributes",
            "Set attributes of this run, by which queries find it.",
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
        ToolSpec("ocean.steps.run", "Run a function once and store its result (from code only).", None, None),
    )
}
