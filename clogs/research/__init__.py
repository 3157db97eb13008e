"""Research: one run fans out to a child for each question, joins their answers, and writes a report from them.

Children share `width` concurrency keys, so at most so many work at a time. One that fails leaves its question open; the
report is written if at least `at_least` were answered. They end with their parent.

| event | when | payload |
|---|---|---|
| `research.planned` | the children are created | `questions`: each with its `run_id` |
| `research.answered` | a child has ended | `place`, `question`, `error` |
| `research.closing` | no more answers are waited for | `reason`: `time`, `finish` |
| `research.token` | streamed: the report, and in a child's own log its answer | `text` |
| `research.error` | streamed, the model failed and is asked again | `code`, `message`, `details`, `after_ms` |
| `research.refused` | a signal that is not `{"finish": true}` | `code`, `message` |
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
    """What a question's run is created with; an agent's takes the same."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(min_length=1)
    model: str | None = None


def make_research(models: Finder, clog_id: str = "research", *, worker: str | None = None) -> list[Clog]:
    """The clog of the research, and the one that answers a question. With `worker`, another clog does that.

    A worker is created with `{"task": …}` and perhaps a `model`, and ends with `{"answer": …}`, as an agent does.
    """
    clog = Clog(clog_id, run_state=ResearchState, inputs="all", tick_ms=600_000)
    asked = worker or f"{clog_id}-question"

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        inquiry: ResearchState | None = (await tick.read(run=True)).run
        try:
            if inquiry is None:
                return await _planned(tick, models, asked)
            await _taken_in(tick, inquiry)
            if not inquiry.is_complete:
                await tick.write(run=inquiry)
                return Ok()
            if tick.reason != "continue":
                # What has come is kept before the model is asked, which may fail.
                await tick.write(run=inquiry)
                return Continue()
            return await _reported(tick, models, inquiry)
        except ValidationError as error:
            return Failed({"code": "bad_settings", "message": _first(error)})
        except ModelError as error:
            return await _failed(tick, error)

    return [clog] if worker else [clog, _answering(models, asked)]


def _answering(models: Finder, clog_id: str) -> Clog:
    clog = Clog(clog_id, tick_ms=600_000)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        try:
            task = QuestionInput.model_validate(tick.input)
            thought = await _asked(tick, models, task.model, "answer", lambda key: answer_ask(task.task, key))
        except ValidationError as error:
            return Failed({"code": "bad_settings", "message": _first(error)})
        except ModelError as error:
            return await _failed(tick, error)
        return Done({"answer": thought.text, "usage": thought.usage.model_dump()})

    return clog


async def _planned(tick: Tick, models: Finder, worker: str) -> Outcome:
    settings = ResearchSettings.model_validate(tick.input)
    if settings.model is not None:
        models.find(settings.model)
    questions = settings.questions
    if questions is None:
        thought = await _asked(tick, models, settings.model, "plan", lambda key: plan_ask(settings, key))
        questions = planned(thought.text, settings.most_questions)
    if not questions:
        return Failed(
            {"code": "no_questions", "message": "the model named no questions; give them, or say the topic better"}
        )
    made = await _fanned_out(tick, settings, questions, worker)
    await tick.write(run=ResearchState(settings=settings, questions=made))
    await tick.emit(
        "research.planned", {"questions": [each.model_dump(include={"question", "run_id"}) for each in made]}
    )
    if settings.within_ms is not None:
        await tick.set_timer(OVER, after_ms=settings.within_ms)
    return Ok()


async def _fanned_out(tick: Tick, settings: ResearchSettings, questions: list[str], worker: str) -> list[Question]:
    """A child for each question. Those of one lane share a key for their life: the lanes are the width."""
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


async def _taken_in(tick: Tick, inquiry: ResearchState) -> None:
    for each in tick.inputs:
        if each.kind == "child":
            await _joined(tick, inquiry, each.body)
        elif each.timer == OVER:
            await _closed(tick, inquiry, "time")
        elif each.kind == "signal" and each.body == {"finish": True}:
            await _closed(tick, inquiry, "finish")
        elif each.kind == "signal":
            await tick.emit("research.refused", {"code": "bad_message", "message": 'a signal is {"finish": true}'})


async def _joined(tick: Tick, inquiry: ResearchState, end: dict[str, Any]) -> None:
    found = inquiry.find(end["run_id"])
    if found is None or not found[1].is_open:
        return
    place, question = found
    take_end(question, end, ROW_BYTES // len(inquiry.questions))
    told = {"place": place, "question": question.question, "error": question.error}
    await tick.emit("research.answered", told)


async def _closed(tick: Tick, inquiry: ResearchState, reason: str) -> None:
    if not inquiry.is_complete:
        inquiry.is_closing = True
        await tick.emit("research.closing", {"reason": reason})


async def _reported(tick: Tick, models: Finder, inquiry: ResearchState) -> Outcome:
    least, settings = min(inquiry.settings.at_least, len(inquiry.questions)), inquiry.settings
    if len(inquiry.answered) < least:
        missing = [{"question": each.question, "error": each.error} for each in inquiry.unanswered]
        message = f"{len(inquiry.answered)} of {len(inquiry.questions)} questions are answered, {least} are needed"
        return Failed({"code": "too_few_answers", "message": message, "details": missing})
    thought = await _asked(tick, models, settings.model, "report", lambda key: report_ask(inquiry, key))
    return Done(inquiry.output(thought.text, thought.usage))


async def _asked(tick: Tick, models: Finder, model: str | None, step: str, ask: Callable[[str], Ask]) -> StreamedAnswer:
    """The model's answer, as a step: once it is there, it is neither asked for nor paid for again."""
    is_aloud = False

    async def think(key: str) -> Any:
        nonlocal is_aloud
        is_aloud = True
        found = models.find(model or models.default)
        return (await stream_answer(tick, found, ask(key), event="research.token", most_chars=MOST_REPORT)).model_dump()

    thought = StreamedAnswer.model_validate(await tick.step(step, think))
    if thought.text and not is_aloud:
        # An earlier call has said it and stopped. Readers drop what that call streamed.
        await tick.stream("research.token", {"text": thought.text})
    return thought


async def _failed(tick: Tick, error: ModelError) -> Outcome:
    if error.is_passing:
        await tick.stream("research.error", error.info.as_json() | {"after_ms": error.after_ms})
    return error.outcome


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'input'}: {first['msg']}"


research = make_research(EnvironmentModels())
