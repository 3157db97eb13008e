"""Research: one run creates a child for each question, collects their results, and writes a report from them.

The children share `width` concurrency keys, so at most `width` work at a time. A child that fails leaves its question
open; the report is written if at least `at_least` questions have a result. The children end with their parent.

Read `records` first (settings, the run's row, the prompts), then this file.

| event | when | payload |
|---|---|---|
| `research.planned` | the children are created | `questions`: each with its `run_id` |
| `research.answered` | a child has ended | `place`, `question`, `error` |
| `research.closing` | the run stops waiting for results | `reason`: `time`, `finish` |
| `research.token` | streamed: the report; in a child's log, its answer | `text` |
| `research.error` | streamed, the model failed and will be called again | `code`, `message`, `details`, `after_ms` |
| `research.refused` | a signal other than `{"finish": true}` | `code`, `message` |
"""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clogs.models import Ask, EnvironmentModels, Finder, ModelError
from clogs.models.streaming import StreamedAnswer, stream_answer
from clogs.research.records import (
    MOST_REPORT,
    ROW_BYTES,
    Question,
    ResearchSettings,
    ResearchState,
    answer_ask,
    lanes,
    plan_ask,
    planned,
    report_ask,
    take_end,
    task_of,
)
from ocean import Clog, Continue, Done, Failed, Key, Ok, Outcome, Tick

__all__ = ["ResearchSettings", "make_research", "research"]

OVER = "research.time"


class QuestionInput(BaseModel):
    """The input of a question's run, which is also a valid input of an agent."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(min_length=1)
    model: str | None = None


def make_research(models: Finder, clog_id: str = "research", *, worker: str | None = None) -> list[Clog]:
    """Make the clog of the research and the clog of its questions. With `worker`, that clog takes the questions.

    A worker's run is created with `{"task": …}` and optionally a `model`, and ends with `{"answer": …}`, like an agent.
    """
    clog = Clog(clog_id, run_state=ResearchState, inputs="all", tick_ms=600_000)
    question_clog = worker or f"{clog_id}-question"

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        state: ResearchState | None = (await tick.read(run=True)).run
        try:
            if state is None:
                return await _plan(tick, models, question_clog)
            await _take_inputs(tick, state)
            if not state.is_complete:
                await tick.write(run=state)
                return Ok()
            if tick.reason != "continue":
                # The results are committed before the model is called, which may fail.
                await tick.write(run=state)
                return Continue()
            return await _report(tick, models, state)
        except ValidationError as error:
            return Failed({"code": "bad_settings", "message": _first_error(error)})
        except ModelError as error:
            return await _model_failed(tick, error)

    return [clog] if worker else [clog, _question_clog(models, question_clog)]


def _question_clog(models: Finder, clog_id: str) -> Clog:
    clog = Clog(clog_id, tick_ms=600_000)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        try:
            task = QuestionInput.model_validate(tick.input)
            answer = await _call_model(tick, models, task.model, "answer", lambda key: answer_ask(task.task, key))
        except ValidationError as error:
            return Failed({"code": "bad_settings", "message": _first_error(error)})
        except ModelError as error:
            return await _model_failed(tick, error)
        return Done({"answer": answer.text, "usage": answer.usage.model_dump()})

    return clog


async def _plan(tick: Tick, models: Finder, worker: str) -> Outcome:
    settings = ResearchSettings.model_validate(tick.input)
    if settings.model is not None:
        models.find(settings.model)
    questions = settings.questions
    if questions is None:
        answer = await _call_model(tick, models, settings.model, "plan", lambda key: plan_ask(settings, key))
        questions = planned(answer.text, settings.most_questions)
    if not questions:
        return Failed(
            {
                "code": "no_questions",
                "message": "the model returned no questions; set `questions`, or state the topic more precisely",
            }
        )
    made = await _create_children(tick, settings, questions, worker)
    await tick.write(run=ResearchState(settings=settings, questions=made))
    await tick.emit(
        "research.planned", {"questions": [each.model_dump(include={"question", "run_id"}) for each in made]}
    )
    if settings.within_ms is not None:
        await tick.set_timer(OVER, after_ms=settings.within_ms)
    return Ok()


async def _create_children(tick: Tick, settings: ResearchSettings, questions: list[str], worker: str) -> list[Question]:
    """Create a child for each question. Those of one lane share a concurrency key; there are `width` lanes."""
    made: list[Question] = []
    shared = [Key(settings.shared_key)] if settings.shared_key else []
    for question, lane in zip(questions, lanes(len(questions), settings.width), strict=True):
        named = {"model": settings.model} if settings.model else {}
        run_id = await tick.create_run(
            clog_id=worker,
            input={"task": task_of(settings.topic, question)} | named,
            notify_parent=True,
            on_parent_end="cancel",
            concurrency_keys=[Key(f"{tick.clog_id}:{tick.run_id}:{lane}", hold="run"), *shared],
        )
        made.append(Question(question=question, run_id=run_id))
    return made


async def _take_inputs(tick: Tick, state: ResearchState) -> None:
    for each in tick.inputs:
        if each.kind == "child":
            await _join(tick, state, each.body)
        elif each.timer == OVER:
            await _close(tick, state, "time")
        elif each.kind == "signal" and each.body == {"finish": True}:
            await _close(tick, state, "finish")
        elif each.kind == "signal":
            await tick.emit("research.refused", {"code": "bad_message", "message": 'a signal must be {"finish": true}'})


async def _join(tick: Tick, state: ResearchState, end: dict[str, Any]) -> None:
    found = state.find(end["run_id"])
    if found is None or not found[1].is_open:
        return
    place, question = found
    take_end(question, end, ROW_BYTES // len(state.questions))
    payload = {"place": place, "question": question.question, "error": question.error}
    await tick.emit("research.answered", payload)


async def _close(tick: Tick, state: ResearchState, reason: str) -> None:
    if not state.is_complete:
        state.is_closing = True
        await tick.emit("research.closing", {"reason": reason})


async def _report(tick: Tick, models: Finder, state: ResearchState) -> Outcome:
    least, settings = min(state.settings.at_least, len(state.questions)), state.settings
    if len(state.with_result) < least:
        missing = [{"question": each.question, "error": each.error} for each in state.without_result]
        message = f"{len(state.with_result)} of {len(state.questions)} questions have a result, {least} are needed"
        return Failed({"code": "too_few_answers", "message": message, "details": missing})
    answer = await _call_model(tick, models, settings.model, "report", lambda key: report_ask(state, key))
    return Done(state.output(answer.text, answer.usage))


async def _call_model(
    tick: Tick, models: Finder, model: str | None, step: str, ask: Callable[[str], Ask]
) -> StreamedAnswer:
    """Call the model in a step, so that a repeated tick does not call it again, and return its answer."""

    async def think(key: str) -> Any:
        found = models.find(model or models.default)
        return (await stream_answer(tick, found, ask(key), event="research.token", most_chars=MOST_REPORT)).model_dump()

    return StreamedAnswer.model_validate(await tick.step(step, think))


async def _model_failed(tick: Tick, error: ModelError) -> Outcome:
    if error.is_passing:
        await tick.stream("research.error", error.info.as_json() | {"after_ms": error.after_ms})
    return error.outcome


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'input'}: {first['msg']}"


research = make_research(EnvironmentModels())
