"""`flow.gather`: several parts of a flow at once. Each is a branch with its own positions, so order does not matter."""

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any

import anyio

from ocean.flows.errors import Cancelled, Suspended
from ocean.flows.journal import Entry
from ocean.flows.replay import CURRENT, Branch, Replay
from ocean.flows.steps import STORE_ERRORS
from ocean.state.errors import InvalidValue
from ocean.state.values import shown


async def gather(replay: Replay, work: Sequence[Awaitable[Any]], return_exceptions: bool) -> list[Any]:
    """Return the results when all of them have ended. If one fails, the others are not abandoned."""
    try:
        return await _gather(replay, work, return_exceptions)
    finally:
        for each in work:
            if inspect.iscoroutine(each):
                # Prevents a warning about a coroutine that was never awaited; those that were awaited have ended.
                each.close()


async def _gather(replay: Replay, work: Sequence[Awaitable[Any]], return_exceptions: bool) -> list[Any]:
    operation = replay.begin("gather", "gather")
    for each in work:
        if not inspect.isawaitable(each):
            raise InvalidValue(f"arguments of flow.gather must be awaitable, such as flow.step(…), got {shown(each)}")
    if operation.entry is None or operation.entry.is_cancelled:
        replay.check_cancelled(operation)
        replay.suspend_if_frozen(operation.branch)
    entry = operation.entry or replay.record(operation, Entry("gather", operation.name, value=len(work)))
    if entry.value != len(work):
        replay.hold_changed(operation.branch, f"a gather of {len(work)}", f"a gather of {entry.value}")
    branches = [operation.branch.child(operation.position, operation.name, index) for index in range(len(work))]
    results: list[Any] = [None] * len(work)
    await _run(replay, branches, work, results)
    for branch in branches:
        for type, payload in branch.events:
            await replay.emit(operation.branch, type, payload)
    if any(branch.is_suspended for branch in branches):
        replay.suspend(operation.branch)
    if not operation.branch.is_cancelled and any(branch.is_cancelled for branch in branches):
        operation.branch.is_cancelled = True
        raise replay.cancelled()
    if not entry.is_done:
        entry.is_done = True
        replay.is_dirty = True
    errors = [result for result in results if isinstance(result, _Error)]
    if errors and not return_exceptions:
        raise errors[0].error
    return [result.error if isinstance(result, _Error) else result for result in results]


class _Error:
    """Marks an exception that was raised, as opposed to one that was returned."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _run(replay: Replay, branches: Sequence[Branch], work: Sequence[Awaitable[Any]], results: list[Any]) -> None:
    async def one(index: int) -> None:
        CURRENT.set(branches[index])
        try:
            results[index] = await work[index]
            replay.check_ended(branches[index])
        except (Suspended, Cancelled):
            pass
        except STORE_ERRORS:
            raise
        except Exception as error:
            results[index] = _Error(error)
        except BaseExceptionGroup as errors:
            if errors.split((Suspended, Cancelled))[1] is not None:
                raise

    try:
        async with anyio.create_task_group() as tasks:
            for index in range(len(work)):
                tasks.start_soon(one, index)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(error: BaseException) -> BaseException:
    """Return the first single exception: the kernel expects, say, one `LockLost`, not a group of them."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
