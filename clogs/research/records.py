"""The settings of research, the row of its run, and the prompts. Pure."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from clogs.models import Ask, Message, Usage

MOST_QUESTIONS = 50
MOST_TEXT = 8_000
MOST_WIDTH = 32
ROW_BYTES = 500_000
"""The limit for all results together: the row also has the questions, and the output the report."""
MOST_REPORT = 100_000
BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,3}[.):])\s*")

PLAN = "You plan research. Write the questions that together cover the topic: at most {most}, one per line."
ANSWER = "You answer one question of a larger piece of research. State briefly what is known, or that you do not know."
REPORT = "You write the report of a piece of research from the results below. Use nothing else. Name what is missing."


class ResearchSettings(BaseModel):
    """The input of a research run. Without `questions`, the model plans them."""

    model_config = ConfigDict(extra="forbid")

    topic: str = Field(min_length=1, max_length=MOST_TEXT)
    questions: list[str] | None = Field(default=None, min_length=1, max_length=MOST_QUESTIONS)
    most_questions: int = Field(default=5, ge=1, le=MOST_QUESTIONS)
    model: str | None = Field(default=None, min_length=1, max_length=200)
    width: int = Field(default=4, ge=1, le=MOST_WIDTH)
    shared_key: str | None = Field(default=None, min_length=1, max_length=200)
    at_least: int = Field(default=1, ge=0, le=MOST_QUESTIONS)
    within_ms: int | None = Field(default=None, ge=1_000)

    @field_validator("questions")
    @classmethod
    def _checked(cls, questions: list[str] | None) -> list[str] | None:
        for place, question in enumerate(questions or ()):
            if not question.strip() or len(question) > MOST_TEXT:
                raise ValueError(f"question {place + 1} must have 1 to {MOST_TEXT} characters, not only spaces")
        return questions


class Question(BaseModel):
    question: str
    run_id: str
    answer: str | None = None
    error: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.error is None


class ResearchState(BaseModel):
    """The run's row. `is_closing`: the run no longer waits for results."""

    settings: ResearchSettings
    questions: list[Question]
    is_closing: bool = False

    @property
    def with_result(self) -> list[Question]:
        return [each for each in self.questions if each.answer is not None]

    @property
    def without_result(self) -> list[Question]:
        return [each for each in self.questions if each.answer is None]

    @property
    def is_complete(self) -> bool:
        return self.is_closing or not any(each.is_open for each in self.questions)

    def find(self, run_id: str) -> tuple[int, Question] | None:
        return next(((place, each) for place, each in enumerate(self.questions) if each.run_id == run_id), None)

    def output(self, report: str, usage: Usage) -> dict[str, Any]:
        return {
            "report": report,
            "answers": [{"question": each.question, "answer": each.answer} for each in self.with_result],
            "unanswered": [{"question": each.question, "error": each.error} for each in self.without_result],
            "usage": usage.model_dump(),
        }


def take_end(question: Question, end: dict[str, Any], most_bytes: int) -> None:
    """Store how the run of a question ended: its answer, cut to `most_bytes`, or its error."""
    output = end["output"]
    answer = output.get("answer") if isinstance(output, dict) else None
    if end["error"] is not None:
        question.error = {"code": end["error"]["code"], "message": end["error"]["message"][:500]}
    elif not isinstance(answer, str) or not answer.strip():
        question.error = {"code": "empty_answer", "message": "the run ended without an answer"}
    else:
        question.answer = cut(answer, most_bytes)


def cut(text: str, most_bytes: int) -> str:
    raw = text.encode()
    return text if len(raw) <= most_bytes else f"{raw[:most_bytes].decode('utf-8', 'ignore')}…"


def task_of(topic: str, question: str) -> str:
    return f"Topic: {topic}\n\nQuestion: {question}"


def plan_ask(settings: ResearchSettings, key: str) -> Ask:
    return _ask(PLAN.format(most=settings.most_questions), f"Topic: {settings.topic}", key)


def answer_ask(task: str, key: str) -> Ask:
    return _ask(ANSWER, task, key)


def report_ask(state: ResearchState, key: str) -> Ask:
    parts = [f"Topic: {state.settings.topic}"]
    parts += [f"Question: {each.question}\nAnswer: {each.answer}" for each in state.with_result]
    parts += [f"Question: {each.question}\nNo result." for each in state.without_result]
    return _ask(REPORT, "\n\n".join(parts), key)


def _ask(system: str, text: str, key: str) -> Ask:
    messages = (Message(role="system", content=system), Message(role="user", content=text))
    return Ask(messages=messages, idempotency_key=key)


def planned(text: str, most: int) -> list[str]:
    """Return the questions in a model's text: one per line, without bullets, numbers and repeats."""
    lines = (BULLET.sub("", line).strip()[:MOST_TEXT] for line in text.splitlines())
    return list(dict.fromkeys(line for line in lines if line))[:most]


def lanes(count: int, width: int) -> Sequence[int]:
    """Return the lane of each question; the questions of a lane are worked on one after the other."""
    return [place % width for place in range(count)]
