"""The journal of a flow, stored as one row: its input, the results of its operations, and inputs not yet taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, assert_never

from ocean.state.errors import ClogError
from ocean.state.outcomes import place_text
from ocean.state.records import Input, InputKind
from ocean.state.values import encode

FORMAT = 1
MOST_ENTRIES = 1_000
MOST_BYTES = 512 * 1024
"""A flow whose journal exceeds either is held. The row may have 1 MiB: the rest is for the last result and signals."""
MOST_RESULT_BYTES = 256 * 1024

Kind = Literal[
    "step", "undo", "sleep", "signal", "start", "join", "gather", "patch", "now", "random", "uuid", "emit", "stream",
    "send", "attributes", "take", "call",
]  # fmt: skip


@dataclass(slots=True)
class Entry:
    """One operation and its result. Steps with an `undo` number are undone in descending order.

    A step gets this number when it is begun, before its effect, and another one when it is done. `is_cancelled` is
    where the flow waited when its run was ended: there `Cancelled` is raised.
    """

    kind: Kind
    name: str
    is_done: bool = False
    value: Any = None
    error: dict[str, Any] | None = None
    attempts: int = 0
    began_at: int = 0
    until: int | None = None
    undo: int = 0
    is_cancelled: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults. A `value` of 0 or False is kept."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "value"}
        kept = {name: value for name, value in values.items() if value not in (None, 0)}
        return kept if self.value is None else kept | {"value": self.value}


@dataclass(slots=True)
class Journal:
    """`key` is the prefix of the steps' idempotency keys; `failing` is the error with which the flow will end.

    `run_id` is the run of the flow. A run that cleans up after another run (`is_undo_run`) has that run's id here.
    `ending` is set if the kernel has ended the run: then `Cancelled` is raised where the flow waits. `broken` is the
    error with which its handlers have failed after that. With `looks`, steps of `run_id` may have stored more than the
    journal has: its last tick could not find out, because the code did not fit.
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
    ending: dict[str, Any] | None = None
    broken: dict[str, Any] | None = None
    looks: bool = False
    size: int = 0

    @classmethod
    def load(cls, row: Any) -> Self:
        """Return the journal of a run row."""
        if not isinstance(row, dict) or row.get("flow") != FORMAT:
            raise ClogError(
                "the run row of a flow must be its journal, but something else was written there: let the clog's "
                "methods write session rows, or signal the flow"
            )
        values = {name: value for name, value in row.items() if name != "flow"}
        journal = cls(**values | {"entries": {place: Entry(**entry) for place, entry in values["entries"].items()}})
        journal.size = len(encode(row))
        return journal

    def as_json(self) -> dict[str, Any]:
        """Return the run row."""
        left_out = {"size", *(name for name in ("ending", "broken", "looks") if not getattr(self, name))}
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in left_out}
        return {"flow": FORMAT, **values, "entries": {place: entry.as_json() for place, entry in self.entries.items()}}

    def receive(self, inputs: Sequence[Input]) -> None:
        """Keep the inputs of a tick until an operation takes them."""
        for each in inputs:
            match each.kind:
                case InputKind.SIGNAL | InputKind.TIMER:
                    self.signals.append(_signal_to_json(each))
                case InputKind.CHILD:
                    self.ends[each.body["run_id"]] = {name: each.body[name] for name in ("status", "output", "error")}
                case InputKind.CREATED | InputKind.CONTINUE:
                    pass
                case _:
                    assert_never(each.kind)

    def next_generation(self, state: Any) -> "Journal":
        """Return a journal without operations, for `flow.again`. Signals and ends of children are kept."""
        return Journal(self.key, self.run_id, state, self.generation + 1, signals=self.signals, ends=self.ends)

    @property
    def next_undo(self) -> int:
        """The number of the next step that is to be undone."""
        return 1 + max((each.undo for each in self.entries.values()), default=0)

    @property
    def undoable(self) -> list[str]:
        """The names of the steps that may have had an effect and have not been undone, the last step first."""
        done = sorted((entry for entry in self.entries.values() if entry.undo), key=lambda entry: -entry.undo)
        undone = {entry.name for entry in self.entries.values() if entry.kind == "undo" and entry.is_done}
        return [entry.name for entry in done if undo_name(entry.name) not in undone]


def undo_name(step: str) -> str:
    """Return the name of the operation that undoes a step."""
    return f"undo/{step}"


def undone_name(undo: Entry) -> str:
    """Return the name of the step that an operation undoes."""
    return undo.name.removeprefix("undo/")


def _signal_to_json(each: Input) -> dict[str, Any]:
    always = {"number": each.number, "kind": each.kind, "body": each.body, "available_at": each.available_at}
    optional = {"signal_id": each.signal_id, "timer": each.timer, "actor": each.actor}
    return always | {name: value for name, value in optional.items() if value is not None}


def signal_from(stored: Mapping[str, Any]) -> Input:
    """Return a signal that the journal has stored."""
    return Input(**{**stored, "kind": InputKind(stored["kind"])})


def explain_wait(row: Any) -> str | None:
    """Return what the flow waits for, from its row alone; None if nothing. For `explain`."""
    try:
        journal = Journal.load(row)
    except ClogError as error:
        return str(error)
    if journal.held is not None:
        return f"the flow is held: {journal.held['message']}"
    open_ = [entry for entry in journal.entries.values() if _is_waited_for(entry)]
    reasons = [_wait_of(entry) for entry in open_[:5]]
    rest = [f"{len(open_) - 5} more"] if len(open_) > 5 else []
    return f"the flow waits for {' and '.join(reasons + rest)}" if reasons else None


def _is_waited_for(entry: Entry) -> bool:
    return not entry.is_done and not entry.is_cancelled and entry.kind not in ("gather", "patch")


def _wait_of(entry: Entry) -> str:
    until = "" if entry.until is None else f" until {entry.until}"
    match entry.kind:
        case "step" | "undo":
            step = f"the undo of {undone_name(entry)!r}" if entry.kind == "undo" else f"step {entry.name!r}"
            if entry.error is None:
                return f"{step}, which was begun"
            message, place = entry.error.get("message"), place_text(entry.error)
            return f"{step}, which is retried at {entry.until} after {message!r}{f' at {place}' if place else ''}"
        case "join":
            return f"child {entry.value}"
        case (
            "sleep" | "signal" | "start" | "gather" | "patch" | "now" | "random" | "uuid" | "emit" | "stream" | "send"
            | "attributes" | "take" | "call"
        ):  # fmt: skip
            return f"{entry.kind} {entry.name!r}{until}"
        case _:
            assert_never(entry.kind)
