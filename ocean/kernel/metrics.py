"""What one instance has done since it was opened, in numbers for others to show, and a line in the log for each tick.

Told by whoever does it, for the price of a few additions. What numbers are told apart by is known beforehand: clogs,
outcomes, sources of pokes. No id of a run or a session, and nothing of what users stored, becomes a label; a line in
the log has ids, and never an input, a payload or an error's text.
"""

import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from ocean.kernel.poke_sources import Pokes, PokeSource
from ocean.state.clock import Clock
from ocean.state.outcomes import Failed, Outcome, Retry, error_info
from ocean.state.records import Claim

TICK_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")

Where = Literal["tick", "call"]
Why = Literal["rows", "counters"]

log = logging.getLogger("ocean.tick")


class Histogram:
    """How many values there were up to each bound; the last count is of those above all bounds."""

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class TickSeen:
    """One call of a clog. What comes of it is known at the end: a committed outcome, `lock_lost`, `given_back`, or
    `error` if the database did not take it."""

    run_id: str
    clog_id: str
    tick: int
    call: int
    epoch: int
    reason: str
    source: PokeSource
    began_at: int
    outcome: str = "error"
    code: str | None = None
    ms: int = 0

    def failed_as(self, outcome: Outcome) -> None:
        if isinstance(outcome, Retry | Failed):
            self.code = plain_code(error_info(outcome.error).code)


class Listener:
    """Somebody who is around while things happen. It must not wait; what it raises is logged and goes no further."""

    def around_poke(self, source: PokeSource, run_id: str | None) -> AbstractContextManager[Any]:
        return nullcontext()

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[Any]:
        """`seen` is complete at the end."""
        return nullcontext()


class Observations:
    """`batches` is the store's: how many transactions of callers shared one of the database's."""

    def __init__(self, clock: Clock, batches: Histogram, clog_ids: Iterable[str] = ()) -> None:
        self.clock = clock
        self._listeners: list[Listener] = []
        self.batches = batches
        self.pokes: dict[PokeSource, Pokes] = {}
        self.ticks: Counter[tuple[str, str]] = Counter()
        self.tick_ms: dict[str, Histogram] = {}
        # From the beginning, so that the first loss is seen as a rise.
        self.lock_losses: Counter[str] = Counter(dict.fromkeys(clog_ids, 0))
        self.conflicts: Counter[tuple[str, Where, Why]] = Counter()
        self.leases: Counter[str] = Counter()
        self.completions: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        self.dropped_streams = 0

    def tell(self, listener: Listener) -> None:
        """From now on, also this one."""
        self._listeners.append(listener)

    @contextmanager
    def poking(self, source: PokeSource, run_id: str | None) -> Iterator[None]:
        pokes = self.pokes.setdefault(source, Pokes())
        pokes.begin(self.clock.now())
        try:
            with self.around(lambda listener: listener.around_poke(source, run_id)):
                yield
        finally:
            pokes.end()

    def ticking(self, claim: Claim, source: PokeSource) -> AbstractContextManager[TickSeen]:
        return _Ticking(self, claim, source)

    def ticked(self, seen: TickSeen) -> None:
        self.ticks[seen.clog_id, seen.outcome] += 1
        if seen.clog_id not in self.tick_ms:
            self.tick_ms[seen.clog_id] = Histogram(TICK_MS)
        self.tick_ms[seen.clog_id].add(seen.ms)
        is_lost = seen.outcome == "lock_lost"
        if is_lost:
            self.lock_losses[seen.clog_id] += 1
        level = logging.WARNING if is_lost or seen.outcome == "error" else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, "tick", extra=fields(**{name: getattr(seen, name) for name in SAID}))

    def conflicted(self, clog_id: str, where: Where, why: Why, run_id: str | None, tick: int | None = None) -> None:
        """A call has to be made again: its rows had moved on, or a counter had no longer what it took."""
        self.conflicts[clog_id, where, why] += 1
        if log.isEnabledFor(logging.INFO):
            log.info("conflict", extra=fields(run_id=run_id, clog_id=clog_id, tick=tick, where=where, why=why))

    def completed(self, outcome: str, run_id: str | None = None, tick: int | None = None) -> None:
        """A worker outside has said how its work ended, or was too late: `lease_lost`."""
        self.completions[outcome] += 1
        if log.isEnabledFor(logging.INFO):
            log.info("completion", extra=fields(run_id=run_id, tick=tick, outcome=outcome))

    @contextmanager
    def streaming(self, feed: str) -> Iterator[None]:
        self.streams[feed] += 1
        try:
            yield
        finally:
            self.streams[feed] -= 1

    def around(self, begin: Callable[[Listener], AbstractContextManager[Any]]) -> AbstractContextManager[None]:
        return _Around([(each, begin) for each in self._listeners]) if self._listeners else nullcontext()


def plain_code(code: str) -> str:
    """A code, if it looks like one: it is a clog's to choose, and could be anything."""
    return code if CODE.fullmatch(code) else "other"


SAID = ("run_id", "clog_id", "tick", "call", "outcome", "code", "ms", "epoch", "reason", "source")


def fields(**said: Any) -> dict[str, Any]:
    """What a line of the log says beside its message, for a formatter to write."""
    return {"ocean_fields": {name: value for name, value in said.items() if value is not None}}


class _Ticking:
    """Around one call of a clog. A class, for there is one for every tick: a generator takes twice as long."""

    def __init__(self, observed: Observations, claim: Claim, source: PokeSource) -> None:
        run, lock = claim.run, claim.lock
        self._observed = observed
        began_at = observed.clock.now()
        seen = TickSeen(run.run_id, run.clog_id, claim.tick, claim.call, lock.epoch, claim.reason, source, began_at)
        self._seen = seen
        self._around = observed.around(lambda listener: listener.around_tick(seen))

    def __enter__(self) -> TickSeen:
        self._around.__enter__()
        return self._seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seen = self._seen
        if error is not None and not isinstance(error, Exception):
            seen.outcome = "given_back"
        seen.ms = max(self._observed.clock.now() - seen.began_at, 0)
        try:
            self._around.__exit__(kind, error, trace)
        finally:
            self._observed.ticked(seen)


class _Around:
    """Several listeners at once, none of whom can disturb what they listen to."""

    def __init__(self, asked: list[tuple[Listener, Callable[[Listener], AbstractContextManager[Any]]]]) -> None:
        self._asked = asked
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        for listener, begin in self._asked:
            try:
                around = begin(listener)
                around.__enter__()
            except Exception:
                log.exception("a listener failed at the beginning")
            else:
                self._entered.append(around)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for around in reversed(self._entered):
            try:
                around.__exit__(kind, error, trace)
            except Exception as raised:
                if raised is not error:
                    log.exception("a listener failed at the end")
