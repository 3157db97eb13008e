"""A chat whose model records its requests and waits where a test sets it to."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from clogs.chat import make_chat
from clogs.models import Ask, ModelReply, Models, OfflineModel
from clogs.models.offline import small_talk
from ocean import Clog, Event
from ocean.testing import World, world
from tests.invariants import check

PATIENCE_S = 30


@dataclass
class Mind:
    """The model behind the chat. Before the word `holds_at` of an answer it waits, once, until `go_on`."""

    replying: Callable[[Ask], ModelReply] = small_talk
    asks: list[Ask] = field(default_factory=list)
    holds_at: int | None = None
    is_holding: anyio.Event = field(default_factory=anyio.Event)
    go_on: anyio.Event = field(default_factory=anyio.Event)
    _words: int = 0

    def reply(self, ask: Ask) -> ModelReply:
        self.asks.append(ask)
        self._words = 0
        return self.replying(ask)

    async def pause(self) -> None:
        self._words += 1
        if self._words == self.holds_at and not self.is_holding.is_set():
            self.is_holding.set()
            await self.go_on.wait()

    def chat(self) -> Clog:
        def reply_briefly(ask: Ask) -> ModelReply:
            self.asks.append(ask)
            return ModelReply("I am the other one.")

        other = OfflineModel(reply_briefly, name="other")
        return make_chat(Models([OfflineModel(self.reply, pause=self.pause), other]))

    def sent_messages(self, which: int = -1) -> list[tuple[str, str]]:
        return [(each.role, each.content) for each in self.asks[which].messages]


@dataclass
class Talk:
    w: World
    mind: Mind
    run_id: str

    async def say(self, text: str, **more: Any) -> None:
        await self.w.ocean.signal(self.run_id, {"text": text}, **more)

    async def turn_for(self, text: str) -> Any:
        await self.say(text)
        await self.w.drain()
        return (await self.turns())[-1]

    async def turns(self) -> Any:
        return await self.w.ocean.call_clog(run_id=self.run_id, method="turns")

    async def events(self, *types: str) -> list[Event]:
        return await self.w.ocean.read_events(self.run_id, types=list(types), limit=1_000)

    async def streamed_texts(self, tick: int, call: int = 1) -> list[str]:
        tokens = await self.events("chat.token")
        return [each.payload["text"] for each in tokens if (each.tick, each.call) == (tick, call)]

    @asynccontextmanager
    async def during_answer(self, at_word: int) -> AsyncIterator[None]:
        """Inside the block, a poke runs whose model waits before this word; on leaving, the poke finishes."""
        self.mind.holds_at = at_word
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.w.drain)
                await self.mind.is_holding.wait()
                yield


@asynccontextmanager
async def talking(mind: Mind | None = None, **input: Any) -> AsyncIterator[Talk]:
    mind = mind or Mind()
    async with world([mind.chat()]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input=input)
        await w.drain()
        yield Talk(w, mind, run.run_id)
        await check(w)
