"""One call of a flow's function over its journal: where each operation belongs, and why the function is put away."""

from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ocean.clog.clog import Method
from ocean.flows.errors import FlowMisused, Suspended
from ocean.flows.journal import MOST_BYTES, MOST_ENTRIES, Entry, Journal, Kind
from ocean.kernel.arguments import checked_event
from ocean.kernel.tick import Tick
from ocean.state.backoff import RetryPolicy
from ocean.state.errors import InvalidValue
from ocean.state.outcomes import Continue, ErrorInfo, Ok, Outcome, Wait
from ocean.state.records import InputKind
from ocean.state.values import checked_id, decode, encode

LONGEST_NAME = 80
SIGNS = "#@/"
MOST_STEPS_A_TICK = 32
MOST_INPUTS = 256
"""What a claim hands over at most: as many may mean that there are more."""
HELD_MS, HELD_MOST_MS = 1_000, 300_000


@dataclass(slots=True, eq=False)
class Branch:
    """A line of operations, numbered. Those of a gather have branches of their own, so their order cannot matter."""

    place: str = ""
    path: str = ""
    count: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    patches: dict[str, bool] = field(default_factory=dict)
    is_suspended: bool = False
    told: list[tuple[str, Any]] = field(default_factory=list)

    def position(self) -> str:
        return f"{self.place}{self.count}"

    @property
    def is_inner(self) -> bool:
        return self.path != ""

    def child(self, position: str, name: str, index: int) -> "Branch":
        return Branch(f"{position}.{index}.", f"{name}.{index}/", patches=dict(self.patches))


CURRENT: ContextVar[Branch] = ContextVar("CURRENT")
IN_STEP: ContextVar[str | None] = ContextVar("IN_STEP", default=None)


@dataclass(frozen=True, slots=True)
class Operation:
    branch: Branch
    position: str
    kind: Kind
    name: str
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Undo:
    order: int
    step: str
    fn: Method
    value: Any
    policy: RetryPolicy


