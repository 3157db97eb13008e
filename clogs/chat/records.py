"""PURE: what a conversation is made of, and which part of it a model is told."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clogs.models import Ask, Message, Usage

MOST_TURNS = 50
MOST_TEXT, MOST_ANSWER = 32_000, 100_000
"""Together less than a row may hold, whatever the characters."""
INTERRUPTED = "[interrupted by the user]"


class ChatSettings(BaseModel):
    """What a conversation is created with. `text` is its first message; the window bounds what the model is told."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, min_length=1, max_length=200)
    system: str = Field(default="", max_length=MOST_TEXT)
    text: str | None = Field(default=None, min_length=1, max_length=MOST_TEXT)
    window_turns: int = Field(default=30, ge=0, le=MOST_TURNS)
    window_chars: int = Field(default=40_000, ge=0, le=1_000_000)
    answer_chars: int = Field(default=MOST_ANSWER, ge=1, le=MOST_ANSWER)
    idle_ms: int | None = Field(default=30 * 86_400_000, ge=1_000)


class ChatMessage(BaseModel):
    """What somebody signals: a message, or `stop`, which only ends the answer that is being given."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(default="", max_length=MOST_TEXT)
    stop: bool = False

    @property
    def is_message(self) -> bool:
        return bool(self.text.strip())


class ChatAnswer(BaseModel):
    """An answer as far as it came."""

    text: str = ""
    is_interrupted: bool = False
    reason: str | None = None
    usage: Usage | None = None


class Turn(BaseModel):
    """A message and its answer: the tick's row, and the event `chat.turn`."""

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
    """The newest turns that fit, oldest first. One that does not fit ends it: a conversation has no holes."""
    left, start = most_chars, len(turns)
    while start > max(0, len(turns) - most_turns) and turns[start - 1].size <= left:
        start -= 1
        left -= turns[start].size
    return turns[start:]


def ask_of(settings: ChatSettings, turns: Sequence[Turn], text: str, key: str) -> Ask:
    told = [Message(role="system", content=settings.system)] if settings.system else []
    for turn in window(turns, settings.window_turns, settings.window_chars):
        told += turn.messages
    return Ask(messages=(*told, Message(role="user", content=text)), idempotency_key=key)
