"""A process that dies anywhere in a conversation."""

from typing import Any

import pytest

from ocean.testing import World, crash_everywhere
from tests.clogs.chat.kit import Mind


@pytest.mark.anyio
async def test_a_conversation_is_the_same_after_a_crash_at_any_place() -> None:
    async def conversation(w: World) -> Any:
        made = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "hello", "system": "be kind"})
        await w.drain()
        return await w.ocean.call_clog(run_id=made.run_id, method="turns")

    report = await crash_everywhere([Mind().chat()], conversation)
    assert {point.tick for point in report.killed} == {1}
