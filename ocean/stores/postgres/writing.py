"""How the store's verbs reach the database: in groups, one statement each.

Verbs that queue up while a group is on its way share the next one. A group does what its items would do one after
another; one that is refused leaves no trace of itself, and the others stand. Claims do not queue up: they wait for
nobody, and nobody waits for them.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from ocean.kernel.errors import StoreBusy, StoreFailed
from ocean.kernel.observing import BATCHES, Histogram
from ocean.kernel.store import Request
from ocean.stores.postgres.link import BUSY, Link
from ocean.stores.postgres.sending import Statement, send_once
from ocean.stores.refusals import refusal

Guesses: TypeAlias = dict[str, str | None]
"""What rows will hold once the earlier items of a group have been done, as far as those could tell."""
Args: TypeAlias = Any | Callable[[Guesses], Any]

WRITE = Statement("SELECT ocean_write($1, $2::text::jsonb, $3)::text", "SELECT ocean_settle($1)::text")
CLAIM = Statement("SELECT ocean_claim($1, $2::text::jsonb, $3)::text", "SELECT ocean_settle_claim($1)::text")

GROUP_LIMIT = 64
GROUP_CHARACTERS = 4 * 1024 * 1024
"""A group that has come to this takes no more."""
BUSY_STATES = {error.sqlstate for error in BUSY}


@dataclass(eq=False, slots=True)
class _Item:
    """A verb in the queue, and whom to tell."""

    verb: str
    args: Args
    request: Request | None
    waiter: asyncio.Future[None]
    text: str = ""
    answer: Any = None
    error: BaseException | None = None

    def put_into_words(self, guesses: Guesses) -> None:
        args = self.args(guesses) if callable(self.args) else self.args
        self.text = _json([self.verb, args, self.request and [self.request.key, self.request.hash]])

    def finish(self, answer: Any = None, error: BaseException | None = None) -> None:
        self.answer, self.error = answer, error
        if not self.waiter.done():
            self.waiter.set_result(None)

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
        self._sender: asyncio.Task[None] | None = None
        self.batch_sizes = Histogram(BATCHES)

    async def write(self, verb: str, args: Args, request: Request | None = None) -> Any:
        """A verb's answer, once it is committed; known even if the caller is cancelled.

        `args` may be a function: it is called when its group is put together, after those of the items before it.
        """
        self._link.check_open()
        item = _Item(verb, args, request, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_groups())
        with anyio.CancelScope(shield=True):
            await item.waiter
        return item.outcome()

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
        while self._sender is not None and not self._sender.done():
            await asyncio.wait({self._sender})

    async def _send_groups(self) -> None:
        """While one group is on its way, the next one gathers."""
        while self._queue:
            group = self._next_group()
            if group:
                await self._send(group)

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
        text = f"[{','.join(item.text for item in group)}]"
        try:
            done = await send_once(self._link, WRITE, text, self._is_told)
        except BaseException as error:
            if isinstance(error, StoreFailed) and len(group) > 1:
                # Each by itself, so that only the guilty one fails.
                for item in group:
                    await self._send([item])
                return
            for item in group:
                item.finish(error=error)
            if not isinstance(error, Exception):
                raise
            return
        self.batch_sizes.add(len(group))
        if done["changed"]:
            self._noticed()
        for item, answer in zip(group, done["answers"], strict=True):
            item.finish(answer)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
