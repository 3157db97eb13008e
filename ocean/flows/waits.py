"""What a flow waits for: a time, a signal, the end of a child."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ocean.flows.errors import ChildFailed, SignalTimeout
from ocean.flows.journal import Entry, signal_from
from ocean.flows.replay import Operation, Play
from ocean.state.records import Input

Filter = str | Mapping[str, Any] | Callable[[Any], bool] | None
"""A text means `body["type"]`, a mapping means those fields of the body, a function is asked with the body."""


async def slept(play: Play, until: Callable[[], int]) -> None:
    operation = play.begin("sleep", "sleep")
    entry = operation.entry or await _begun(play, operation, until())
    if entry.is_done:
        return
    if play.is_frozen or (entry.until or 0) > play.now:
        play.suspend(operation.branch, entry.until)
    play.record(operation, dataclasses.replace(entry, is_done=True))


async def signalled(play: Play, name: str, filter: Filter, timeout_ms: int | None) -> Input:
    operation = play.begin("signal", name)
    entry = operation.entry or await _begun(play, operation, None if timeout_ms is None else play.now + timeout_ms)
    if not entry.is_done:
        entry = _with_signal(play, operation, entry, filter)
    if entry.value is None:
        raise SignalTimeout(operation.name, timeout_ms or 0)
    return signal_from(copy.deepcopy(entry.value))


def _with_signal(play: Play, operation: Operation, entry: Entry, filter: Filter) -> Entry:
    play.refuse_if_frozen(operation.branch)
    for index, signal in enumerate(play.journal.signals):
        is_in_time = entry.until is None or signal["available_at"] <= entry.until
        if is_in_time and _fits(filter, signal["body"]):
            del play.journal.signals[index]
            return play.record(operation, dataclasses.replace(entry, is_done=True, value=signal))
    if entry.until is None or entry.until > play.now or not play.has_all_inputs:
        play.suspend(operation.branch, entry.until)
    return play.record(operation, dataclasses.replace(entry, is_done=True))


async def joined(play: Play, run_id: str) -> Any:
    operation = play.begin("join", "join")
    entry = operation.entry or await _begun(play, operation, None, run_id)
    if not entry.is_done:
        play.refuse_if_frozen(operation.branch)
        end = play.journal.ends.pop(run_id, None)
        if end is None:
            play.suspend(operation.branch)
        entry = play.record(operation, Entry("join", operation.name, is_done=True, value=end))
    end = copy.deepcopy(entry.value)
    if end["error"] is not None:
        raise ChildFailed(run_id, end["error"])
    return end["output"]


async def _begun(play: Play, operation: Operation, until: int | None, run_id: str | None = None) -> Entry:
    play.refuse_if_frozen(operation.branch)
    kind = "child" if run_id else operation.kind
    await play.tell(operation.branch, "flow.waiting", {"for": kind, "name": run_id or operation.name, "until": until})
    return play.record(operation, Entry(operation.kind, operation.name, until=until, value=run_id))


def _fits(filter: Filter, body: Any) -> bool:
    match filter:
        case None:
            return True
        case str():
            return isinstance(body, dict) and body.get("type") == filter
        case Mapping():
            return isinstance(body, dict) and all(name in body and body[name] == filter[name] for name in filter)
        case _:
            return bool(filter(body))
