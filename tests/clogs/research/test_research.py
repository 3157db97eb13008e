"""Fan-out, join and report: limited width, partial failures, and no model call is repeated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from clogs.agent import make_agent
from clogs.models import Ask, ModelError, ModelReply, Models, OfflineModel
from clogs.research import make_research
from clogs.research.records import cut, lanes, planned
from ocean import Clog, Event, RunInfo
from ocean.testing import World, crash_everywhere, world
from tests.invariants import check
from tests.lifecycle.acting import let_others_go_on

pytestmark = pytest.mark.anyio

SIX = [f"What is {name}?" for name in ("one", "two", "three", "four", "five", "six")]
HOUR_MS = 3_600_000


def opened() -> anyio.Event:
    gate = anyio.Event()
    gate.set()
    return gate


@dataclass
class Mind:
    """Plan three questions, answer each, and report; `fails` are words of questions that it cannot answer.

    It waits at the gate before each word.
    """

    fails: tuple[str, ...] = ()
    passing: bool = False
    asks: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    gate: anyio.Event = field(default_factory=opened)

    def reply(self, ask: Ask) -> ModelReply:
        system, last = ask.messages[0].content, ask.messages[-1].content
        self.asks.append(last)
        if "plan research" in system:
            return ModelReply("1. What is it?\n- Who needs it?\n\n3) What is it?\nWhat does it cost?")
        if "report" in system:
            return ModelReply(f"A report of {last.count('Answer: ')} answers.")
        if any(word in last for word in self.fails):
            return ModelReply(error=ModelError("refused", "I will not say", is_passing=self.passing))
        return ModelReply(f"Answer to {last.splitlines()[-1]}")

    async def pause(self) -> None:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await self.gate.wait()
        self.at_once -= 1

    def clogs(self) -> list[Clog]:
        return make_research(Models([OfflineModel(self.reply, pause=self.pause)]))


@dataclass
class Study:
    w: World
    mind: Mind
    run_id: str

    async def look(self, run_id: str | None = None) -> RunInfo:
        run = await self.w.ocean.get_run(run_id or self.run_id)
        assert run is not None
        return run

    async def children(self) -> list[RunInfo]:
        return list((await self.w.ocean.list_runs(parent_run_id=self.run_id, order="oldest")).runs)

    async def events(self, *types: str) -> list[Event]:
        return await self.w.ocean.read_events(self.run_id, types=types, limit=1_000)


@asynccontextmanager
async def study(mind: Mind, input: Any = None, *, drains: bool = True, **options: Any) -> AsyncIterator[Study]:
    async with world(options.pop("clogs", None) or mind.clogs()) as w:
        body = {"topic": "tea"} | (input or {}) if not isinstance(input, str) else input
        run = await w.ocean.create_run(session_id="s", clog_id="research", input=body, **options)
        if drains:
            await w.drain()
        yield Study(w, mind, run.run_id)
        await check(w)


async def test_it_plans_creates_a_child_for_each_question_and_reports() -> None:
    async with study(Mind()) as s:
        output = (await s.look()).output
        assert output["report"] == "A report of 3 answers."
        assert [each["question"] for each in output["answers"]] == [
            "What is it?",
            "Who needs it?",
            "What does it cost?",
        ]
        assert output["answers"][1]["answer"] == "Answer to Question: Who needs it?"
        assert output["unanswered"] == []
        (details,) = await s.events("research.planned")
        made = sorted(each["run_id"] for each in details.payload["questions"])
        assert made == sorted(run.run_id for run in await s.children())
        assert sorted(event.payload["place"] for event in await s.events("research.answered")) == [0, 1, 2]
        assert {event.correlation_id for event in await s.w.ocean.read_events()} == {details.correlation_id}
        assert len(s.mind.asks) == 5


async def test_given_questions_are_not_planned() -> None:
    async with study(Mind(), {"questions": SIX[:2]}) as s:
        assert len((await s.look()).output["answers"]) == 2
        sent = sorted(ask for ask in s.mind.asks if "Answer: " not in ask)
        assert sent == [f"Topic: tea\n\nQuestion: {question}" for question in SIX[:2]]


@pytest.mark.parametrize("width", [1, 2])
async def test_at_most_width_questions_are_worked_on_at_a_time(width: int) -> None:
    mind = Mind(gate=anyio.Event())
    async with study(mind, {"questions": SIX, "width": width}, drains=False) as s:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(s.w.drain)
                while mind.at_once < width:
                    await anyio.lowlevel.checkpoint()
                await let_others_go_on(s.w)
                assert mind.at_once == width
                mind.gate.set()
        assert mind.most_at_once == width
        assert len((await s.look()).output["answers"]) == 6


async def test_a_key_can_be_shared_with_other_work() -> None:
    async with study(Mind(), {"questions": SIX[:2], "shared_key": "models"}, drains=False) as s:
        await s.w.ocean.set_limit("models", 0)
        await s.w.drain()
        holds = [hold.code for run in await s.children() for hold in (await s.w.ocean.explain(run.run_id)).holds]
        assert (holds, s.mind.asks) == (["key_full"] * 2, [])
        await s.w.ocean.set_limit("models", 1)
        await s.w.drain()
        assert (await s.look()).status == "done"


async def test_questions_that_fail_are_named_and_the_report_is_written() -> None:
    async with study(Mind(fails=("two", "five")), {"questions": SIX}) as s:
        output = (await s.look()).output
        assert output["report"] == "A report of 4 answers."
        assert output["unanswered"] == [
            {"question": question, "error": {"code": "refused", "message": "I will not say"}}
            for question in (SIX[1], SIX[4])
        ]
        assert "Question: What is two?\nNo result." in s.mind.asks[-1]


async def test_too_few_results_fail_the_run_and_name_the_missing() -> None:
    async with study(Mind(fails=("two", "three")), {"questions": SIX[:3], "at_least": 2}) as s:
        error = (await s.look()).error
        assert error is not None
        assert (error["code"], error["message"]) == (
            "too_few_answers",
            "1 of 3 questions have a result, 2 are needed",
        )
        assert [each["question"] for each in error["details"]] == SIX[1:3]


async def test_a_passing_failure_is_tried_again_in_its_child_only() -> None:
    mind = Mind(fails=("two",), passing=True)
    async with study(mind, {"questions": SIX[:3]}) as s:
        assert (await s.look()).status == "idle"
        mind.fails = ()
        await s.w.wait(10_000)
        assert len((await s.look()).output["answers"]) == 3
        assert len([ask for ask in mind.asks if ask.endswith(SIX[0])]) == 1


async def test_the_report_is_written_from_the_results_in_time() -> None:
    mind = Mind(fails=("two",), passing=True)
    async with study(mind, {"questions": SIX[:3], "within_ms": 2_000}) as s:
        await s.w.wait(2_000)
        output = (await s.look()).output
        assert output["report"] == "A report of 2 answers."
        assert output["unanswered"] == [{"question": SIX[1], "error": None}]
        assert [event.payload for event in await s.events("research.closing")] == [{"reason": "time"}]
        assert sorted(run.status for run in await s.children()) == ["done", "done", "failed"], "it ends with its parent"


async def test_finish_stops_waiting_and_writes_the_report() -> None:
    mind = Mind(fails=("two",), passing=True)
    async with study(mind, {"questions": SIX[:2]}) as s:
        await s.w.ocean.signal(s.run_id, {"enough": True})
        await s.w.ocean.signal(s.run_id, {"finish": True})
        await s.w.drain()
        assert (await s.look()).output["report"] == "A report of 1 answers."
        assert len(await s.events("research.refused")) == 1


async def test_a_cancelled_piece_of_research_cancels_its_children() -> None:
    async with study(Mind(), {"questions": SIX}, drains=False) as s:
        await s.w.ocean.advance(run_id=s.run_id)
        await s.w.ocean.cancel_run(s.run_id)
        await s.w.drain()
        assert [(run.status, (run.error or {})["code"]) for run in await s.children()] == [("failed", "cancelled")] * 6
        assert s.mind.asks == []


@pytest.mark.parametrize(
    ("input", "code", "message"),
    [
        ("tea", "bad_settings", "input: Input should be"),
        ({"topic": ""}, "bad_settings", "topic: String should have at least 1 character"),
        ({"questions": []}, "bad_settings", "questions: List should have at least 1 item"),
        ({"questions": ["a", " "]}, "bad_settings", "questions: Value error, question 2 must have"),
        ({"questions": ["a"] * 51}, "bad_settings", "questions: List should have at most 50 items"),
        ({"width": 0}, "bad_settings", "width: Input should be greater than or equal to 1"),
        ({"depth": 1}, "bad_settings", "depth: Extra inputs are not permitted"),
        ({"model": "gpt"}, "unknown_model", "there is no model 'gpt'"),
    ],
)
async def test_an_invalid_input_fails_the_run_at_once(input: Any, code: str, message: str) -> None:
    async with study(Mind(), input) as s:
        error = (await s.look()).error
        assert error is not None
        assert error["code"] == code
        assert message in error["message"]
        assert await s.children() == []


async def test_a_plan_without_questions_fails() -> None:
    model = OfflineModel(lambda ask: ModelReply("\n - \n"))
    async with study(Mind(), clogs=make_research(Models([model]))) as s:
        error = (await s.look()).error
        assert error is not None
        assert error["code"] == "no_questions"


async def test_agents_can_answer_the_questions() -> None:
    mind = Mind()
    models = Models([OfflineModel(mind.reply)])
    clogs = [*make_research(models, worker="agent"), make_agent(models)]
    async with study(mind, {"questions": SIX[:2]}, clogs=clogs) as s:
        assert [run.clog_id for run in await s.children()] == ["agent", "agent"]
        assert len((await s.look()).output["answers"]) == 2


async def test_long_answers_are_cut_to_fit_and_whole_in_their_children() -> None:
    def reply(ask: Ask) -> ModelReply:
        return ModelReply("Short.") if "report" in ask.messages[0].content else ModelReply("ä" * 90_000)

    async with study(Mind(), {"questions": SIX}, clogs=make_research(Models([OfflineModel(reply)]))) as s:
        output = (await s.look()).output
        assert len(output["answers"]) == 6
        assert {len(each["answer"].encode()) <= 500_000 // 6 + 3 for each in output["answers"]} == {True}
        assert {len(run.output["answer"]) for run in await s.children()} == {90_000}


@pytest.mark.sqlite
async def test_the_same_after_a_crash_at_any_place() -> None:
    async def scenario(w: World) -> Any:
        body = {"topic": "tea", "questions": SIX[:2], "width": 1}
        run = await w.ocean.create_run(session_id="s", clog_id="research", input=body)
        await w.drain()
        return await w.ocean.result(run.run_id)

    def clogs() -> list[Clog]:
        return make_research(Models([OfflineModel(Mind(fails=("two",)).reply)]))

    # How many ends of children come to one tick depends on which is claimed first, which is not promised.
    report = await crash_everywhere(clogs, scenario, most_points=30, ignore=["*: ticks"])
    assert {point.clog_id for point in report.killed} == {"research", "research-question"}


def test_lines_become_questions() -> None:
    text = "1. One?\n2) Two?\n(3) Three?\n- Four?\n* Five?\n  • Six?\n\nOne?\n10: Ten?\n2024 was what?"
    assert planned(text, 9) == ["One?", "Two?", "Three?", "Four?", "Five?", "Six?", "Ten?", "2024 was what?"]
    assert planned(text, 2) == ["One?", "Two?"]
    assert planned("", 2) == []


def test_lanes_are_even_and_texts_are_cut_between_characters() -> None:
    assert list(lanes(5, 2)) == [0, 1, 0, 1, 0]
    assert cut("ääää", 5) == "ää…"
    assert cut("ääää", 8) == "ääää"
