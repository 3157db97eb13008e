"""What a flow asks of counters and of other clogs: it goes on when the answer is committed, and not before.

Both are part of the tick's commit, which may be refused and made again with another answer. A step that had acted on
the first one could not be taken back.
"""

import copy
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from ocean.flows.journal import Entry
from ocean.flows.replay import Operation, Play
from ocean.state.counters import Refill, Taken
from ocean.state.errors import Refuse


async def taken_from(play: Play, key: str, n: int, limit: int | None, per_ms: int | None, refill: Refill) -> Taken:
    async def ask() -> Any:
        return asdict(await play.tick.take(key, n, limit, per_ms, refill=refill))

    return Taken(**await _answered(play, play.begin("take", "take"), ask))


async def called(play: Play, name: str, clog_id: str, method: str, payload: Any) -> Any:
    async def ask() -> Any:
        return await play.tick.call(clog_id, method, payload)

    return await _answered(play, play.begin("call", name), ask)


async def _answered(play: Play, operation: Operation, ask: Callable[[], Awaitable[Any]]) -> Any:
    entry = operation.entry
    if entry is None:
        play.refuse_if_frozen(operation.branch)
        play.record(operation, await _asked(operation, ask))
        play.commit_first(operation.branch)
    if entry.error is not None:
        raise Refuse(**entry.error)
    return copy.deepcopy(entry.value)


async def _asked(operation: Operation, ask: Callable[[], Awaitable[Any]]) -> Entry:
    try:
        return Entry(operation.kind, operation.name, is_done=True, value=await ask())
    except Refuse as refused:
        said = {name: getattr(refused, name) for name in ("message", "code", "http_status", "details")}
        return Entry(operation.kind, operation.name, is_done=True, error=said)
