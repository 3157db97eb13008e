"""A process that dies anywhere in a conversation."""

from typing import Any

import pytest

from clogs.models import ModelReply
from ocean import kept_events
from ocean.testing import World, crash_everywhere
from tests.clogs.chat.kit import Mind


async def conversation(w: World) -> Any:
    made = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "hello"}, run_id="r")
    await w.drain()
    return await w.ocean.call_clog(run_id=made.run_id, method="turns")


async def readers_have_the_whole_answer(w: World) -> None:
    """Check the text of a reader that keeps the tokens of stored steps."""
    events = kept_events(await w.ocean.read_events("r", limit=1_000))
    [turn] = [event for event in events if event.type == "chat.turn"]
    tokens = [event.payload["text"] for event in events if event.type == "chat.token"]
    assert "".join(tokens) == turn.payload["answer"]


@pytest.mark.anyio
@pytest.mark.sqlite
async def test_a_conversation_is_the_same_after_a_crash_at_any_place() -> None:
    report = await crash_everywhere(
        [Mind(lambda ask: ModelReply("two words")).chat()],
        conversation,
        check=readers_have_the_whole_answer,
    )
    assert {point.tick for point in report.killed} == {1}
