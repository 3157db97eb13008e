"""How the store's verbs reach the database: in groups, one statement each.

Verbs that are queued while a group is in flight share the next one. A group has the same effect as its verbs one after
another; a refused verb leaves no trace, and the others stand. Claims are not queued: they are sent at once and block no
group. A pending claim is sent with every group until it has claimed something.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from ocean.kernel.metrics import BATCHES, Histogram
from ocean.kernel.store.runs import Request
from ocean.state.errors import StoreBusy, StoreFailed
from ocean.stores.postgres.client.connection import BUSY, ConnectionPool
from ocean.stores.postgres.client.exactly_once import TokenStatement, send_once
from ocean.stores.postgres.client.pending_claims import PendingClaim, PendingClaims
from ocean.stores.shared.refusals import refusal
from ocean.stores.shared.waiter import Waiter

Predictions: TypeAlias = dict[str, str | None]
"""The rows' values after the earlier verbs of a group, as far as these could predict them."""
Args: TypeAlias = Any | Callable[[Predictions], Any]

WRITE = TokenStatement("SELECT ocean_write($1, $2::text::jsonb, $3)::text", "SELECT ocean_settle($1)::text")
WRITE_AND_CLAIM = TokenStatement(
    "SELECT ocean_write($1, $2::text::jsonb, $3, $4::text::jsonb)::text", "SELECT ocean_settle_write($1)::text"
)
CLAIM = TokenStatement("SELECT ocean_claim($1, $2::text::jsonb, $3)::text", "SELECT ocean_settle_claim($1)::text")

GROUP_LIMIT = 64
GROUP_CHARACTERS = 4 * 1024 * 1024
"""A group of this size takes no further verb."""
AHEAD = GROUP_LIMIT // 2
"""With so many verbs queued, a second group is sent while one is in flight: the server can start it at once."""
BUSY_STATES = {error.sqlstate for error in BUSY}


@dataclass(eq=False, slots=True)
class _QueuedVerb:
    """A verb in the queue, and the waiter of its caller."""

    verb: str
    args: Args
    request: Request | None
    waiter: Waiter
    is_predicting: bool = False
    text: str = ""
    answer: Any = None
    error: BaseException | None = None

    def encode(self, predictions: Predictions) -> None:
        args = self.args(predictions) if callable(self.args) else self.args
        self.text = _json([self.verb, args, self.request and [self.request.key, self.request.hash]])

    def finish(self, answer: Any = None, error: BaseException | None = None) -> None:
        self.answer, self.error = answer, error
        self.waiter.set()

    def outcome(self) -> Any:
        match self.answer:
            case _ if self.error is not None:
                raise self.error
            case {"answer": answer}:
                return answer
            case {"refused": code, "facts": facts}:
                raise refusal(code, facts)
            case {"failed": why, "state": state} if state in BUSY_STATES:
                raise StoreBusy(f"PostgreSQL is busy: {why}; retry")
            case {"failed": why}:
                raise StoreFailed(f"PostgreSQL failed: {why}; see the server's log")
        raise AssertionError(f"ocean_write returned {self.answer!r}")


