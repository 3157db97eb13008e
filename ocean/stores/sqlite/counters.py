"""Counters: previewing a take, taking, and reserving tokens ahead."""

from collections.abc import Iterable, Sequence

from ocean.state.counters import Counter, Take, Taken, decide, reserve
from ocean.stores.shared.row_rules import preview_takes
from ocean.stores.shared.rows import counter_from
from ocean.stores.sqlite.engine.unit_of_work import Unit


def preview(u: Unit, takes: Sequence[Take]) -> Taken:
    return preview_takes(_stored(u, takes[0].key), takes, u.now)


def take(u: Unit, asked: Take) -> Taken:
    taken, following = decide(_stored(u, asked.key), asked, u.now)
    if taken and asked.n and following is not None:
        _put(u, asked.key, following)
    return taken


def refused(u: Unit, takes: Iterable[Take]) -> dict[str, Taken]:
    """The refusals by key, if these takes were applied one after another."""
    counters: dict[str, Counter | None] = {}
    refusals: dict[str, Taken] = {}
    for take in takes:
        before = counters[take.key] if take.key in counters else _stored(u, take.key)
        taken, counters[take.key] = decide(before, take, u.now)
        if not taken:
            refusals.setdefault(take.key, taken)
    return refusals


def reserve_tokens(u: Unit, asked: Take) -> int:
    """Take tokens that may become free only later; returns when they do."""
    free_at, following = reserve(_stored(u, asked.key), asked, u.now)
    _put(u, asked.key, following)
    return free_at


def _stored(u: Unit, key: str) -> Counter | None:
    row = u.one("get_counter", key=key)
    return None if row is None else counter_from(row)


def _put(u: Unit, key: str, counter: Counter) -> None:
    u.do(
        "put_counter",
        key=key,
        kind=counter.kind,
        used=counter.used,
        at=counter.at,
        per_ms=counter.per_ms,
        rate=counter.rate,
        expires_at=counter.expires_at,
    )
