"""The loop of an agent: model calls and tool calls, messages and stop, and every limit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from clogs.agent import make_agent
from clogs.models import Ask, ModelEnd, ModelError, ModelReply, Models, ModelToolCall, Piece
from ocean import RetryPolicy
from ocean.testing import world
from tests.clogs.agent.kit import WIPE, Stage, job

pytestmark = pytest.mark.anyio

LOOK = ModelReply("Let me look.", calls=[("disk__look", {"path": "/tmp"})])
ANSWER = ModelReply("There are two files.")


async def test_an_agent_calls_tools_until_the_model_gives_an_answer() -> None:
    async with job(Stage([LOOK, ANSWER])) as j:
        output = await j.result()
        assert output == {
            "status": "answered",
            "answer": "There are two files.",
            "turns": 2,
            "usage": output["usage"],
        }
        assert output["usage"]["output_tokens"] == 7
        assert j.stage.sent_messages() == [
            ("user", "Tidy up."),
            ("assistant", "Let me look."),
            ("tool", '{"files": ["a", "b"]}'),
        ]
        assert [each.name for each in j.stage.asks[0].tools] == ["disk__look", "disk__wipe"]
        assert await j.payloads("agent.began") == [{"model": "offline", "tools": ["disk.look", "disk.wipe"]}]
        turns = await j.payloads("agent.turn")
        assert turns[0]["calls"] == [{"id": "call_1_1", "tool": "disk__look", "input": {"path": "/tmp"}}]
        (called,) = await j.payloads("tool.called")
        assert (called["tool"], called["outcome"]) == ("disk.look", "ok")
        tokens = [event.payload["text"] for event in await j.events("agent.token")]
        assert "".join(tokens) == "Let me look.There are two files."


async def test_calls_of_one_turn_are_made_in_order_and_failures_are_sent_to_the_model() -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("disk__look", {"path": "/a"}),
        ("disk__look", {"path": "/secret"}),
        ("disk__look", {"way": "/b"}),
        ("disk__burn", {}),
        ("ocean__events__emit", {"type": "mine"}),
        ("disk__look", {"path": "/long"}),
    ]
    async with job(Stage([ModelReply(calls=calls), ANSWER])) as j:
        details = j.stage.sent_messages()[2:]
        assert [role for role, _ in details] == ["tool"] * 6
        assert [content[:61] for _, content in details][:5] == [
            '{"files": ["a", "b"]}',
            '{"error": {"code": "forbidden", "message": "not yours"}}',
            '{"error": {"code": "invalid_value", "message": "disk.look: pa',
            '{"error": {"code": "unknown_tool", "message": "there is no to',
            '{"error": {"code": "unknown_tool", "message": "there is no to',
        ]
        assert details[5][1] == "x" * 8_000 + "… (42000 more characters)"
        assert j.stage.looked == ["/a", "/secret", "/long"]
        assert await j.events("mine") == [], "a model has what it is offered, not what the clog may use"
        assert (await j.result())["turns"] == 2


class Mumbling:
    """A model that writes invalid JSON until it gets the error."""

    name = "mumbling"

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    @asynccontextmanager
    async def answer(self, ask: Ask) -> AsyncIterator[AsyncIterator[Piece]]:
        self.asks.append(ask)
        yield self._pieces(len(self.asks))

    async def _pieces(self, number: int) -> AsyncIterator[Piece]:
        if number == 1:
            yield ModelToolCall(id="a", name="disk__look", arguments='{"path": ')
            yield ModelToolCall(id="b", name="disk__wipe", arguments='["/"]')
        yield ModelEnd(reason="stop")


async def test_invalid_arguments_are_reported_to_the_model_and_need_no_approval() -> None:
    model = Mumbling()
    async with world([make_agent(Models([model]), Stage().box())]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="agent", input={"task": "x"})
        await w.drain()
        assert (await w.ocean.result(run.run_id))["turns"] == 2
        first, second = model.asks[1].messages[-2:]
        assert "the arguments of 'disk__look' must be JSON" in first.content
        assert "the arguments of 'disk__wipe' must be a JSON object" in second.content
        assert await w.ocean.read_events(run.run_id, types=["approval.requested", "tool.called"]) == []


@pytest.mark.parametrize(
    ("task", "code", "message"),
    [
        ({}, "bad_settings", "task: Field required"),
        ({"task": ""}, "bad_settings", "task: String should have at least 1 character"),
        ({"task": "x", "turns": 3}, "bad_settings", "turns: Extra inputs are not permitted"),
        ({"task": "x", "tools": ["disk.burn"]}, "unknown_tool", "there is no tool 'disk.burn'; available: disk.look"),
        ({"task": "x", "model": "gpt"}, "unknown_model", "there is no model 'gpt'"),
        ("", "bad_settings", "task: String should have"),
    ],
)
async def test_an_invalid_task_fails_the_run_at_once(task: Any, code: str, message: str) -> None:
    async with job(Stage([ANSWER]), task) as j:
        error = (await j.look()).error
        assert error is not None
        assert (error["code"], j.stage.asks) == (code, [])
        assert message in error["message"]


async def test_tools_can_be_narrowed() -> None:
    async with job(Stage([WIPE, ANSWER]), {"task": "x", "tools": ["disk.look"]}) as j:
        assert [each.name for each in j.stage.asks[0].tools] == ["disk__look"]
        assert "there is no tool 'disk__wipe'; available: disk.look" in j.stage.sent_messages()[-1][1]
        assert await j.events("approval.requested") == []


async def test_a_denied_tool_is_not_offered_and_its_refusal_is_reported_and_audited() -> None:
    async with job(Stage([LOOK, ANSWER]), deny_tools=["disk.look"]) as j:
        assert [each.name for each in j.stage.asks[0].tools] == ["disk__wipe"]
        assert '"code": "tool_denied"' in j.stage.sent_messages()[-1][1]
        assert [each["outcome"] for each in await j.payloads("tool.called")] == ["refused"]


async def test_turns_are_bounded() -> None:
    async with job(Stage([LOOK]), {"task": "x", "most_turns": 3}) as j:
        error = (await j.look()).error
        assert error is not None
        assert (error["code"], len(j.stage.asks)) == ("out_of_turns", 3)


async def test_tokens_are_bounded() -> None:
    async with job(Stage([LOOK]), {"task": "x", "most_tokens": 40}) as j:
        error = (await j.look()).error
        assert error is not None
        assert error["code"] == "out_of_tokens"
        assert len(j.stage.asks) < 20


async def test_a_budget_is_shared_and_waited_for() -> None:
    budget = {"key": "agent:ada", "limit": 2, "per_ms": 60_000}
    async with job(Stage([LOOK, LOOK, ANSWER]), {"task": "x", "budget": budget}) as j:
        assert len(j.stage.asks) == 2
        assert (await j.look()).status == "waiting"
        (waiting,) = await j.payloads("agent.waiting")
        assert waiting == {"budget": "agent:ada", "retry_after_ms": 30_000}
        await j.w.wait(30_000)
        assert (await j.result())["turns"] == 3


async def test_a_budget_that_never_comes_back_fails_the_run() -> None:
    async with job(Stage([LOOK]), {"task": "x", "budget": {"key": "agent:ada", "limit": 2}}) as j:
        error = (await j.look()).error
        assert error is not None
        assert (error["code"], len(j.stage.asks)) == ("budget_spent", 2)


async def test_a_model_that_fails_is_called_again_and_finally_fails_the_run() -> None:
    broken = ModelError("rate_limited", "slow down", is_passing=True, after_ms=5_000)
    stage = Stage(replying=lambda ask: ModelReply("Hm", error=broken) if len(stage.asks) < 3 else ANSWER)
    async with job(stage) as j:
        await j.w.wait(20_000)
        assert (await j.result())["answer"] == "There are two files."
        errors = await j.payloads("agent.error")
        assert [each["code"] for each in errors] == ["rate_limited"] * 2
        assert [event.call for event in await j.events("agent.token")][-1] == 3
    wrong = ModelError("not_authorized", "no such key")
    async with job(Stage(replying=lambda ask: ModelReply(error=wrong)), retry=RetryPolicy(max_attempts=5)) as j:
        error = (await j.look()).error
        assert error is not None
        assert (error["code"], len(j.stage.asks)) == ("not_authorized", 1)


async def test_a_message_during_an_answer_interrupts_it_and_is_sent_to_the_model() -> None:
    stage = Stage([ModelReply("one two three four"), ANSWER], holds_at=3)
    async with job(stage, drains=False) as j:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(j.w.drain)
                await stage.is_holding.wait()
                await j.say({"text": "Only text files."})
        assert (await j.result())["answer"] == "There are two files."
        assert stage.sent_messages() == [
            ("user", "Tidy up."),
            ("assistant", "one two [interrupted]"),
            ("user", "Only text files."),
        ]
        assert [turn["is_interrupted"] for turn in await j.payloads("agent.turn")] == [True, False]


async def test_messages_that_wait_together_are_taken_before_the_model_is_called() -> None:
    async with job(Stage([ANSWER]), drains=False) as j:
        for text in ("first", "second"):
            await j.say({"text": text})
        await j.w.drain()
        assert j.stage.sent_messages() == [("user", "Tidy up."), ("user", "first"), ("user", "second")]


async def test_stop_ends_the_run_with_its_current_result() -> None:
    async with job(Stage([WIPE])) as j:
        await j.say({"stop": True})
        await j.w.drain()
        assert (await j.result())["status"] == "stopped"
        (decided,) = await j.payloads("approval.decided")
        assert (decided["decision"], j.stage.wiped) == ("stopped", [])


async def test_a_signal_that_is_not_a_message_is_refused_and_changes_nothing() -> None:
    async with job(Stage([WIPE])) as j:
        await j.say({"txt": "hello"})
        await j.w.drain()
        assert await j.payloads("agent.refused") == [
            {"code": "bad_message", "message": "txt: Extra inputs are not permitted"}
        ]
        assert (await j.look()).status == "waiting"


async def test_many_long_results_of_one_turn_fit_in_its_row() -> None:
    calls = [("disk__look", {"path": "/long"})] * 32
    task = {"task": "x", "result_chars": 100_000}
    async with job(Stage([ModelReply(calls=calls), ANSWER]), task) as j:
        assert (await j.result())["turns"] == 2
        assert {len(content) for role, content in j.stage.sent_messages() if role == "tool"} == {
            6_250 + len("… (43750 more characters)")
        }


async def test_messages_during_tool_calls_are_bounded() -> None:
    async with job(Stage([WIPE])) as j:
        for number in range(10):
            await j.say({"text": f"word {number}"})
        await j.w.drain()
        assert [each["code"] for each in await j.payloads("agent.refused")] == ["too_many_words"] * 2
