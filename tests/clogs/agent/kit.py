"""An agent with a scripted model that records its requests, and tools that count their calls."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from clogs.agent import make_agent
from clogs.models import Ask, ModelReply, Models, OfflineModel, by_script
from ocean import Caller, Clog, Event, RunInfo, ToolBox, ToolCall, ToolFailed
from ocean.testing import World, world
from tests.invariants import check

KIM, LEE = Caller("kim", ("operator",)), Caller("lee")
WIPE = ModelReply("I will clean up.", calls=[("disk__wipe", {"path": "/tmp/x", "password": "hunter22"})])


@dataclass
class Stage:
    """`replies` are the model's, one for each turn. It waits before the word `holds_at`, once, until `go_on`."""

    replies: Sequence[ModelReply] = ()
    replying: Callable[[Ask], ModelReply] | None = None
    asks: list[Ask] = field(default_factory=list)
    wiped: list[tuple[str, str | None]] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    holds_at: int | None = None
    is_holding: anyio.Event = field(default_factory=anyio.Event)
    go_on: anyio.Event = field(default_factory=anyio.Event)
    _words: int = 0

    def reply(self, ask: Ask) -> ModelReply:
        self.asks.append(ask)
        self._words = 0
        return (self.replying or by_script(*self.replies))(ask)

    async def pause(self) -> None:
        self._words += 1
        if self._words == self.holds_at and not self.is_holding.is_set():
            self.is_holding.set()
            await self.go_on.wait()

    def box(self) -> ToolBox:
        box = ToolBox("disk")

        @box.tool
        async def look(path: str) -> Any:
            """List what is there."""
            self.looked.append(path)
            if path == "/secret":
                raise ToolFailed("not yours", code="forbidden")
            return {"files": ["a", "b"]} if path != "/long" else "x" * 50_000

        @box.tool(dangerous=True)
        async def wipe(path: str, call: ToolCall, password: str = "") -> str:
            """Delete everything there."""
            self.wiped.append((path, call.approved_by))
            return f"{path} is empty"

        return box

    def agent(self, **options: Any) -> Clog:
        model = OfflineModel(self.reply, pause=self.pause)
        return make_agent(Models([model]), self.box(), **options)

    def sent_messages(self, which: int = -1) -> list[tuple[str, str]]:
        """Return the messages that the model got, without the system prompt."""
        return [(each.role, each.content) for each in self.asks[which].messages[1:]]


@dataclass
class Job:
    w: World
    stage: Stage
    run_id: str

    async def look(self) -> RunInfo:
        run = await self.w.ocean.get_run(self.run_id)
        assert run is not None
        return run

    async def events(self, *types: str) -> list[Event]:
        return await self.w.ocean.read_events(self.run_id, types=types, limit=1_000)

    async def payloads(self, *types: str) -> list[Any]:
        return [event.payload for event in await self.events(*types)]

    async def say(self, body: Any) -> None:
        await self.w.ocean.signal(self.run_id, body)

    async def decide(self, verb: str, approval_id: str = "1.1", caller: Caller = KIM, **more: Any) -> Any:
        payload = {"approval_id": approval_id} | more
        return await self.w.ocean.call_clog(run_id=self.run_id, method=verb, payload=payload, caller=caller)

    async def result(self) -> Any:
        return await self.w.ocean.result(self.run_id)


@asynccontextmanager
async def job(stage: Stage, task: Any = "Tidy up.", *, drains: bool = True, **options: Any) -> AsyncIterator[Job]:
    world_options = {name: options.pop(name) for name in ("deny_tools", "tools") if name in options}
    clog_options = {name: options.pop(name) for name in ("approver_role",) if name in options}
    async with world([stage.agent(**clog_options)], **world_options) as w:
        input = {"task": task} if isinstance(task, str) else task
        run = await w.ocean.create_run(session_id="s", clog_id="agent", input=input, **options)
        if drains:
            await w.drain()
        yield Job(w, stage, run.run_id)
        await check(w)