class WriteBatches:
    """`noticed` is called after every commit that changed something; `notifies` is whether listeners are notified."""

    def __init__(
        self, pool: ConnectionPool, noticed: Callable[[], None] = lambda: None, *, notifies: bool = True
    ) -> None:
        self._pool = pool
        self._noticed = noticed
        self._notifies = notifies and pool.options.notify
        self._queue: deque[_QueuedVerb] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._is_gathering = False
        self._in_flight = 0
        self.pending_claims = PendingClaims()
        self.batch_sizes = Histogram(BATCHES)

    async def write(self, verb: str, args: Args, request: Request | None = None, *, is_predicting: bool = False) -> Any:
        """Return a verb's result once it is committed, even if a scope around the caller is cancelled.

        `args` may be a function: it is called when its group is built, after those of the verbs before it. A verb that
        predicts rows is not sent before the groups in flight, which may change them, have returned.
        """
        self._pool.check_open()
        queued = _QueuedVerb(verb, args, request, Waiter(), is_predicting)
        self._queue.append(queued)
        self._gather()
        await queued.waiter.wait()
        return queued.outcome()

    def add_claim(self, ask: Any, claimed: Callable[[list[Any]], None]) -> PendingClaim:
        """Send a claim with the next groups, until one has claimed something or it is withdrawn."""
        return self.pending_claims.add(_json(ask), claimed)

    async def claim(self, ask: Any) -> dict[str, Any]:
        """Return the result of `ocean_claim`. A cancelled caller still waits: the locks taken need an owner."""
        self._pool.check_open()
        found: dict[str, Any] = {}
        with anyio.CancelScope(shield=True):
            found = await send_once(self._pool, CLAIM, _json(ask), self._notifies)
        if "refused" in found:
            raise refusal(found["refused"], found["facts"])
        if found["claims"] or found["again"]:
            self._noticed()
        return found

    async def close(self) -> None:
        """Finish what is queued. Further verbs are refused once the pool is closed."""
        while self._queue or self._senders:
            self._gather()
            await asyncio.wait(self._senders)

    def _gather(self) -> None:
        """Start a task that sends the next group; verbs of the same round of the loop share it."""
        if self._is_gathering or not self._may_send():
            return
        self._is_gathering = True
        sender = asyncio.create_task(self._send_groups())
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send_groups(self) -> None:
        """Send groups until the queue is empty. While one is in flight, the next one gathers."""
        self._is_gathering = False
        while self._may_send() and (group := self._next_group()):
            self._in_flight += 1
            try:
                self._gather()
                await self._send(group)
            finally:
                self._in_flight -= 1
            if len(group) > 1:
                # Callers that were just woken may send further verbs: let these share the next group.
                self._is_gathering = True
                try:
                    await anyio.lowlevel.checkpoint()
                finally:
                    self._is_gathering = False

    def _may_send(self) -> bool:
        if not self._in_flight:
            return bool(self._queue)
        if self._in_flight > 1 or len(self._queue) < AHEAD:
            return False
        return not any(verb.is_predicting for verb in islice(self._queue, GROUP_LIMIT))

    def _next_group(self) -> list[_QueuedVerb]:
        group: list[_QueuedVerb] = []
        predictions: Predictions = {}
        characters = 0
        while self._queue and len(group) < GROUP_LIMIT and characters < GROUP_CHARACTERS:
            verb = self._queue.popleft()
            try:
                verb.encode(predictions)
            except Exception as error:
                verb.finish(error=error)
            else:
                characters += len(verb.text)
                group.append(verb)
        return group

    async def _send(self, group: list[_QueuedVerb]) -> None:
        pending = self.pending_claims.take()
        claims: list[Any] = []
        is_over = True
        try:
            done = await self._sent(f"[{','.join(verb.text for verb in group)}]", pending)
            claims, is_over = done.get("claims", []), False
        except BaseException as error:
            if isinstance(error, StoreFailed) and (len(group) > 1 or pending is not None):
                # Send each alone, so that only the one at fault fails.
                for verb in group:
                    await self._send([verb])
                return
            for verb in group:
                verb.finish(error=error)
            if not isinstance(error, Exception):
                raise
            return
        finally:
            if pending is not None:
                self.pending_claims.put_back(pending, claims, is_over=is_over)
        self.batch_sizes.add(len(group))
        if done["changed"]:
            self._noticed()
        for verb, answer in zip(group, done["results"], strict=True):
            verb.finish(answer)

    async def _sent(self, text: str, pending: PendingClaim | None) -> Any:
        if pending is None:
            return await send_once(self._pool, WRITE, text, self._notifies)
        return await send_once(self._pool, WRITE_AND_CLAIM, text, self._notifies, pending.ask)


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
