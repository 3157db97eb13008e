"""Several lines of a flow at once, each a branch with places of its own, so that their order cannot matter."""

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any

import anyio

from ocean.flows.errors import Suspended
from ocean.flows.journal import Entry
from ocean.flows.replay import CURRENT, Branch, Play
from ocean.flows.steps import THE_DATABASE
from ocean.state.errors import InvalidValue
from ocean.state.values import shown


async def gathered(play: Play, work: Sequence[Awaitable[Any]], return_exceptions: bool) -> list[Any]:
    """What each came to, when all of them have ended. Nothing is left behind a failed one."""
    try:
        return await _gathered(play, work, return_exceptions)
    finally:
        for each in work:
            if inspect.iscoroutine(each):
                # One that was never begun is no mistake of whoever wrote it; the others have ended.
                each.close()


async def _gathered(play: Play, work: Sequence[Awaitable[Any]], return_exceptions: bool) -> list[Any]:
    operation = play.begin("gather", "gather")
    for each in work:
        if not inspect.isawaitable(each):
            raise InvalidValue(f"flow.gather takes what could be awaited, such as flow.step(…); got {shown(each)}")
    if operation.entry is None:
        play.refuse_if_frozen(operation.branch)
    entry = operation.entry or play.record(operation, Entry("gather", operation.name, value=len(work)))
    if entry.value != len(work):
        play.hold_changed(operation.branch, f"a gather of {len(work)}", f"a gather of {entry.value}")
    branches = [operation.branch.child(operation.position, operation.name, index) for index in range(len(work))]
    results: list[Any] = [None] * len(work)
    await _run(play, branches, work, results)
    for branch in branches:
        for type, payload in branch.told:
            await play.tell(operation.branch, type, payload)
    if any(branch.is_suspended for branch in branches):
        play.suspend(operation.branch)
    if not entry.is_done:
        entry.is_done = True
        play.is_dirty = True
    errors = [result for result in results if isinstance(result, _Error)]
    if errors and not return_exceptions:
        raise errors[0].error
    return [result.error if isinstance(result, _Error) else result for result in results]


class _Error:
    def __init__(self, error: Exception) -> None:
        self.error = error


async def _run(play: Play, branches: Sequence[Branch], work: Sequence[Awaitable[Any]], results: list[Any]) -> None:
    async def one(index: int) -> None:
        CURRENT.set(branches[index])
        try:
            results[index] = await work[index]
            play.check_ended(branches[index])
        except Suspended:
            pass
        except THE_DATABASE:
            raise
        except Exception as error:
            results[index] = _Error(error)

    try:
        async with anyio.create_task_group() as tasks:
            for index in range(len(work)):
                tasks.start_soon(one, index)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(error: BaseException) -> BaseException:
    """One lost lock is all that the kernel wants to hear of."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
