"""What goes to a model and what comes back, in words that every provider shares. Dumped, it is plain JSON."""

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
    """A model asks for a tool. `arguments` is the text it wrote, which need not be JSON: `parsed` finds out."""

    id: str
    name: str
    arguments: str = "{}"

    def parsed(self) -> dict[str, Any]:
        """The arguments as an object, or a `ModelError` that says what is wrong: an answer for the model to mend."""
        try:
            value = json.loads(self.arguments or "{}")
        except ValueError as error:
            raise ModelError("bad_arguments", f"the arguments of {self.name!r} are no JSON: {error}") from error
        if not isinstance(value, dict):
            raise ModelError("bad_arguments", f"the arguments of {self.name!r} are no object: {self.arguments[:200]}")
        return value


class Message(_Frozen):
    """One turn. An assistant's may ask for tools; a tool's answers the call that `tool_call_id` names."""

    role: Role
    content: str = ""
    tool_calls: tuple[ModelToolCall, ...] = ()
    tool_call_id: str | None = None


class Offer(_Frozen):
    """A tool that the model may ask for; `parameters` is a JSON Schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class Usage(_Frozen):
    input_tokens: int = 0
    output_tokens: int = 0


class Ask(_Frozen):
    """`idempotency_key` is handed on to endpoints that know how to answer a repeated request once."""

    messages: tuple[Message, ...]
    tools: tuple[Offer, ...] = ()
    most_tokens: int | None = None
    temperature: float | None = None
    idempotency_key: str | None = None


class Text(_Frozen):
    """Some more of the answer's text."""

    text: str


class ModelEnd(_Frozen):
    """The last piece: why the model stopped (`stop`, `length`, `tool_calls`, or the provider's own word)."""

    reason: str
    usage: Usage | None = None


Piece = Text | ModelToolCall | ModelEnd


class ModelAnswer(_Frozen):
    """All the pieces of one answer."""

    text: str
    tool_calls: tuple[ModelToolCall, ...]
    reason: str
    usage: Usage | None = None

    @property
    def message(self) -> Message:
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls)


class Model(Protocol):
    """A source of answers: an iterator of texts and tool calls, then one `ModelEnd`. A failure raises `ModelError`.

    Leaving the context drops the rest of the answer and frees what it held.
    """

    @property
    def name(self) -> str: ...

    def answer(self, ask: Ask) -> AbstractAsyncContextManager[AsyncIterator[Piece]]: ...


async def whole_answer(model: Model, ask: Ask) -> ModelAnswer:
    """The answer when it is complete, for callers that do not stream; `model_dump()` makes it a step's result."""
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
    raise ModelError("broken_answer", f"model {model.name!r} stopped without an end", is_passing=True)
