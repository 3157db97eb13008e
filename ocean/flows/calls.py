"""Counters and methods of other clogs, for flows: the flow goes on only when the result is committed.

Both take part in the tick's commit, which may be refused and repeated with another result. A step that had acted on the
first result could not be undone.
"""

import copy
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from ocean.flows.journal import Entry
from ocean.flows.replay import Operation, Replay
from ocean.state.counters import Refill, Taken
from ocean.state.errors import Refuse


async def take_from_counter(
    replay: Replay, key: str, n: int, limit: int | None, per_ms: int | None, refill: Refill
) -> Taken:
    """Take from a counter, once."""

    async def take() -> Any:
        return asdict(await replay.tick.take(key, n, limit, per_ms, refill=refill))

    return Taken(**await _committed_result(replay, replay.begin("take", "take"), take))


async def call_method(replay: Replay, name: str, clog_id: str, method: str, payload: Any) -> Any:
    """Call a method of a clog, once."""

    async def call() -> Any:
        return await replay.tick.call(clog_id, method, payload)

    return await _committed_result(replay, replay.begin("call", name), call)


async def _committed_result(replay: Replay, operation: Operation, act: Callable[[], Awaitable[Any]]) -> Any:
    entry = operation.entry
    if entry is None:
        replay.suspend_if_frozen(operation.branch)
        replay.record(operation, await _entry_of(operation, act))
        replay.commit_first(operation.branch)
    if entry.error is not None:
        raise Refuse(**entry.error)
    return copy.deepcopy(entry.value)


async def _entry_of(operation: Operation, act: Callable[[], Awaitable[Any]]) -> Entry:
    try:
        return Entry(operation.kind, operation.name, is_done=True, value=await act())
    except Refuse as refused:
        error = {name: getattr(refused, name) for name in ("message", "code", "http_status", "details")}
        return Entry(operation.kind, operation.name, is_done=True, error=error)
