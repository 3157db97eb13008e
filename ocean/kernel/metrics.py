"""Metrics of one instance since it was opened, and one log line per tick.

The code that does something counts it, with a few additions. Labels are clogs, outcomes and sources of pokes, which
are known in advance: never the id of a run or a session, nor what users stored. A log line has ids, but never an input
or a payload; of a failed attempt it has the message, redacted and in one line of a bounded length, and the place.
"""

import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ocean.kernel.poke_sources import PokeSource
from ocean.kernel.tick_log import fields, log, log_tick
from ocean.state.clock import Clock
from ocean.state.outcomes import ErrorInfo, Failed, Outcome, Retry, error_info, plain_code
from ocean.state.records import Claim, RunInfo, RunStatus

if TYPE_CHECKING:
    from ocean.kernel.store.claims import Committed

TICK_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
GAPS_KEPT = 9

Where = Literal["tick", "call"]
Why = Literal["rows", "counters"]


@dataclass(slots=True)
class Pokes:
    """The pokes of one source. `last_at` is when the last one began."""

    count: int = 0
    last_at: int = 0
    under_way: int = 0
    gaps: deque[int] = field(default_factory=lambda: deque(maxlen=GAPS_KEPT))

    def begin(self, now: int) -> None:
        if self.count:
            self.gaps.append(max(now - self.last_at, 0))
        self.count += 1
        self.last_at = now
        self.under_way += 1

    def end(self) -> None:
        self.under_way -= 1

    @property
    def usual_gap_ms(self) -> int | None:
        """The median of the last gaps, so that one long gap does not count."""
        return int(median(self.gaps)) if self.gaps else None


class Histogram:
    """Counts values up to each bound; the last count is of values above all bounds."""

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
    """One call of a clog. `outcome` is known at its end: a committed outcome, `lock_lost`, `given_back`, or `error` if
    the database failed. A tick that committed a failed attempt of a `step` counts as `retry`, although it waits."""

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
    step: str | None = None
    ms: int = 0
    run: RunInfo | None = None
    error: ErrorInfo | None = None
    status: RunStatus | None = None
    next_ms: int | None = None

    def failed_as(self, outcome: Outcome, answer: "Committed", failed_step: tuple[str, str] | None = None) -> None:
        """Note the error of a failed attempt, the status of the run after it, and its back-off; or the error of a step
        if the tick waits to repeat it."""
        match outcome:
            case Retry() | Failed():
                self.error, self.status, self.next_ms = error_info(outcome.error), answer.status, answer.next_ms
                self.code = plain_code(self.error.code)
            case _ if failed_step is not None:
                self.step, self.code = failed_step[0], plain_code(failed_step[1])

    def ended_as(self, outcome: str) -> None:
        """Note the outcome."""
        self.outcome = outcome if self.step is None else "retry"


class Listener:
    """Context managers around pokes and ticks. They must not block; their exceptions are logged and ignored."""

    def around_poke(self, source: PokeSource, run_id: str | None) -> AbstractContextManager[Any]:
        return nullcontext()

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[Any]:
        """`seen` is complete when the context ends."""
        return nullcontext()


class Observations:
    """The counters of an instance. `batches` is the store's: how many verbs shared one transaction."""

    def __init__(self, clock: Clock, batches: Histogram, clog_ids: Iterable[str] = ()) -> None:
        self.clock = clock
        self._listeners: list[Listener] = []
        self.batches = batches
        self.pokes: dict[PokeSource, Pokes] = {}
        self.ticks: Counter[tuple[str, str]] = Counter()
        self.tick_ms: dict[str, Histogram] = {}
        # With zeros from the start, so that the first loss is visible as an increase.
        self.lock_losses: Counter[str] = Counter(dict.fromkeys(clog_ids, 0))
        self.conflicts: Counter[tuple[str, Where, Why]] = Counter()
        self.leases: Counter[str] = Counter()
        self.completions: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        self.dropped_streams = 0

    def add_listener(self, listener: Listener) -> None:
        """Call the listener around every poke and tick from now on."""
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
        is_ordinary = seen.error is None and not is_lost and seen.outcome != "error"
        if not is_ordinary or log.isEnabledFor(logging.INFO):
            log_tick(seen)

    def conflicted(self, clog_id: str, where: Where, why: Why, run_id: str | None, tick: int | None = None) -> None:
        """Count a call that has to be repeated: its rows have changed, or a counter no longer has what it took."""
        self.conflicts[clog_id, where, why] += 1
        if log.isEnabledFor(logging.INFO):
            extra = fields(name="conflict", run_id=run_id, clog_id=clog_id, tick=tick, where=where, why=why)
            log.info("%s repeats a %s, because its %s have changed", clog_id, where, why, extra=extra)

    def completed(self, outcome: str, run_id: str | None = None, tick: int | None = None) -> None:
        """Count a completion by an external worker, or `lease_lost` if it was too late."""
        self.completions[outcome] += 1
        if log.isEnabledFor(logging.INFO):
            extra = fields(name="completion", run_id=run_id, tick=tick, outcome=outcome)
            log.info("a worker has completed its lease: %s", outcome, extra=extra)

    @contextmanager
    def streaming(self, feed: str) -> Iterator[None]:
        self.streams[feed] += 1
        try:
            yield
        finally:
            self.streams[feed] -= 1

    def around(self, begin: Callable[[Listener], AbstractContextManager[Any]]) -> AbstractContextManager[None]:
        return _Around([(each, begin) for each in self._listeners]) if self._listeners else nullcontext()


class _Ticking:
    """The context of one call. A class, because a generator takes twice as long and there is one per tick."""

    def __init__(self, observed: Observations, claim: Claim, source: PokeSource) -> None:
        run, lock = claim.run, claim.lock
        self._observed = observed
        began_at = observed.clock.now()
        seen = TickSeen(run.run_id, run.clog_id, claim.tick, claim.call, lock.epoch, claim.reason, source, began_at)
        seen.run = run
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
    """Enters and exits several listeners. Their exceptions do not reach the code around them."""

    def __init__(self, listeners: list[tuple[Listener, Callable[[Listener], AbstractContextManager[Any]]]]) -> None:
        self._listeners = listeners
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        for listener, begin in self._listeners:
            try:
                around = begin(listener)
                around.__enter__()
            except Exception:
                log.exception("a listener failed to start")
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
                    log.exception("a listener failed to end")
