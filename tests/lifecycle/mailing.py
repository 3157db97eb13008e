"""A tool box whose calls are counted, and a tick that uses it."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from ocean import (
    Done,
    Outcome,
    RunStatus,
    Tick,
    ToolBox,
    ToolCall,
    ToolFailed,
)
from ocean.testing import world
from tests.invariants import check
from tests.lifecycle.acting import Script, log, look, start

Act = Callable[[Tick], Awaitable[Any]]


class Mail:
    """A tool box whose calls are counted."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.counted = 0
        self.hangs = anyio.Event()
        self.box = ToolBox("mail")
        self.box.tool(name="send", description="Send a mail.")(self._send)
        self.box.tool(name="count", description="Count words.", effect="none")(self._count)
        self.box.tool(name="fail", description="Fails.")(self._fail)
        self.box.tool(name="break", description="Breaks.")(self._break)
        self.box.tool(name="hang", description="Hangs.", timeout_ms=1_000)(self._hang)
        self.box.tool(name="odd", description="Returns a value that is not JSON.")(self._odd)
        self.box.tool(name="wipe", description="Delete all mails.", dangerous=True)(self._wipe)

    async def _send(self, to: str, call: ToolCall) -> str:
        self.sent.append((to, call.idempotency_key))
        return f"sent {len(self.sent)}"

    def _count(self, text: str) -> int:
        self.counted += 1
        return len(text.split())

    async def _fail(self, code: str = "mailbox_full") -> None:
        raise ToolFailed("the box is full", code=code, details={"left": 0})

    def _break(self) -> None:
        raise RuntimeError("no route to Bearer abcdef-123456")

    async def _hang(self) -> None:
        self.hangs.set()
        await anyio.sleep_forever()

    async def _odd(self) -> Any:
        return {"a": {1, 2}}

    async def _wipe(self, box: str, call: ToolCall) -> str:
        return f"wiped {box} for {call.approved_by}"


async def in_a_tick(act: Act, mail: Mail, **options: Any) -> tuple[Any, list[Any]]:
    """Return the result of `act` inside a tick, or its error, and the payloads of `tool.called`."""
    results: list[Any] = []

    async def advance(tick: Tick) -> Outcome:
        try:
            results.append(await act(tick))
        except Exception as error:
            results.append(error)
        return Done()

    clog = Script(advance, toolbox=options.pop("toolbox", mail.box), **options.pop("clog", {}))
    async with world([clog], **options) as w:
        run_id = await start(w, {})
        await w.drain()
        await check(w)
        assert (await look(w, run_id)).status is RunStatus.DONE
        return results[0], [event.payload for event in await log(w, run_id, "tool.called")]
