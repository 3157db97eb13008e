"""A model's answer with its tool calls, said aloud: an event for its words as they come. A signal may break it off."""

from typing import assert_never

import anyio
from pydantic import BaseModel

from clogs.models.messages import Ask, Message, Model, ModelEnd, ModelToolCall, Text, Usage
from ocean import Tick

INTERRUPTED = "[interrupted]"


class StreamedAnswer(BaseModel):
    """An answer as far as it came; what was broken off has no tool calls. Dumped, it is a step's result."""

    text: str = ""
    calls: tuple[ModelToolCall, ...] = ()
    reason: str = ""
    usage: Usage = Usage()
    is_interrupted: bool = False

    @property
    def message(self) -> Message:
        said = f"{self.text.rstrip()} {INTERRUPTED}".strip() if self.is_interrupted else self.text
        return Message(role="assistant", content=said, tool_calls=self.calls)


async def stream_answer(
    tick: Tick, model: Model, ask: Ask, *, event: str, most_chars: int = 100_000, is_interruptible: bool = False
) -> StreamedAnswer:
    """The answer to its end, to `most_chars`, or until a signal waits for this run. Words are streamed as `event`."""
    thought = StreamedAnswer()

    async def stop_at_a_signal() -> None:
        await tick.next_signal()
        if not thought.reason:
            thought.is_interrupted, thought.calls = True, ()
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            if is_interruptible:
                tasks.start_soon(stop_at_a_signal)
            await _say(tick, model, ask, event, most_chars, thought)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _innermost(group) from None
    return thought


async def _say(tick: Tick, model: Model, ask: Ask, event: str, most_chars: int, thought: StreamedAnswer) -> None:
    async with model.answer(ask) as pieces:
        async for piece in pieces:
            match piece:
                case Text():
                    heard = piece.text[: most_chars - len(thought.text)]
                    thought.text += heard
                    await tick.stream(event, {"text": heard})
                    if len(thought.text) >= most_chars:
                        thought.reason = "length"
                        return
                case ModelToolCall():
                    thought.calls += (piece,)
                case ModelEnd():
                    thought.reason, thought.usage = piece.reason or "stop", piece.usage or Usage()
                case _:
                    assert_never(piece)


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The kernel tells failures by their kind, which a group would hide."""
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, BaseExceptionGroup) else first