class Play:
    """`is_frozen`: nothing new is begun. `can_look`: but a step that was stored and not committed is found."""

    def __init__(self, tick: Tick, journal: Journal, *, is_frozen: bool = False, can_look: bool = False) -> None:
        self.tick = tick
        self.journal = journal
        self.is_frozen = is_frozen
        self.can_look = can_look
        self.root = Branch()
        self.undos: list[Undo] = []
        self.held: ErrorInfo | None = None
        self.steps_taken = 0
        # What the commit will make known, and only steps survive without it.
        self.is_dirty = any(each.kind is not InputKind.CONTINUE for each in tick.inputs)
        self._must_commit = False
        self._wakes: list[int] = []

    @property
    def now(self) -> int:
        return self.tick.now + self.tick.elapsed_ms

    @property
    def may_have_stored(self) -> bool:
        """Whether a step can be stored that the journal does not have: by an earlier call of this tick."""
        return self.tick.call_number > 1 or self.can_look

    @property
    def has_all_inputs(self) -> bool:
        return len(self.tick.inputs) < MOST_INPUTS

    def begin(self, kind: Kind, name: str) -> Operation:
        """The next operation of the branch at work, with its entry if it has been begun before."""
        branch = self.branch_for(f"flow.{kind}")
        full = f"{branch.path}{checked_name(name)}"
        branch.uses[full] += 1
        return self.begin_named(branch, kind, full if branch.uses[full] == 1 else f"{full}#{branch.uses[full]}")

    def begin_named(self, branch: Branch, kind: Kind, name: str) -> Operation:
        entry = self._entry_at(branch)
        position = branch.position()
        if entry is None:
            self._refuse_if_too_long(branch, kind)
        elif (entry.kind, entry.name) != (kind, name):
            self.hold_changed(branch, f"{kind} {name!r}", f"{entry.kind} {entry.name!r}")
        branch.count += 1
        return Operation(branch, position, kind, name, entry)

    def branch_for(self, what: str) -> Branch:
        if (step := IN_STEP.get()) is not None:
            raise FlowMisused(f"{what} inside step {step!r}: a step is remembered as a whole; call it before or after")
        branch = CURRENT.get()
        if branch.is_suspended:
            raise Suspended
        return branch

    def _entry_at(self, branch: Branch) -> Entry | None:
        """The entry here. A patch that the code no longer asks about was taken; its place is passed over."""
        while (entry := self.journal.entries.get(branch.position())) is not None and entry.kind == "patch":
            branch.count += 1
        return entry

    def patched(self, name: str) -> bool:
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
        if self.is_frozen:
            self.suspend(branch)
        operation = Operation(branch, branch.position(), "patch", name, None)
        branch.count += 1
        self.record(operation, Entry("patch", name, is_done=True))
        return True

    def record(self, operation: Operation, entry: Entry) -> Entry:
        self.journal.entries[operation.position] = entry
        self.journal.size += len(encode(entry.as_json()))
        self.is_dirty |= operation.kind not in ("step", "undo", "now")
        return entry

    async def tell(self, branch: Branch, type: str, payload: Any) -> None:
        """An event with the commit. Those of branches wait for each other: their order is that of the branches."""
        if branch.is_inner:
            branch.told.append((checked_event(type), decode(encode(payload, "payload"))))
        else:
            await self.tick.emit(type, payload)

    def refuse_if_frozen(self, branch: Branch) -> None:
        if self.is_frozen:
            self.suspend(branch)

    def suspend(self, branch: Branch, until: int | None = None) -> NoReturn:
        """Put this branch away until a time, or until something arrives."""
        if until is not None and not self.is_frozen:
            self._wakes.append(until)
        branch.is_suspended = True
        raise Suspended

    def commit_first(self, branch: Branch) -> NoReturn:
        """Go on in the next tick: what is known so far must not be lost."""
        self._must_commit = True
        self.suspend(branch)

    def hold(self, branch: Branch, code: str, message: str, **details: Any) -> NoReturn:
        self.held = self.held or ErrorInfo(code, message, details)
        self.suspend(branch)

    def check_ended(self, branch: Branch) -> None:
        """The code of this branch has ended: so must the journal's part of it."""
        entry = self._entry_at(branch)
        if entry is not None and not self.is_frozen:
            self.hold_changed(branch, "the end", f"{entry.kind} {entry.name!r}")

    def hold_changed(self, branch: Branch, asked: str, remembered: str) -> NoReturn:
        place = branch.position()
        self.hold(
            branch,
            "flow_changed",
            f"the code has changed under this run: at place {place} it remembers {remembered}, and the code comes to "
            f"{asked}; let old runs take the old path with flow.patched, or deploy the old code",
            place=place,
            remembered=remembered,
            asked=asked,
        )

    def _refuse_if_too_long(self, branch: Branch, kind: Kind) -> None:
        count, size = len(self.journal.entries), self.journal.size
        if kind != "undo" and (count >= MOST_ENTRIES or size >= MOST_BYTES) and not self.is_frozen:
            self.hold(
                branch,
                "flow_too_long",
                f"the flow remembers {count} operations in {size} bytes, and may {MOST_ENTRIES} in {MOST_BYTES}; let "
                "its loop return flow.again(state) now and then, keep large values elsewhere, take what signals come",
                operations=count,
                bytes=size,
            )

    def outcome(self) -> Outcome:
        """What the tick answers when the function is put away."""
        if self.held is not None:
            times = (self.journal.held or {"times": 0})["times"]
            return Wait(until=self.now + min(HELD_MS * 2**times, HELD_MOST_MS))
        if self._must_commit:
            return Continue()
        return Wait(until=min(self._wakes)) if self._wakes else Ok()


def plain_name(text: str) -> str:
    """A name for what is called by something else: a type, a clog."""
    return "".join("-" if sign in SIGNS else sign for sign in text)[:LONGEST_NAME] or "-"


def checked_name(name: Any) -> str:
    checked_id(name, "a name in a flow", LONGEST_NAME)
    if any(sign in name for sign in SIGNS):
        raise InvalidValue(f"a name in a flow has no '#', '@' or '/', which number and order names; got {name!r}")
    return str(name)
