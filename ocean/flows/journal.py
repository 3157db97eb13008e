"""What a flow remembers, as one row: its input, what its operations came to, and what has arrived for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from ocean.state.errors import ClogError
from ocean.state.records import Input, InputKind
from ocean.state.values import encode

FORMAT = 1
MOST_ENTRIES = 1_000
MOST_BYTES = 512 * 1024
"""A journal beyond either is held. The row itself may have 1 MiB: the rest is for the last result and the signals."""
MOST_RESULT_BYTES = 256 * 1024

Kind = Literal[
    "step", "undo", "sleep", "signal", "start", "join", "gather", "patch", "now", "random", "uuid", "emit", "stream",
    "send", "attributes", "take", "call",
]  # fmt: skip


@dataclass(slots=True)
class Entry:
    """One operation: what the code asked for, and what came of it. `undo` orders what is to be undone, last first."""

    kind: Kind
    name: str
    is_done: bool = False
    value: Any = None
    error: dict[str, Any] | None = None
    attempts: int = 0
    began_at: int = 0
    until: int | None = None
    undo: int = 0

    def as_json(self) -> dict[str, Any]:
        """What is not as it is by default. A value of 0 or False is no default."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "value"}
        kept = {name: value for name, value in said.items() if value not in (None, 0)}
        return kept if self.value is None else kept | {"value": self.value}


@dataclass(slots=True)
class Journal:
    """`key` begins the idempotency keys of the steps; `failing` is the error with which the flow will end.

    `run_id` is the run that the flow is about: another than its own if it undoes what that one did (`is_undo_run`).
    """

    key: str
    run_id: str
    input: Any = None
    generation: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    signals: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    failing: dict[str, Any] | None = None
    held: dict[str, Any] | None = None
    is_undo_run: bool = False
    size: int = 0

    @classmethod
    def load(cls, row: Any) -> Self:
        if not isinstance(row, dict) or row.get("flow") != FORMAT:
            raise ClogError(
                "the run row of a flow is its journal, and holds something else now: let the clog's methods write "
                "session rows, or send the flow a signal"
            )
        said = {name: value for name, value in row.items() if name != "flow"}
        journal = cls(**said | {"entries": {place: Entry(**entry) for place, entry in said["entries"].items()}})
        journal.size = len(encode(row))
        return journal

    def as_json(self) -> dict[str, Any]:
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "size"}
        return {"flow": FORMAT, **said, "entries": {place: entry.as_json() for place, entry in self.entries.items()}}

    def receive(self, inputs: Sequence[Input]) -> None:
        """Keep what has arrived until an operation asks for it."""
        for each in inputs:
            match each.kind:
                case InputKind.SIGNAL | InputKind.TIMER:
                    self.signals.append(_signal(each))
                case InputKind.CHILD:
                    self.ends[each.body["run_id"]] = {name: each.body[name] for name in ("status", "output", "error")}
                case InputKind.CREATED | InputKind.CONTINUE:
                    pass

    def begun_again(self, state: Any) -> "Journal":
        """The next generation: nothing of the code so far, everything that nobody has asked for yet."""
        return Journal(self.key, self.run_id, state, self.generation + 1, signals=self.signals, ends=self.ends)

    @property
    def undoable(self) -> list[str]:
        """Names of the steps that would be undone, the last one first, unless they have been."""
        done = sorted((entry for entry in self.entries.values() if entry.undo), key=lambda entry: -entry.undo)
        undone = {entry.name for entry in self.entries.values() if entry.kind == "undo" and entry.is_done}
        return [entry.name for entry in done if undo_name(entry.name) not in undone]


def undo_name(step: str) -> str:
    return f"undo/{step}"


def undone_name(undo: Entry) -> str:
    return undo.name.removeprefix("undo/")


def _signal(each: Input) -> dict[str, Any]:
    said = {"number": each.number, "kind": each.kind, "body": each.body, "available_at": each.available_at}
    more = {"signal_id": each.signal_id, "timer": each.timer, "actor": each.actor}
    return said | {name: value for name, value in more.items() if value is not None}


def signal_from(said: Mapping[str, Any]) -> Input:
    return Input(**{**said, "kind": InputKind(said["kind"])})


def what_it_waits_for(row: Any) -> str | None:
    """For `explain`, from the row alone: why the flow does not go on."""
    try:
        journal = Journal.load(row)
    except ClogError as error:
        return str(error)
    if journal.held is not None:
        return f"the flow is held: {journal.held['message']}"
    open_ = [entry for entry in journal.entries.values() if not entry.is_done and entry.kind not in ("gather", "patch")]
    told = [_waiting(entry) for entry in open_[:5]]
    rest = [f"{len(open_) - 5} more"] if len(open_) > 5 else []
    return f"the flow waits for {' and '.join(told + rest)}" if told else None


def _waiting(entry: Entry) -> str:
    until = "" if entry.until is None else f" until {entry.until}"
    match entry.kind:
        case "step" | "undo":
            step = f"the undoing of {undone_name(entry)!r}" if entry.kind == "undo" else f"step {entry.name!r}"
            message = (entry.error or {}).get("message")
            return f"{step}, which is tried again at {entry.until} after {message!r}"
        case "join":
            return f"child {entry.value}"
        case _:
            return f"{entry.kind} {entry.name!r}{until}"
