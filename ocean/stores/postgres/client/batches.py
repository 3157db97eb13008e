"""How the store's verbs reach the database: in groups, one statement each.

Verbs that queue up while a group is on its way share the next one. A group does what its items would do one after
another; one that is refused leaves no trace of itself, and the others stand. Claims do not queue up: they wait for
nobody, and nobody waits for them. One that was ordered goes along with every group until something is claimed by it.
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
from ocean.stores.postgres.client.connection import BUSY, Link
from ocean.stores.postgres.client.exactly_once import Statement, send_once
from ocean.stores.postgres.client.pending_claims import Order, Orders
from ocean.stores.shared.refusals import refusal
from ocean.stores.shared.waiter import Waiter

Guesses: TypeAlias = dict[str, str | None]
"""What rows will hold once the earlier items of a group have been done, as far as those could tell."""
Args: TypeAlias = Any | Callable[[Guesses], Any]

WRITE = Statement("SELECT ocean_write($1, $2::text::jsonb, $3)::text", "SELECT ocean_settle($1)::text")
WRITE_AND_CLAIM = Statement(
    "SELECT ocean_write($1, $2::text::jsonb, $3, $4::text::jsonb)::text", "SELECT ocean_settle_write($1)::text"
)
CLAIM = Statement("SELECT ocean_claim($1, $2::text::jsonb, $3)::text", "SELECT ocean_settle_claim($1)::text")

GROUP_LIMIT = 64
GROUP_CHARACTERS = 4 * 1024 * 1024
"""A group that has come to this takes no more."""
AHEAD = GROUP_LIMIT // 2
"""So many leave while another group is on its way: the server has them at hand as soon as it is done with that."""
BUSY_STATES = {error.sqlstate for error in BUSY}


@dataclass(eq=False, slots=True)
class _Item:
    """A verb in the queue, and whom to tell."""

    verb: str
    args: Args
    request: Request | None
    waiter: Waiter
    is_guessing: bool = False
    text: str = ""
    answer: Any = None
    error: BaseException | None = None

    def put_into_words(self, guesses: Guesses) -> None:
        args = self.args(guesses) if callable(self.args) else self.args
        self.text = _json([self.verb, args, self.request and [self.request.key, self.request.hash]])

    def finish(self, answer: Any = None, error: BaseException | None = None) -> None:
        self.answer, self.error = answer, error
        self.waiter.tell()

    def outcome(self) -> Any:
        match self.answer:
            case _ if self.error is not None:
                raise self.error
            case {"answer": answer}:
                return answer
            case {"refused": code, "facts": facts}:
                raise refusal(code, facts)
            case {"failed": why, "state": state} if state in BUSY_STATES:
                raise StoreBusy(f"PostgreSQL has no time: {why}; try again")
            case {"failed": why}:
                raise StoreFailed(f"PostgreSQL cannot do this: {why}; look at its log")
        raise AssertionError(f"ocean_write answered {self.answer!r}")


class Writing:
    """`noticed` is called after every commit that changed something; `is_told` says whether listeners are told, too."""

    def __init__(self, link: Link, noticed: Callable[[], None] = lambda: None, *, is_told: bool = True) -> None:
        self._link = link
        self._noticed = noticed
        self._is_told = is_told and link.options.notify
        self._queue: deque[_Item] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._is_gathering = False
        self._on_their_way = 0
        self.orders = Orders()
        self.batch_sizes = Histogram(BATCHES)

    async def write(self, verb: str, args: Args, request: Request | None = None, *, is_guessing: bool = False) -> Any:
        """A verb's answer, once it is committed; known even if the caller is cancelled.

        `args` may be a function: it is called when its group is put together, after those of the items before it. One
        that guesses does not leave before the groups that it would have to guess from have come back.
        """
        self._link.check_open()
        item = _Item(verb, args, request, Waiter(), is_guessing)
        self._queue.append(item)
        self._gather()
        await item.waiter.told()
        return item.outcome()

    def order(self, ask: Any, claimed: Callable[[list[Any]], None]) -> Order:
        """Have the next groups claim what they make due, until one has or `orders.withdraw`."""
        return self.orders.put(_json(ask), claimed)

    async def claim(self, ask: Any) -> dict[str, Any]:
        """What `ocean_claim` answers; known even if the caller is cancelled, or its locks would be nobody's."""
        self._link.check_open()
        found: dict[str, Any] = {}
        with anyio.CancelScope(shield=True):
            found = await send_once(self._link, CLAIM, _json(ask), self._is_told)
        if "refused" in found:
            raise refusal(found["refused"], found["facts"])
        if found["claims"] or found["again"]:
            self._noticed()
        return found

    async def close(self) -> None:
        """What has queued up is done first. Then nothing more is taken, once the link is closed."""
        while self._queue or self._senders:
            self._gather()
            await asyncio.wait(self._senders)

    def _gather(self) -> None:
        """Whoever else runs in this round of the loop shares the group."""
        if self._is_gathering or not self._may_leave():
            return
        self._is_gathering = True
        sender = asyncio.create_task(self._send_groups())
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send_groups(self) -> None:
        """While one group is on its way, the next one gathers."""
        self._is_gathering = False
        while self._may_leave() and (group := self._next_group()):
            self._on_their_way += 1
            try:
                self._gather()
                await self._send(group)
            finally:
                self._on_their_way -= 1
            if len(group) > 1:
                # Who was answered may have more to say: it shares the next group.
                self._is_gathering = True
                try:
                    await anyio.lowlevel.checkpoint()
                finally:
                    self._is_gathering = False

    def _may_leave(self) -> bool:
        if not self._on_their_way:
            return bool(self._queue)
        if self._on_their_way > 1 or len(self._queue) < AHEAD:
            return False
        return not any(item.is_guessing for item in islice(self._queue, GROUP_LIMIT))

    def _next_group(self) -> list[_Item]:
        group: list[_Item] = []
        guesses: Guesses = {}
        characters = 0
        while self._queue and len(group) < GROUP_LIMIT and characters < GROUP_CHARACTERS:
            item = self._queue.popleft()
            try:
                item.put_into_words(guesses)
            except Exception as error:
                item.finish(error=error)
            else:
                characters += len(item.text)
                group.append(item)
        return group

    async def _send(self, group: list[_Item]) -> None:
        order = self.orders.take()
        claims: list[Any] = []
        is_over = True
        try:
            done = await self._sent(f"[{','.join(item.text for item in group)}]", order)
            claims, is_over = done.get("claims", []), False
        except BaseException as error:
            if isinstance(error, StoreFailed) and (len(group) > 1 or order is not None):
                # Each by itself, so that only the guilty one fails.
                for item in group:
                    await self._send([item])
                return
            for item in group:
                item.finish(error=error)
            if not isinstance(error, Exception):
                raise
            return
        finally:
            if order is not None:
                self.orders.bring_back(order, claims, is_over=is_over)
        self.batch_sizes.add(len(group))
        if done["changed"]:
            self._noticed()
        for item, answer in zip(group, done["answers"], strict=True):
            item.finish(answer)

    async def _sent(self, text: str, order: Order | None) -> Any:
        if order is None:
            return await send_once(self._link, WRITE, text, self._is_told)
        return await send_once(self._link, WRITE_AND_CLAIM, text, self._is_told, order.ask)


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
