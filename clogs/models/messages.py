"""Requests to a model and the pieces of its answer, in terms that all providers share. They dump to plain JSON."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, assert_never

from pydantic import BaseModel, ConfigDict, Field

from clogs.models.errors import ModelError

Role = Literal["system", "user", "assistant", "tool"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelToolCall(_Frozen):
    """A model's request to call a tool. `arguments` is the model's text, which may be invalid JSON; see `parsed`."""

    id: str
    name: str
    arguments: str = "{}"

    def parsed(self) -> dict[str, Any]:
        """Return the arguments as an object. The `ModelError` for invalid ones can be sent to the model to correct."""
        try:
            value = json.loads(self.arguments or "{}")
        except ValueError as error:
            raise ModelError("bad_arguments", f"the arguments of {self.name!r} must be JSON: {error}") from error
        if not isinstance(value, dict):
            raise ModelError(
                "bad_arguments", f"the arguments of {self.name!r} must be a JSON object, got {self.arguments[:200]}"
            )
        return value


class Message(_Frozen):
    """One message. An assistant's may contain tool calls; a tool's is the result of the call `tool_call_id`."""

    role: Role
    content: str = ""
    tool_calls: tuple[ModelToolCall, ...] = ()
    tool_call_id: str | None = None


class Offer(_Frozen):
    """A tool that the model may call; `parameters` is a JSON Schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class Usage(_Frozen):
    input_tokens: int = 0
    output_tokens: int = 0


class Ask(_Frozen):
    """A request to a model. `idempotency_key` is sent to the endpoint, which may use it to detect a repeat."""

    messages: tuple[Message, ...]
    tools: tuple[Offer, ...] = ()
    most_tokens: int | None = None
    temperature: float | None = None
    idempotency_key: str | None = None


class Text(_Frozen):
    """The next part of the answer's text."""

    text: str


class ModelEnd(_Frozen):
    """The last piece. `reason` is `stop`, `length`, `tool_calls`, or a value of the provider's own."""

    reason: str
    usage: Usage | None = None


Piece = Text | ModelToolCall | ModelEnd


class ModelAnswer(_Frozen):
    """A complete answer."""

    text: str
    tool_calls: tuple[ModelToolCall, ...]
    reason: str
    usage: Usage | None = None

    @property
    def message(self) -> Message:
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls)


class Model(Protocol):
    """A language model. `answer` yields texts and tool calls, then one `ModelEnd`. A failure raises `ModelError`.

    Leaving the context drops the rest of the answer and releases its resources.
    """

    @property
    def name(self) -> str: ...

    def answer(self, ask: Ask) -> AbstractAsyncContextManager[AsyncIterator[Piece]]: ...


async def whole_answer(model: Model, ask: Ask) -> ModelAnswer:
    """Return the complete answer, for callers that do not stream. Its `model_dump()` can be a step's result."""
    texts: list[str] = []
    calls: list[ModelToolCall] = []
    async with model.answer(ask) as pieces:
        async for piece in pieces:
            match piece:
                case Text():
                    texts.append(piece.text)
                case ModelToolCall():
                    calls.append(piece)
                case ModelEnd():
                    return ModelAnswer(
                        text="".join(texts), tool_calls=tuple(calls), reason=piece.reason, usage=piece.usage
                    )
                case _:
                    assert_never(piece)
    raise ModelError("broken_answer", f"model {model.name!r} stopped without a ModelEnd", is_passing=True)
