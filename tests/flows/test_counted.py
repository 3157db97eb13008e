"""A failed attempt of a step is counted as `retry` in metrics and log, although its tick is committed and waits."""

import logging
from typing import Any

import pytest

from ocean import Abort, Flow, RetryPolicy, RunStatus
from tests.flows.kit import Effects, look, stage, start

pytestmark = pytest.mark.anyio


def _ticks(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the lines of ticks; the lines of failed steps have no outcome."""
    fields = [record.__dict__["ocean_fields"] for record in caplog.records]
    return [each for each in fields if "outcome" in each]


async def test_a_failed_attempt_of_a_step_is_counted_and_logged_as_retry(caplog: pytest.LogCaptureFixture) -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("charge", charge)
        await flow.sleep(1_000)

    charge = effects.failing(2)
    caplog.set_level(logging.INFO, "ocean.tick")
    async with stage(order) as w:
        run_id = await start(w)
        result = await w.ocean.advance()
        assert [(each.outcome, each.status) for each in result.outcomes] == [("wait", RunStatus.WAITING)]
        assert (await look(w, run_id)).attempt == 0
        await w.wait(60_000)
        counted = {outcome: n for (_, outcome), n in w.ocean.observed.ticks.items()}
        assert counted == {"retry": 2, "wait": 1, "done": 1}
    lines = _ticks(caplog)
    named = [(line["outcome"], line.get("step"), line.get("code")) for line in lines]
    assert named == [("retry", "charge", "exception")] * 2 + [("wait", None, None), ("done", None, None)]


async def test_the_last_attempt_of_a_step_and_failed_undos_count_too() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=lambda key, result: undo(key))
        await flow.step("b", effects.failing(9), retry=RetryPolicy(max_attempts=1))

    undo = effects.failing(1)
    async with stage(order) as w:
        await start(w)
        await w.wait(60_000)
        counted = {outcome: n for (_, outcome), n in w.ocean.observed.ticks.items()}
        assert (counted["retry"], counted["failed"]) == (2, 1)


async def test_a_tick_that_fails_itself_is_counted_by_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    async def order(flow: Flow, input: Any) -> Any:
        raise Abort("no", code="sold_out")

    caplog.set_level(logging.INFO, "ocean.tick")
    async with stage(order) as w:
        await start(w)
        await w.drain()
        assert {outcome for _, outcome in w.ocean.observed.ticks} == {"failed"}
    (line,) = _ticks(caplog)
    assert (line["outcome"], line["code"], "step" in line) == ("failed", "sold_out", False)
