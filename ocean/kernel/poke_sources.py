"""Who pokes, how often, and who has gone quiet: pure, from what one instance has seen."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, get_args

from ocean.state.errors import InvalidValue
from ocean.state.values import shown

PokeSource = Literal["ticker", "http", "request", "wait", "watcher", "cli", "python"]
"""`http` is `POST /v1/advance`, `request` what any changing request does behind its answer, `wait` somebody who waits
for a run (`?waitMs`, `settle`, `result`), `watcher` a stream of a run; `python` is everybody who does not say."""
SOURCES: tuple[PokeSource, ...] = get_args(PokeSource)
GAPS_KEPT = 9
MUCH_LONGER = 3


@dataclass(slots=True)
class Pokes:
    """Of one source. `last_at` is when the last one began."""

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
        """The median of the last gaps: one long night does not make a source a slow one."""
        return int(median(self.gaps)) if self.gaps else None


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What one process has seen of a source. Quiet is one that is silent, while work is due, for far too long."""

    source: PokeSource
    pokes: int
    last_poke_at: int
    usual_gap_ms: int | None
    under_way: int
    is_quiet: bool


def checked_source(source: Any) -> PokeSource:
    if source not in SOURCES:
        raise InvalidValue(f"source is one of {', '.join(SOURCES)}, got {shown(source)}")
    known: PokeSource = source
    return known


def sources_seen(
    pokes: Mapping[PokeSource, Pokes], now: int, oldest_due_age_ms: int, limit_ms: int
) -> tuple[SourceSeen, ...]:
    """Every source that has poked, in the order of `SOURCES`."""
    return tuple(
        SourceSeen(
            source,
            one.count,
            one.last_at,
            one.usual_gap_ms,
            one.under_way,
            is_quiet(one, now, oldest_due_age_ms, limit_ms),
        )
        for source in SOURCES
        if (one := pokes.get(source)) is not None
    )


def is_quiet(pokes: Pokes, now: int, oldest_due_age_ms: int, limit_ms: int) -> bool:
    """Silence counts only while work is due: before that there was no reason to poke."""
    silent_ms = min(now - pokes.last_at, oldest_due_age_ms)
    usual_ms = pokes.usual_gap_ms or 0
    return not pokes.under_way and silent_ms > limit_ms and silent_ms > MUCH_LONGER * usual_ms


def why_due_work_waits(seen: Collection[SourceSeen], now: int) -> str:
    """One sentence for whoever has to find out, without anything of anybody's runs."""
    if not seen:
        return "nobody has poked this process: is there a ticker, cron or client that does?"
    quiet = [each for each in seen if each.is_quiet]
    if quiet:
        return f"gone quiet: {_listed(quiet, now)}"
    busy = [each for each in seen if each.under_way]
    if busy:
        return f"still at work: {_listed(busy, now)}"
    return f"pokes come, and are too few or do too little: {_listed(seen, now)}"


def _listed(seen: Collection[SourceSeen], now: int) -> str:
    return ", ".join(f"{each.source} ({_habit(each, now)})" for each in seen)


def _habit(seen: SourceSeen, now: int) -> str:
    last = f"last poke {max(now - seen.last_poke_at, 0)} ms ago"
    return f"{last}, its only one" if seen.usual_gap_ms is None else f"{last}, usually every {seen.usual_gap_ms} ms"
