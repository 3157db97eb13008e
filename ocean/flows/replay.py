"""One call of a flow's function over its journal: the position of each operation, and why the function is suspended."""

from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ocean.clog.clog import Method
from ocean.flows.errors import Cancelled, FlowMisused, Suspended
from ocean.flows.journal import MOST_BYTES, MOST_ENTRIES, Entry, Journal, Kind
from ocean.kernel.arguments import checked_event
from ocean.kernel.tick import Tick
from ocean.state.backoff import RetryPolicy
from ocean.state.errors import InvalidValue
from ocean.state.outcomes import Continue, ErrorInfo, Ok, Outcome, Wait
from ocean.state.records import InputKind
from ocean.state.values import checked_id, decode, encode

LONGEST_NAME = 80
RESERVED = "#@/"
"""Characters that names in a flow must not contain: they number and order names."""
MOST_STEPS_A_TICK = 32
PURE = ("uuid", "random")
LOOKED_UP = ("step", "now", "gather")
"""Operations that may be over although the journal does not have their end: they look before they are cancelled."""
MOST_INPUTS = 256
"""The most inputs of one claim: if there are as many, more may be waiting."""
HELD_MS, HELD_MOST_MS = 1_000, 300_000


@dataclass(slots=True, eq=False)
class Branch:
    """A sequence of operations with numbered positions. Each argument of a gather has its own branch."""

    prefix: str = ""
    path: str = ""
    count: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    patches: dict[str, bool] = field(default_factory=dict)
    is_suspended: bool = False
    is_cancelled: bool = False
    events: list[tuple[str, Any]] = field(default_factory=list)

    def position(self) -> str:
        """Return the position of the next operation."""
        return f"{self.prefix}{self.count}"

    @property
    def is_inner(self) -> bool:
        """Whether this is a branch of a gather."""
        return self.path != ""

    def child(self, position: str, name: str, index: int) -> "Branch":
        """Return the branch of one argument of a gather."""
        patches, is_cancelled = dict(self.patches), self.is_cancelled
        return Branch(f"{position}.{index}.", f"{name}.{index}/", patches=patches, is_cancelled=is_cancelled)


