"""A chat on a real endpoint, and a chat whose messages come from another process."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from starlette.responses import Response, StreamingResponse

from clogs.chat import make_chat
from clogs.models import Models
from ocean import Ocean
from ocean.testing import world
from tests.clogs.chat.kit import PATIENCE_S, Mind, Talk
from tests.clogs.models.speaking import DONE, speaking, sse_chunk

pytestmark = pytest.mark.anyio


async def test_the_delay_that_an_endpoint_requests_is_kept() -> None:
    async with speaking() as speaker, world([make_chat(Models([speaker.endpoint()]))]) as w:
        speaker.respond_with(429, '{"error": {"message": "slow down"}}', Retry_After="20")
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "hi", "system": "be brief"})
        await w.drain()
        [error] = await w.ocean.read_events(run.run_id, types=["chat.error"])
        details = {"code": "rate_limited", "message": "the endpoint responded with 429: slow down", "after_ms": 20_000}
        assert error.payload == details
        speaker.streams(sse_chunk("Hello "), sse_chunk("there."), sse_chunk(None, "stop"), DONE)
        w.clock.advance(19_999)
        assert await w.drain() == []
        w.clock.advance(1)
        await w.drain()
        [turn] = await w.ocean.call_clog(run_id=run.run_id, method="turns")
        assert (turn["answer"], turn["model"], turn["error"]) == ("Hello there.", "m-1", None)
        bodies = [body["messages"] for body, _ in speaker.requests]
        assert bodies == [[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]] * 2
        keys = {headers["idempotency-key"] for _, headers in speaker.requests}
        assert len(keys) == 1


async def test_an_interrupted_answer_closes_the_connection() -> None:
    started, gone = anyio.Event(), anyio.Event()

    async def say() -> Response:
        async def body() -> AsyncIterator[str]:
            try:
                yield sse_chunk("Once upon ")
                started.set()
                await anyio.sleep_forever()
            finally:
                gone.set()

        return StreamingResponse(body(), media_type="text/event-stream")

    async with speaking() as speaker, world([make_chat(Models([speaker.endpoint()]))]) as w:
        speaker.say = say
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "a story"})
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.drain)
                await started.wait()
                async for event in w.ocean.follow(run.run_id):
                    if event.type == "chat.token":
                        break
                await w.ocean.signal(run.run_id, {"stop": True})
                await gone.wait()
        [turn] = await w.ocean.call_clog(run_id=run.run_id, method="turns")
        assert (turn["answer"], turn["is_interrupted"]) == ("Once upon ", True)


async def test_a_message_received_by_another_process_interrupts_too(tmp_path: Path) -> None:
    mind, url = Mind(), f"sqlite:///{tmp_path / 'ocean.db'}"
    async with world([mind.chat()], url=url) as w, Ocean.open(url, clock=w.clock) as other:
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "a long story"})
        talk = Talk(w, mind, run.run_id)
        async with talk.during_answer(at_word=2):
            await other.signal(run.run_id, {"text": "a short one"})
        first, second = await talk.turns()
        assert (first["answer"], first["is_interrupted"], second["text"]) == ("You ", True, "a short one")
