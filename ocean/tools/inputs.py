"""The inputs of the built-in tools, as models; their JSON Schemas are what agents see."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ocean.kernel.arguments import UNSET


class ToolInput(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


LEFT_OUT: Any = Field(default_factory=lambda: UNSET)
"""A field that may be left out, which differs from null; its schema shows no default."""


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
    """Rows to replace; those in `clear` are removed. Every row must have been read."""

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
    """Lists match any of their values; times are half-open; one attribute may have a range, which sets the order."""

    clog_id: str | list[str] | None = None
    session_id: str | list[str] | None = None
    status: Status | list[Status] | None = None
    parent_run_id: str | list[str] | None = None
    created_from: int | None = None
    created_until: int | None = None
    ended_from: int | None = None
    ended_until: int | None = None
    attributes: dict[str, str | int | float | bool | list[str | int | float | bool] | WithinInput] = {}
    end_incomplete: bool | None = None
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
