"""What clients and handlers have done and seen: the tables must agree with it."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass
class SentRequest:
    """One request, however often it was sent. `results` are the responses; `is_unknown` if one may have been lost."""

    verb: str
    key: str | None
    run_id: str | None = None
    token: str | None = None
    results: list[Any] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    is_unknown: bool = False
    deliver_at: int | None = None
    meant: tuple[str, ...] = ()
    """For a verb for many runs: the runs that it certainly selects, as of the time of the request."""


@dataclass
class Called:
    """One call of a handler, as the handler saw it."""

    call: int
    reason: str
    inputs: tuple[int, ...]


@dataclass
class Feed:
    """What a reader of one run has read so far: cursors and types."""

    run_id: str
    seen: list[tuple[int, str]] = field(default_factory=list)
    has_ended: bool = False


class History:
    def __init__(self) -> None:
        self.requests: list[SentRequest] = []
        self.runs: list[str] = []
        self.sessions = ("s1", "s2")
        self.calls: dict[tuple[str, int], list[Called]] = defaultdict(list)
        self.steps: dict[tuple[str, int, str], list[Any]] = defaultdict(list)
        self.lost: list[tuple[str, int, int]] = []
        """Run, tick and epoch of calls that got the error that their lock was lost."""
        self.followed: dict[str, list[Any]] = defaultdict(list)
        self.feeds: list[Feed] = []
        self._count = 0

    def token(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def knows(self, run_id: str) -> None:
        if run_id not in self.runs:
            self.runs.append(run_id)
