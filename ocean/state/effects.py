"""The effects of one call of a handler or method: buffered while it runs, committed together or not at all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.records import Key

Scope = Literal["global", "session", "run", "tick"]


class RowKey(NamedTuple):
    """The address of one storage row. A tuple, because a tick that reads and writes hashes it about twenty times."""

    scope: Scope
    clog_id: str
    session_id: str = ""
    run_id: str = ""
    tick: int = 0
    row_id: str = ""

    @property
    def text(self) -> str:
        """The address as one text, to be used as a key."""
        return "\x1f".join((self.scope, self.clog_id, self.session_id, self.run_id, str(self.tick), self.row_id))


class StoredRow(NamedTuple):
    """A row as read; version 0 without text means that it is absent."""

    version: int = 0
    text: str | None = None


ABSENT = StoredRow()


Apply = Callable[[str | None], str | None]


class RowWrite(NamedTuple):
    """A write of one row; `text=None` removes it. With `apply`, the row becomes apply(its text at commit), and its
    version is not checked.

    `seen` is the text that was read: a store that applies functions outside the database starts from it.
    """

    key: RowKey
    version: int
    text: str | None = None
    apply: Apply | None = None
    seen: str | None = None


class NewEvent(NamedTuple):
    type: str
    payload: str
    clog_id: str
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Debounce:
    """Start when no further creation has come for `ms`, at the latest `max_ms` after the first."""

    ms: int
    max_ms: int | None


class NewRun(NamedTuple):
    run_id: str
    is_id_given: bool
    session_id: str
    clog_id: str
    input: str | None
    retry: RetryPolicy
    priority: int
    attributes: Mapping[str, Any]
    deadline_at: int | None
    dedupe_key: str | None
    dedupe_ms: int | None
    body_hash: str
    parent_run_id: str | None = None
    notify_parent: bool = False
    on_parent_end: Literal["live", "cancel"] = "live"
    actor: str | None = None
    concurrency_keys: tuple[Key, ...] = ()
    queue: str | None = None
    rate: Take | None = None
    debounce: Debounce | None = None
    correlation_id: str | None = None
    retry_of: str | None = None


@dataclass(frozen=True, slots=True)
class NewSignal:
    run_id: str
    body: str | None
    body_hash: str
    signal_id: str | None = None
    deliver_at: int | None = None
    if_idle: bool = False
    actor: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    name: str
    at: int
    body: str | None


@dataclass(frozen=True, slots=True)
class CancelTimer:
    name: str


@dataclass(slots=True, eq=False)
class Effects:
    """What one call of a handler or method wants to change.

    `delete_runs` are (clog_id, run_id): a nested call has the rights of its own clog.
    """

    writes: list[RowWrite] = field(default_factory=list)
    guards: list[tuple[RowKey, int]] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    signals: list[NewSignal] = field(default_factory=list)
    runs: list[NewRun] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    takes: list[Take] = field(default_factory=list)
    delete_runs: list[tuple[str, str]] = field(default_factory=list)
    delete_ticks: list[int] = field(default_factory=list)
    delete_session_by: str | None = None
    release_dedupe_key: bool = False

    def absorb(self, other: "Effects") -> None:
        """Add the effects of a nested call."""
        for name in self.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, list):
                mine.extend(theirs)
            elif isinstance(mine, dict):
                mine.update(theirs)
            else:
                setattr(self, name, theirs or mine)

    @property
    def contested_keys(self) -> list[RowKey]:
        """The rows that must not change until this call commits; a turn reserves them."""
        return [write.key for write in self.writes] + [key for key, _ in self.guards]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be changed. Guards change nothing and are ignored."""
        return not (
            self.writes
            or self.events
            or self.signals
            or self.runs
            or self.timers
            or self.attributes
            or self.takes
            or self.delete_runs
            or self.delete_ticks
            or self.delete_session_by
            or self.release_dedupe_key
        )
