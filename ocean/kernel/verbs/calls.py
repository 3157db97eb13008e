"""Verbs that call a clog's method and return its answer, store an answer under a request key, or fetch."""

from collections.abc import Mapping
from typing import Any

from ocean.clog.clog import Registry
from ocean.kernel.arguments import checked_caller, optional_id, request_of
from ocean.kernel.direct_calls import DirectCall, answer_from
from ocean.kernel.runtime import Runtime
from ocean.kernel.store import Store
from ocean.kernel.store.runs import Request
from ocean.state.clock import Clock
from ocean.state.errors import InvalidValue, RunNotFound
from ocean.state.ids import IdSource
from ocean.state.records import Caller
from ocean.state.values import checked_id, decode, encode
from ocean.tools.fetch import FetchRequest, FetchResponse


class CallVerbs:
    _store: Store
    _clock: Clock
    _ids: IdSource
    _registry: Registry
    _runtime: Runtime

    async def call_clog(
        self,
        *,
        method: str,
        run_id: str | None = None,
        clog_id: str | None = None,
        session_id: str | None = None,
        payload: Any = None,
        caller: Caller | None = None,
        request_key: str | None = None,
    ) -> Any:
        """Call a clog's method and return its answer: on a run, or on a clog and optionally a session."""
        if run_id is None and clog_id is None:
            raise InvalidValue("call_clog needs a run_id, or a clog_id and optionally a session_id")
        if run_id is not None and session_id is not None:
            raise InvalidValue("session_id must be left out for a call on a run: the run has its own session")
        text = encode(payload, "payload")
        checked_id(method, "method")
        optional_id(session_id, "session_id")
        optional_id(clog_id, "clog_id")
        request = request_of(request_key, "call", [run_id, clog_id, session_id, method, decode(text)])
        run = await self._store.get_run(checked_id(run_id, "run_id")) if run_id is not None else None
        if run is None and run_id is not None:
            return await self._stored_answer(run_id, request)
        clog = self._registry.get(clog_id if clog_id is not None else run.clog_id if run else "")
        call = DirectCall(
            store=self._store,
            registry=self._registry,
            clock=self._clock,
            clog=clog,
            method=method,
            run=run,
            session_id=run.session_id if run else session_id or "",
            payload=text,
            caller=checked_caller(caller),
            request=request,
            seed=request_key or self._ids.new(self._clock.now()),
            reach=self._runtime.reach,
            observed=self._runtime.observed,
        )
        return await call.run_to_end()

    async def _stored_answer(self, run_id: str, request: Request | None) -> Any:
        """Return the answer of the first request under this key, though the run has been deleted since."""
        stored = await self._store.stored_answer(request) if request is not None else None
        if stored is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return answer_from(stored)

    async def kept_answer(self, request_key: str, asked: Any) -> str | None:
        """Return what `keep_answer` stored under the key for the same question; another question is refused."""
        return await self._store.stored_answer(_request(request_key, asked))

    async def keep_answer(self, request_key: str, asked: Any, answer: str) -> str:
        """Store the answer of something that is not one transaction. Returns the first one stored under the key."""
        return await self._store.keep_answer(_request(request_key, asked), answer)

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_ms: int = 10_000,
    ) -> FetchResponse:
        """Make an HTTP request by the rules of `tick.fetch`, outside a tick: in a worker or a route."""
        return await self._runtime.reach.fetch(FetchRequest(url, method, dict(headers or {}), body, timeout_ms))


def _request(request_key: str, asked: Any) -> Request:
    request = request_of(request_key, "kept", asked)
    assert request is not None
    return request
