"""A request that waits does so for its caller: when that one is gone, so is the reason to wait."""

from collections.abc import Awaitable, Callable

import anyio
from starlette.requests import ClientDisconnect, Request

from ocean.http.framework.shutdown import Stopping


async def while_listening(request: Request, stopping: Stopping, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, unless the caller goes away: then it is cancelled, and `ClientDisconnect` is raised.

    Also if the work was done just then: there is nobody to tell. The body must have been read. If the server stops, the
    work is cancelled too, and this returns: the caller can still be told how far it came.
    """
    error: Exception | None = None
    has_gone = False

    async def listen() -> None:
        nonlocal has_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_gone = True
        tasks.cancel_scope.cancel()

    async def act() -> None:
        nonlocal error
        try:
            await work()
        except Exception as raised:
            error = raised
        tasks.cancel_scope.cancel()

    # The work is a task of the group: a server's native cancellation reaches it as the group's own, which the store's
    # shield holds off until what is being written is known.
    with stopping.calling(lambda: tasks.cancel_scope.cancel()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            tasks.start_soon(act)
            if stopping.is_set:
                tasks.cancel_scope.cancel()
    if has_gone:
        raise ClientDisconnect
    if error is not None:
        raise error
