"""A process that dies anywhere in the work of an agent."""

from typing import Any

import pytest

from clogs.models import ModelReply
from ocean.testing import World, crash_everywhere
from tests.clogs.agent.kit import KIM, Stage

TWO = ModelReply(calls=[("disk__look", {"path": "/b"}), ("disk__wipe", {"path": "/a"})])


@pytest.mark.anyio
@pytest.mark.sqlite
async def test_a_crash_at_any_place_changes_no_result() -> None:
    async def scenario(w: World) -> Any:
        run = await w.ocean.create_run(session_id="s", clog_id="agent", input={"task": "Tidy up."})
        await w.drain()
        payload = {"approval_id": "1.2"}
        await w.ocean.call_clog(run_id=run.run_id, method="approve", payload=payload, caller=KIM)
        await w.drain()
        return await w.ocean.result(run.run_id)

    report = await crash_everywhere(lambda: [Stage([TWO, ModelReply("Done.")]).agent()], scenario, most_points=40)
    assert {point.tick for point in report.killed} == {1, 2, 3, 4}
    assert any("tick.tools.attempt" in point.deed for point in report.killed)
