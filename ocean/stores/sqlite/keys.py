"""Concurrency keys: which runs hold a slot, which are parked, and which are woken when a slot is free.

A run with keys is away (nothing to do), due (it would be called now), at work, or parked on a key that is full. A run
takes its slots when it is claimed, and keeps them until its tick ends or, with `hold="run"`, until the run ends.

Parked runs wait in lines: one for each clog, and for each queue of an external clog. When a slot is freed, or a due
run stops being due (it is claimed while more slots are free, it parks on another full key, or it ends), the next parked
run of each line becomes due. So while a key has a free slot, every line with runs parked on it has one run in the due
index: no wake-up is lost, and a line that no process serves (its clog is paused or registered nowhere, or its queue has
no worker) does not block the slot for the others. A woken run that gets no slot parks again in its old place.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

from ocean.state.eligibility import FAIR_EVERY, FullKey
from ocean.state.records import Key, KeyInfo, Run, RunStatus
from ocean.state.transitions import parked, unparked, wants_slots
from ocean.state.values import encode

if TYPE_CHECKING:
    import sqlite3

    from ocean.stores.sqlite.engine.unit_of_work import Unit

DEFAULT_SLOTS = 1
MOST_COUNTED = 1_000
MOST_WOKEN = 100
"""How many parked runs of a line are woken at once for as many free slots; each that is claimed wakes one more."""

Stage = Literal["away", "due", "parked", "at_work"]


def stage_of(run: Run | None, now: int) -> Stage:
    if run is None or run.is_ended:
        return "away"
    if run.status is RunStatus.ACTIVE:
        return "at_work"
    if run.parked_on is not None:
        return "parked"
    return "due" if wants_slots(run, now) else "away"


def settle_slots(u: Unit, before: Run | None, run: Run) -> Run:
    """Take and free slots for a run that has changed, park it if a slot it needs is taken, and note keys to wake."""
    was, rows = stage_of(before, u.now), u.all("run_keys", run_id=run.run_id)
    freed = _take_and_free(u, run, rows)
    if run.parked_on is not None and not wants_slots(run, u.now):
        run = u.save(unparked(run, u.now))
    elif was != "due" and stage_of(run, u.now) == "due":
        run = park_if_full(u, run)
    has_left = was == "due" and stage_of(run, u.now) != "due"
    for row in rows:
        if has_left or row["key"] in freed:
            u.keys_to_wake[row["key"]] = u.keys_to_wake.get(row["key"], 0) + 1
    return run


def park_if_full(u: Unit, run: Run) -> Run:
    full = full_key(u, run)
    if full is None:
        return run
    is_first_time = run.parked_at is None
    run = u.save(parked(run, full.key, u.now))
    if is_first_time:
        u.event(run.run_id, "run.parked", {"key": full.key, "limit": full.limit, "status": run.status})
    return u.run(run.run_id)


def full_key(u: Unit, run: Run) -> FullKey | None:
    """The first of the run's keys in which it holds no slot and none is free."""
    if not run.key_count or run.status is RunStatus.ACTIVE:
        return None
    for row in u.all("run_keys", run_id=run.run_id):
        slots, in_use = _usage(u, row["key"])
        if not row["is_held"] and in_use >= slots:
            holder = u.one("key_holder", key=row["key"])
            return FullKey(row["key"], slots, in_use, holder["run_id"] if holder else None)
    return None


def keys_of(u: Unit, run: Run) -> tuple[Key, ...]:
    rows = u.all("run_keys", run_id=run.run_id) if run.key_count else []
    return tuple(Key(row["key"], row["hold"]) for row in rows)


def name_keys(u: Unit, run_id: str, keys: tuple[Key, ...]) -> None:
    for place, key in enumerate(keys):
        u.do("insert_run_key", run_id=run_id, key=key.name, place=place, hold=key.hold)


def set_limit(u: Unit, key: str, slots: int, actor: str | None) -> KeyInfo:
    before, in_use = _usage(u, key)
    u.do("put_key", key=key, slots=slots, in_use=in_use)
    if slots != before:
        u.event_without_run(
            type="key.limit_set", payload=encode({"key": key, "limit": slots, "before": before}), actor=actor
        )
    u.keys_to_wake[key] = slots
    u.flush()
    return key_info(u, key)


def key_info(u: Unit, key: str) -> KeyInfo:
    slots, in_use = _usage(u, key)
    row = u.one("count_parked", key=key, limit=MOST_COUNTED)
    return KeyInfo(key, slots, in_use, row["n"] if row else 0)


def list_keys(u: Unit, after: str, limit: int) -> list[KeyInfo]:
    """The keys that are in use or have a limit other than 1."""
    return [key_info(u, row["key"]) for row in u.all("list_keys", after=after, limit=limit)]


def _usage(u: Unit, key: str) -> tuple[int, int]:
    row = u.one("get_key", key=key)
    return (DEFAULT_SLOTS, 0) if row is None else (row["slots"], row["in_use"])


def _take_and_free(u: Unit, run: Run, rows: list[sqlite3.Row]) -> set[str]:
    """Take all keys of a run at work, free all after its end; between ticks keep those that are held by the run.

    Returns the keys that were freed.
    """
    freed = set()
    for row in rows:
        is_kept = row["hold"] == "run" and row["is_held"] and not run.is_ended
        is_held = run.status is RunStatus.ACTIVE or is_kept
        if is_held != bool(row["is_held"]):
            slots, in_use = _usage(u, row["key"])
            u.do("put_key", key=row["key"], slots=slots, in_use=in_use + (1 if is_held else -1))
            u.do("hold_key", run_id=run.run_id, key=row["key"], is_held=is_held)
            if not is_held:
                freed.add(row["key"])
    return freed


def wake(u: Unit, key: str, count: int) -> None:
    """Make the next parked runs of each line due, if the key has free slots: by priority, every eighth time by age.

    Last ticks come first in both cases.
    """
    slots, in_use = _usage(u, key)
    count = min(count, slots - in_use, MOST_WOKEN)
    if count <= 0:
        return
    in_line = _in_line(u, key, count)
    if not in_line and (slots, in_use) == (DEFAULT_SLOTS, 0):
        u.do("delete_key", key=key)
    counted = u.one("count_wake", key=key) if in_line else None
    is_fair = counted is not None and counted["wakes"] % FAIR_EVERY == 0
    for runs in in_line.values():
        runs.sort(key=lambda run: (not run.ending, 0 if is_fair else run.priority, run.parked_at or 0, run.run_id))
        for run in runs[:count]:
            u.write(unparked(run, u.now))


def _in_line(u: Unit, key: str, count: int) -> dict[tuple[str, str], list[Run]]:
    """The first parked runs of every lane, by clog and queue."""
    found: dict[tuple[str, str], list[Run]] = defaultdict(list)
    lane: dict[str, Any] = {"clog_id": "", "line": "", "priority": -1}
    while following := u.one("next_parked_lane", key=key, **lane):
        lane = dict(following)
        found[lane["clog_id"], lane["line"]] += u.load(u.all("parked_lane", key=key, **lane, limit=count))
    return found
