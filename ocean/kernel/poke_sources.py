"""The sources of pokes: how often each pokes an instance, and which have stopped. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from ocean.state.errors import InvalidValue
from ocean.state.values import shown

if TYPE_CHECKING:
    from ocean.kernel.metrics import Pokes

PokeSource = Literal["ticker", "http", "request", "wait", "watcher", "cli", "python"]
"""`http` is `POST /v1/advance`, `request` the poke after the response of any changing request, `wait` a caller that
waits for a run (`?waitMs`, `settle`, `result`), `watcher` a stream of a run; `python` is the default."""
SOURCES: tuple[PokeSource, ...] = get_args(PokeSource)
MUCH_LONGER = 3


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What one process knows of a source. It is quiet if it has not poked for far too long while work is due."""

    source: PokeSource
    pokes: int
    last_poke_at: int
    usual_gap_ms: int | None
    under_way: int
    is_quiet: bool


def checked_source(source: Any) -> PokeSource:
    if source not in SOURCES:
        raise InvalidValue(f"source must be one of {', '.join(SOURCES)}, got {shown(source)}")
    known: PokeSource = source
    return known


def sources_seen(
    pokes: Mapping[PokeSource, "Pokes"], now: int, oldest_due_age_ms: int, limit_ms: int
) -> tuple[SourceSeen, ...]:
    """Return every source that has poked, in the order of `SOURCES`."""
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


def is_quiet(pokes: "Pokes", now: int, oldest_due_age_ms: int, limit_ms: int) -> bool:
    """Return whether a source has stopped. Only time while work is due counts: else there is no reason to poke."""
    silent_ms = min(now - pokes.last_at, oldest_due_age_ms)
    usual_ms = pokes.usual_gap_ms or 0
    return not pokes.under_way and silent_ms > limit_ms and silent_ms > MUCH_LONGER * usual_ms


def why_due_work_waits(seen: Collection[SourceSeen], now: int) -> str:
    """Return one sentence for the operator, without data of any run."""
    if not seen:
        return "no poke has reached this process: start a ticker, a cron job or a client that pokes it"
    quiet = [each for each in seen if each.is_quiet]
    if quiet:
        return f"stopped poking: {_listed(quiet, now)}"
    busy = [each for each in seen if each.under_way]
    if busy:
        return f"still running: {_listed(busy, now)}"
    return f"pokes arrive, but too few or too short: {_listed(seen, now)}"


def _listed(seen: Collection[SourceSeen], now: int) -> str:
    return ", ".join(f"{each.source} ({_habit(each, now)})" for each in seen)


def _habit(seen: SourceSeen, now: int) -> str:
    last = f"last poke {max(now - seen.last_poke_at, 0)} ms ago"
    return f"{last}, its only one" if seen.usual_gap_ms is None else f"{last}, usually every {seen.usual_gap_ms} ms"