CURRENT: ContextVar[Branch] = ContextVar("CURRENT")
IN_STEP: ContextVar[str | None] = ContextVar("IN_STEP", default=None)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that the function has begun, with its entry if the journal has one."""

    branch: Branch
    position: str
    kind: Kind
    name: str
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Undo:
    """How to undo a step that was begun."""

    entry: Entry
    fn: Method
    policy: RetryPolicy


class Replay:
    """One call of the function.

    `is_frozen`: nothing new may begin. `can_look`: what steps have stored and no tick has committed is read.
    """

    def __init__(self, tick: Tick, journal: Journal, *, is_frozen: bool = False, can_look: bool = False) -> None:
        self.tick = tick
        self.journal = journal
        self.is_frozen = is_frozen
        self.can_look = can_look
        self.root = Branch()
        self.undos: dict[str, Undo] = {}
        self.held: ErrorInfo | None = None
        self.children: set[str] = set()
        """The children that the flow has started after `Cancelled`: this run gets their ends."""
        self.steps_taken = 0
        # Whether the commit has something to store. Only results of steps survive without it.
        self.is_dirty = any(each.kind is not InputKind.CONTINUE for each in tick.inputs)
        self._must_commit = False
        self._wakes: list[int] = []

    @property
    def now(self) -> int:
        """The current time."""
        return self.tick.now + self.tick.elapsed_ms

    @property
    def may_have_stored(self) -> bool:
        """Whether an earlier call of this tick may have stored a step that the journal does not have."""
        return self.tick.call_number > 1 or self.journal.held is not None

    @property
    def has_all_inputs(self) -> bool:
        """Whether no more inputs can be waiting than the tick has."""
        return len(self.tick.inputs) < MOST_INPUTS

    def begin(self, kind: Kind, name: str) -> Operation:
        """Begin the next operation of the current branch."""
        branch = self.branch_for(f"flow.{kind}")
        full = f"{branch.path}{checked_name(name)}"
        branch.uses[full] += 1
        operation = self.begin_named(branch, kind, full if branch.uses[full] == 1 else f"{full}#{branch.uses[full]}")
        if kind not in LOOKED_UP and kind not in PURE:
            self.check_cancelled(operation)
        return operation

    def check_cancelled(self, operation: Operation) -> None:
        """Raise `Cancelled` at an operation that was not over when the run was ended, once in each branch."""
        branch, ending = operation.branch, self.journal.ending
        if ending is None:
            return
        entry = self.journal.entries.get(operation.position) or Entry(operation.kind, operation.name)
        if not entry.is_cancelled:
            if branch.is_cancelled or entry.is_done or self.journal.failing is not None:
                return
            entry.is_cancelled = True
            self.record(operation, entry)
        branch.is_cancelled = True
        raise self.cancelled()

    def cancelled(self) -> Cancelled:
        """Return the exception that is raised where the flow waits."""
        ending = self.journal.ending or {}
        return Cancelled(ending["reason"], ending["error"])

    def begin_named(self, branch: Branch, kind: Kind, name: str) -> Operation:
        """Begin the next operation of a branch; hold the flow if the journal has another one at its position."""
        entry = self._entry_at(branch)
        position = branch.position()
        if entry is None:
            self._hold_if_too_long(branch, kind)
        elif (entry.kind, entry.name) != (kind, name):
            self.hold_changed(branch, f"{kind} {name!r}", f"{entry.kind} {entry.name!r}")
        branch.count += 1
        return Operation(branch, position, kind, name, entry)

    def branch_for(self, what: str) -> Branch:
        """Return the current branch; refuse inside a step."""
        if (step := IN_STEP.get()) is not None:
            raise FlowMisused(
                f"{what} must not be called inside step {step!r}, which is stored as a whole: call it before or after"
            )
        branch = CURRENT.get()
        if branch.is_suspended:
            raise Suspended
        return branch

    def _entry_at(self, branch: Branch) -> Entry | None:
        """Return the next entry. Patches that the code no longer asks about are skipped."""
        while (entry := self.journal.entries.get(branch.position())) is not None and entry.kind == "patch":
            branch.count += 1
        return entry

    def patched(self, name: str) -> bool:
        """Return whether this run takes the new path of a patch."""
        branch = self.branch_for("flow.patched")
        if checked_name(name) not in branch.patches:
            branch.patches[name] = self._is_patched(branch, name)
        return branch.patches[name]

    def _is_patched(self, branch: Branch, name: str) -> bool:
        while (entry := self.journal.entries.get(branch.position())) is not None and entry.kind == "patch":
            branch.count += 1
            if entry.name == name:
                return True
        if entry is not None:
            return False
        if self.is_frozen and self.journal.ending is None:
            self.suspend(branch)
        operation = Operation(branch, branch.position(), "patch", name, None)
        branch.count += 1
        self.record(operation, Entry("patch", name, is_done=True))
        return True

    def record(self, operation: Operation, entry: Entry) -> Entry:
        """Put the entry of an operation into the journal."""
        self.journal.entries[operation.position] = entry
        self.journal.size += len(encode(entry.as_json()))
        self.is_dirty |= operation.kind not in ("step", "undo", "now")
        return entry

    async def emit(self, branch: Branch, type: str, payload: Any) -> None:
        """Emit an event with the commit. Events of a gather are collected and emitted in the order of its branches."""
        if branch.is_inner:
            branch.events.append((checked_event(type), decode(encode(payload, "payload"))))
        else:
            await self.tick.emit(type, payload)

    def suspend_if_frozen(self, branch: Branch) -> None:
        """Suspend a branch that would begin something new, if nothing new may begin."""
        if self.is_frozen:
            self.suspend(branch)

    def suspend(self, branch: Branch, until: int | None = None) -> NoReturn:
        """Suspend a branch until a time, or until an input arrives."""
        if until is not None and not self.is_frozen:
            self._wakes.append(until)
        branch.is_suspended = True
        raise Suspended

    def commit_first(self, branch: Branch) -> NoReturn:
        """Suspend a branch until the next tick, so that what is in the journal is committed before it goes on."""
        self._must_commit = True
        self.suspend(branch)

    def hold(self, branch: Branch, code: str, message: str, **details: Any) -> NoReturn:
        """Suspend the flow until its code fits its journal again."""
        self.held = self.held or ErrorInfo(code, message, details)
        self.suspend(branch)

    def check_ended(self, branch: Branch) -> None:
        """Hold the flow if the code of a branch has ended and the journal has more operations of it."""
        entry = self._entry_at(branch)
        if entry is not None and not self.is_frozen:
            self.hold_changed(branch, "the end", f"{entry.kind} {entry.name!r}")

    def hold_changed(self, branch: Branch, asked: str, remembered: str) -> NoReturn:
        """Hold the flow because its code does not match its journal."""
        position = branch.position()
        self.hold(
            branch,
            "flow_changed",
            f"the code of this flow has changed while the run was in progress: at position {position} the journal has "
            f"{remembered}, but the code has {asked}; keep the old path for old runs with flow.patched, or deploy the "
            "old code",
            place=position,
            remembered=remembered,
            asked=asked,
        )

    def _hold_if_too_long(self, branch: Branch, kind: Kind) -> None:
        count, size = len(self.journal.entries), self.journal.size
        if (
            kind != "undo"
            and self.journal.ending is None
            and (count >= MOST_ENTRIES or size >= MOST_BYTES)
            and not self.is_frozen
        ):
            self.hold(
                branch,
                "flow_too_long",
                f"a journal must have at most {MOST_ENTRIES} operations and {MOST_BYTES} bytes, this one has {count} "
                f"and {size}: return flow.again(state) from long loops, keep large values elsewhere, take the signals "
                "that arrive",
                operations=count,
                bytes=size,
            )

    def outcome(self) -> Outcome:
        """Return the outcome of a tick whose function is suspended."""
        if self.held is not None:
            times = (self.journal.held or {"times": 0})["times"]
            return Wait(until=self.now + min(HELD_MS * 2**times, HELD_MOST_MS))
        if self._must_commit:
            return Continue()
        return Wait(until=min(self._wakes)) if self._wakes else Ok()


def plain_name(text: str) -> str:
    """Return a valid name for an operation that is named after a type or a clog."""
    return "".join("-" if each in RESERVED else each for each in text)[:LONGEST_NAME] or "-"


def checked_name(name: Any) -> str:
    """Return the name of an operation, if it is valid."""
    checked_id(name, "a name in a flow", LONGEST_NAME)
    if any(each in name for each in RESERVED):
        raise InvalidValue(f"a name in a flow must not contain '#', '@' or '/', got {name!r}")
    return str(name)
