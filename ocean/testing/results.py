"""What can be observed of a world, as named values, and how two observations differ."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ocean.events.streamed import kept_events
from ocean.kernel.arguments import KERNEL_EVENTS
from ocean.kernel.store.claims import RowsAsk
from ocean.state.effects import RowKey
from ocean.state.filters import RunFilter
from ocean.state.records import Event, RunInfo, RunStatus
from ocean.testing.outside import Outside
from ocean.testing.worlds import World

PAGE = 1_000
MOST_SHOWN = 500
MANY_ALIKE = 3
_TICK = re.compile(r"^\d+:")
"""Begins the id of a step that lasts as long as its tick."""
Observed = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs. `what` is its name; an absent value is None."""

    what: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        expected, found = _shown(self.expected), _shown(self.found)
        note = ""
        if isinstance(self.expected, list) and isinstance(self.found, list):
            expected, found = _lists_shown(self.expected, self.found)
            note = ", the same in another order" if _sorted(self.expected) == _sorted(self.found) else ""
        return f"{self.what}{note}\n  without a crash: {expected}\n  with it:         {found}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else _text(value)[:MOST_SHOWN]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _sorted(values: Iterable[Any]) -> list[str]:
    return sorted(map(_text, values))


def _lists_shown(expected: list[Any], found: list[Any]) -> tuple[str, str]:
    """Return both lists, without equal items at their starts and ends if there are many."""
    shorter = min(len(expected), len(found))
    before = next((n for n in range(shorter) if expected[n] != found[n]), shorter)
    after = next((n for n in range(shorter - before) if expected[-1 - n] != found[-1 - n]), shorter - before)
    if before + after < MANY_ALIKE:
        return _shown(expected), _shown(found)
    prefix = f"[after {before} equal and before {after} equal: "
    shown = [_text(values[before : len(values) - after])[1:MOST_SHOWN] for values in (expected, found)]
    return prefix + shown[0], prefix + shown[1]


def differences(expected: Observed, found: Observed, ignore: Collection[str]) -> tuple[Difference, ...]:
    """Return what differs, except names that match a pattern of `ignore`."""
    return tuple(
        Difference(what, expected.get(what), found.get(what))
        for what in sorted(expected.keys() | found.keys())
        if expected.get(what) != found.get(what) and not any(fnmatchcase(what, pattern) for pattern in ignore)
    )


async def observe(w: World, outside: Outside) -> Observed:
    """Return runs, rows, events of clogs and effects outside; not times, attempts, calls, locks or counters."""
    runs = await _runs(w)
    observed: Observed = {}
    for run in runs:
        observed |= await _observe_run(w, run)
    observed |= await _observe_shared_rows(w, runs)
    observed |= await _observe_events(w)
    return observed | observe_effects(outside)


async def _runs(w: World) -> list[RunInfo]:
    found: list[RunInfo] = []
    cursor: str | None = None
    while True:
        page = await w.store.list_runs(RunFilter(), PAGE, cursor, False)
        found += page.runs
        cursor = page.next_cursor
        if cursor is None:
            return found


async def _observe_run(w: World, run: RunInfo) -> Observed:
    name = f"run {run.run_id} of {run.clog_id}"
    inputs = await w.store.list_inputs(run.run_id, 0, PAGE)
    waiting = [[each.kind, each.timer or each.signal_id, each.body] for each in inputs if each.consumed_tick is None]
    observed: Observed = {
        f"{name}: status": run.status,
        f"{name}: output": run.output,
        f"{name}: error": _without_place(run.error) if run.status is RunStatus.FAILED else None,
        f"{name}: ticks": run.tick,
        f"{name}: attributes": run.attributes or None,
        f"{name}: inputs not delivered": waiting or None,
    }
    for clog in w.ocean.clogs:
        key = RowKey("run", clog.clog_id, run.session_id, run.run_id)
        ask = RowsAsk(clog.clog_id, run.session_id, run.run_id, (key,), history=run.tick)
        read = await w.store.read_rows(ask)
        row = read.rows[key].text
        observed[f"{name}: row of {clog.clog_id}"] = None if row is None else json.loads(row)
        for tick, rows in read.history:
            for row_id, text in rows.items():
                observed[f"{name}: row {row_id!r} of {clog.clog_id} in tick {tick}"] = json.loads(text)
    return observed


def _without_place(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the error alone: after a crash another call of Ocean's own may lead to it."""
    return error and {name: value for name, value in error.items() if name != "where"}


async def _observe_shared_rows(w: World, runs: Iterable[RunInfo]) -> Observed:
    observed: Observed = {}
    for clog in w.ocean.clogs:
        keys = {f"global row of {clog.clog_id}": RowKey("global", clog.clog_id)}
        for session_id in sorted({run.session_id for run in runs}):
            keys[f"session row of {clog.clog_id} in {session_id}"] = RowKey("session", clog.clog_id, session_id)
        read = await w.store.read_rows(RowsAsk(clog.clog_id, "", "", tuple(keys.values())))
        for name, key in keys.items():
            text = read.rows[key].text
            observed[name] = None if text is None else json.loads(text)
    return observed


async def _observe_events(w: World) -> Observed:
    """Return the events of clogs that count for a reader, see `ocean.events.streamed`."""
    events: list[Event] = []
    while page := await w.ocean.read_events(after=events[-1].seq if events else 0, limit=PAGE):
        events += page
    observed: Observed = defaultdict(list)
    for event in kept_events(events):
        if event.type.split(".")[0] not in KERNEL_EVENTS:
            # A step is not repeated, what is streamed around it is: only within each of them the order is the same.
            step = f" in step {_TICK.sub('', event.step)}" if event.step else ""
            observed[f"events of run {event.run_id}{step}"].append([event.type, event.payload])
    return dict(observed)


def observe_effects(outside: Outside) -> Observed:
    """Return the effects of calls outside."""
    observed: Observed = defaultdict(list)
    for call in outside.effects():
        observed[f"effects of {call.name}"].append(call.body)
    return {name: sorted(bodies, key=_text) for name, bodies in observed.items()}
