"""`?waitMs`: the request advances its own run, and the response is sent when the run has settled or time is up."""

import logging
from dataclasses import dataclass

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.responses import JsonResponse, record
from ocean.state.errors import RunNotFound
from ocean.state.records import RunInfo, RunStatus

ONE_WAIT_MS = 1_000

logger = logging.getLogger("ocean.http")


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A run that has not settled: its further events come after `cursor`, and it is due again at `nextWakeAt`."""

    run_id: str
    status: RunStatus
    cursor: int
    next_wake_at: int | None


class WhenSettled(Response):
    """Responds after `wait_ms` at the latest. A handler that takes longer goes on: the wait does not limit it."""

    def __init__(self, call: HandlerCall, run_id: str, cursor: int, wait_ms: int) -> None:
        super().__init__()
        self._call = call
        self._run_id = run_id
        self._cursor = cursor
        self._wait_ms = wait_ms
        self._is_disconnected = False
        self._settled: RunInfo | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error: Exception | None = None
        over = anyio.Event()

        async def move() -> None:
            nonlocal error
            try:
                await self._settle()
            except Exception as raised:
                if over.is_set():
                    logger.exception("a run that a request waited for could not be advanced")
                error = raised
            over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(move)
            cancel = self._call.ocean.clock.call_later(self._wait_ms, over.set)
            async with anyio.create_task_group() as listening:
                listening.start_soon(self._listen, receive, over)
                with self._call.server.stopping.calling(over.set):
                    await over.wait()
                listening.cancel_scope.cancel()
            cancel()
            response = None
            if error is None and not self._is_disconnected:
                try:
                    response = await self._response()
                except Exception as raised:
                    error = raised
            if response is not None:
                await response(scope, receive, send)
        if response is None and error is not None:
            raise error
        if self.background is not None:
            await self.background()

    async def _listen(self, receive: Receive, over: anyio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_disconnected = True
        over.set()

    async def _settle(self) -> None:
        """Settle in short waits, so that a stopping server or a disconnected client ends them."""
        ocean, stopping = self._call.ocean, self._call.server.stopping
        until = ocean.clock.now() + self._wait_ms
        left, is_settled = self._wait_ms, False
        while left >= 0 and not is_settled and not stopping.is_set and not self._is_disconnected:
            run = await ocean.settle(self._run_id, timeout_ms=min(left, ONE_WAIT_MS))
            is_settled = run.is_settled(ocean.clock.now())
            self._settled = run if is_settled else None
            left = until - ocean.clock.now() if left else -1

    async def _response(self) -> Response:
        run = self._settled or await self._call.ocean.get_run(self._run_id)
        if run is None:
            raise RunNotFound(f"run {self._run_id!r} has been deleted meanwhile", run_id=self._run_id)
        if run.is_settled(self._call.ocean.clock.now()):
            return JsonResponse(record(run))
        return JsonResponse(record(Unsettled(run.run_id, run.status, self._cursor, run.due_at)), 202)
