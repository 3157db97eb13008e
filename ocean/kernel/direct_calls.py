"""Direct calls: a method's answer is returned to the caller; row versions guard its commit, not the run's lock."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

from ocean.clog.clog import Clog, Registry
from ocean.kernel.call_context import CallContext
from ocean.kernel.invoke import invoke
from ocean.kernel.metrics import Observations
from ocean.kernel.runtime import commit_or_time
from ocean.kernel.store import Store
from ocean.kernel.store.runs import Behind, CallCommit, CallConflict, CallDone, Request
from ocean.kernel.tick import Tick
from ocean.kernel.tick_log import log_failed_call
from ocean.state.clock import Clock
from ocean.state.counters import Taken
from ocean.state.effects import Effects
from ocean.state.errors import (
    CallRefused,
    CallTimeout,
    Conflict,
    LockLost,
    OceanError,
    Refuse,
    StoreBusy,
    StoreFailed,
)
from ocean.state.outcomes import error_info
from ocean.state.records import Caller, RunInfo
from ocean.state.values import decode, encode
from ocean.tools.outside import Reach

CALL_TRIES = 5
TURN_LOOK_MS = 1_000
TURN_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True)
class DirectCall:
    store: Store
    registry: Registry
    clock: Clock
    clog: Clog
    method: str
    run: RunInfo | None
    session_id: str
    payload: str
    caller: Caller
    request: Request | None
    seed: str
    reach: Reach
    observed: Observations
    handler: Callable[..., Any] | None = None
    """Called instead of the method, which is then only a name."""

    async def run_to_end(self) -> Any:
        return answer_from((await self.done()).answer)

    async def done(self) -> CallDone:
        """Call and commit; on a conflict call again, at most `CALL_TRIES` times. A repeat returns the stored answer."""
        method = self.handler or self.clog.find_method(self.method)
        if self.request is not None:
            stored = await self.store.stored_answer(self.request)
            if stored is not None:
                return CallDone(stored, is_repeated=True)
        refused: dict[str, Taken] = {}
        tries = 0
        while tries < CALL_TRIES:
            effects, answer = await self._call(method, decode(self.payload), refused)
            if effects.is_empty and not effects.guards and self.request is None:
                return CallDone(answer)
            done = await self._commit(effects, answer)
            if isinstance(done, CallDone):
                return done
            self.observed.conflicted(
                self.clog.clog_id, "call", "counters" if done.refused else "rows", self.run.run_id if self.run else None
            )
            refused |= done.refused
            # The next call knows the refused counter, so this conflict cannot repeat and does not count.
            tries += not done.refused
        raise Conflict(f"{self.clog.clog_id}.{self.method} had {CALL_TRIES} conflicts with other writers; try again")

    async def _call(self, method: Any, payload: Any, refused: dict[str, Taken]) -> tuple[Effects, str]:
        now = self.clock.now()
        context = CallContext(
            store=self.store,
            registry=self.registry,
            clock=self.clock,
            run=self.run,
            session_id=self.session_id,
            seed=f"{self.run.run_id if self.run else self.clog.clog_id}:call:{self.seed}",
            reason="call",
            now=now,
            deadline=now + self.clog.tick_ms,
            caller=self.caller,
            reach=self.reach,
            refused=refused,
        )
        with anyio.CancelScope() as limit:
            cancel = self.clock.call_later(self.clog.tick_ms, limit.cancel)
            try:
                answer = await invoke(method, Tick(context, self.clog), payload)
                return context.effects, encode({"answer": answer}, "the method's answer")
            except (LockLost, StoreBusy, StoreFailed):
                raise
            except Refuse as refusal:
                error = {
                    "code": refusal.code,
                    "message": refusal.message,
                    "http_status": refusal.http_status,
                    "details": refusal.details,
                }
                return context.effects, encode({"refusal": error}, "the refusal")
            except Exception as error:
                if not isinstance(error, OceanError) or error.http_status >= 500:
                    run_id = self.run.run_id if self.run else None
                    log_failed_call(self.clog.clog_id, self.method, run_id, error_info(error))
                raise
            finally:
                cancel()
                context.is_over = True
        raise CallTimeout(f"{self.clog.clog_id}.{self.method} took longer than {self.clog.tick_ms} ms")

    async def _commit(self, effects: Effects, answer: str) -> CallDone | CallConflict:
        commit = CallCommit(
            clog_id=self.clog.clog_id,
            session_id=self.session_id or None,
            run_id=self.run.run_id if self.run else None,
            method=self.method,
            effects=effects,
            answer=answer,
            actor=self.caller.actor,
            request=self.request,
        )
        until = self.clock.now() + TURN_WAIT_MS
        while True:
            seen = self.store.commits_seen()
            done = await self.store.commit_call(commit)
            if not isinstance(done, Behind):
                return done
            left = until - self.clock.now()
            if left <= 0:
                return CallConflict()
            await commit_or_time(self.store, self.clock, seen, min(left, TURN_LOOK_MS))


def answer_from(text: str) -> Any:
    """Return a stored answer, or raise the stored refusal."""
    stored = json.loads(text)
    if "refusal" in stored:
        error = stored["refusal"]
        raise CallRefused(error["message"], error["code"], error["http_status"], error["details"])
    return stored["answer"]
