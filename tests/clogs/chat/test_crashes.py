"""A process that dies anywhere in a conversation."""

from typing import Any

import pytest

from clogs.models import ModelReply
from ocean.testing import World, crash_everywhere
from tests.clogs.chat.kit import Mind


async def conversation(w: World) -> Any:
    made = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "hello"}, run_id="r")
    await w.drain()
    return await w.ocean.call_clog(run_id=made.run_id, method="turns")


async def readers_have_the_whole_answer(w: World) -> None:
    """Return the text as a reader sees it that keeps the tokens of the highest call."""
    [turn] = await w.ocean.read_events("r", types=["chat.turn"])
    tokens = await w.ocean.read_events("r", types=["chat.token"], limit=1_000)
    highest = max(token.call or 0 for token in tokens)
    assert highest == turn.call
    assert "".join(token.payload["text"] for token in tokens if token.call == highest) == turn.payload["answer"]


@pytest.mark.anyio
@pytest.mark.sqlite
async def test_a_conversation_is_the_same_after_a_crash_at_any_place() -> None:
    # An answer that is already stored is streamed in one piece: the events differ, their text does not.
    report = await crash_everywhere(
        [Mind(lambda ask: ModelReply("two words")).chat()],
        conversation,
        check=readers_have_the_whole_answer,
        ignore=["events of run *"],
    )
    assert {point.tick for point in report.killed} == {1}
