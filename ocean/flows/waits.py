"""What a flow waits for: a time, a signal, the end of a child."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from ocean.flows.errors import ChildFailed, SignalTimeout
from ocean.flows.journal import Entry, signal_from
from ocean.flows.replay import Operation, Replay
from ocean.state.records import Input
from ocean.state.tracebacks import carry

Filter = str | Mapping[str, Any] | Callable[[Any], bool] | None
"""A text means `body["type"]`, a mapping means those fields of the body, a function is called with the body."""

LEFT = {"code": "parent_ended", "message": "the flow that started it has ended, and gets no end of it", "details": None}
"""The error of a child that a handler of `Cancelled` joins, if the flow started it before."""


async def sleep_until(replay: Replay, until: Callable[[], int]) -> None:
    """Suspend the flow until the time that `until` returns when the operation begins."""
    operation = replay.begin("sleep", "sleep")
    entry = operation.entry or await _begin_wait(replay, operation, until())
    if entry.is_done:
        return
    if replay.is_frozen or (entry.until or 0) > replay.now:
        replay.suspend(operation.branch, entry.until)
    replay.record(operation, dataclasses.replace(entry, is_done=True))


async def wait_for_signal(replay: Replay, name: str, filter: Filter, timeout_ms: int | None) -> Input:
    """Return the first signal that matches; raise `SignalTimeout` if none arrives in time."""
    operation = replay.begin("signal", name)
    until = None if timeout_ms is None else replay.now + timeout_ms
    entry = operation.entry or await _begin_wait(replay, operation, until)
    if not entry.is_done:
        entry = _take_signal(replay, operation, entry, filter)
    if entry.value is None:
        raise SignalTimeout(operation.name, timeout_ms or 0)
    return signal_from(copy.deepcopy(entry.value))


def _take_signal(replay: Replay, operation: Operation, entry: Entry, filter: Filter) -> Entry:
    replay.suspend_if_frozen(operation.branch)
    for index, signal in enumerate(replay.journal.signals):
        is_in_time = entry.until is None or signal["available_at"] <= entry.until
        if is_in_time and _matches(filter, signal["body"]):
            del replay.journal.signals[index]
            return replay.record(operation, dataclasses.replace(entry, is_done=True, value=signal))
    if entry.until is None or entry.until > replay.now or not replay.has_all_inputs:
        replay.suspend(operation.branch, entry.until)
    return replay.record(operation, dataclasses.replace(entry, is_done=True))


async def join_child(replay: Replay, run_id: str) -> Any:
    """Return the output of a child that has ended; raise `ChildFailed` if it failed."""
    operation = replay.begin("join", "join")
    entry = operation.entry or await _begin_wait(replay, operation, None, run_id)
    if not entry.is_done:
        replay.suspend_if_frozen(operation.branch)
        end = replay.journal.ends.pop(run_id, None)
        if end is None and replay.journal.ending is not None and run_id not in replay.children:
            end = {"status": "failed", "output": None, "error": LEFT}
        if end is None:
            replay.suspend(operation.branch)
        entry = replay.record(operation, Entry("join", operation.name, is_done=True, value=end))
    end = copy.deepcopy(entry.value)
    if end["error"] is not None:
        failure = ChildFailed(run_id, end["error"])
        carry(failure, end["error"].get("where"))
        raise failure
    return end["output"]


async def _begin_wait(replay: Replay, operation: Operation, until: int | None, run_id: str | None = None) -> Entry:
    replay.suspend_if_frozen(operation.branch)
    kind = "child" if run_id else operation.kind
    payload = {"for": kind, "name": run_id or operation.name, "until": until}
    await replay.emit(operation.branch, "flow.waiting", payload)
    return replay.record(operation, Entry(operation.kind, operation.name, until=until, value=run_id))


def _matches(filter: Filter, body: Any) -> bool:
    match filter:
        case None:
            return True
        case str():
            return isinstance(body, dict) and body.get("type") == filter
        case Mapping():
            return isinstance(body, dict) and all(name in body and body[name] == filter[name] for name in filter)
        case Callable():
            return bool(filter(body))
        case _:
            assert_never(filter)
