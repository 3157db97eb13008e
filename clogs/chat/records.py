"""A conversation's settings and turns, and the part of them that is sent to the model. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clogs.models import Ask, Message, Usage

MOST_TURNS = 50
MOST_TEXT, MOST_ANSWER = 32_000, 100_000
"""Together they fit into a row, whatever the characters."""
INTERRUPTED = "[interrupted by the user]"


class ChatSettings(BaseModel):
    """The input of a conversation's run. `text` is the first message; the window limits what is sent to the model."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, min_length=1, max_length=200)
    system: str = Field(default="", max_length=MOST_TEXT)
    text: str | None = Field(default=None, min_length=1, max_length=MOST_TEXT)
    window_turns: int = Field(default=30, ge=0, le=MOST_TURNS)
    window_chars: int = Field(default=40_000, ge=0, le=1_000_000)
    answer_chars: int = Field(default=MOST_ANSWER, ge=1, le=MOST_ANSWER)
    idle_ms: int | None = Field(default=30 * 86_400_000, ge=1_000)


class ChatMessage(BaseModel):
    """A signal to a conversation: a message, or `stop`, which only ends the current answer."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(default="", max_length=MOST_TEXT)
    stop: bool = False

    @property
    def is_message(self) -> bool:
        return bool(self.text.strip())


class ChatAnswer(BaseModel):
    """The part of an answer that was received."""

    text: str = ""
    is_interrupted: bool = False
    reason: str | None = None
    usage: Usage | None = None


class Turn(BaseModel):
    """A message and its answer: the row of the tick, and the event `chat.turn`."""

    text: str
    answer: str = ""
    is_interrupted: bool = False
    reason: str | None = None
    usage: Usage | None = None
    error: dict[str, Any] | None = None
    model: str = ""
    signal_id: str | None = None

    @property
    def size(self) -> int:
        return len(self.text) + len(self.answer)

    @property
    def messages(self) -> Iterable[Message]:
        yield Message(role="user", content=self.text)
        answer = f"{self.answer.rstrip()} {INTERRUPTED}" if self.is_interrupted and self.answer else self.answer
        if answer:
            yield Message(role="assistant", content=answer)


def window(turns: Sequence[Turn], most_turns: int, most_chars: int) -> Sequence[Turn]:
    """Return the newest turns that fit, oldest first, without gaps: the first that does not fit is the limit."""
    left, start = most_chars, len(turns)
    while start > max(0, len(turns) - most_turns) and turns[start - 1].size <= left:
        start -= 1
        left -= turns[start].size
    return turns[start:]


def ask_of(settings: ChatSettings, turns: Sequence[Turn], text: str, key: str) -> Ask:
    sent = [Message(role="system", content=settings.system)] if settings.system else []
    for turn in window(turns, settings.window_turns, settings.window_chars):
        sent += turn.messages
    return Ask(messages=(*sent, Message(role="user", content=text)), idempotency_key=key)
