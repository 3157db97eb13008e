"""Stream a model's answer as events of a run. A signal to the run can interrupt it."""

from typing import assert_never

import anyio
from pydantic import BaseModel

from clogs.models.messages import Ask, Message, Model, ModelEnd, ModelToolCall, Text, Usage
from ocean import Tick

INTERRUPTED = "[interrupted]"


class StreamedAnswer(BaseModel):
    """The part of an answer that was received; an interrupted one has no tool calls. Its dump is a step's result."""

    text: str = ""
    calls: tuple[ModelToolCall, ...] = ()
    reason: str = ""
    usage: Usage = Usage()
    is_interrupted: bool = False

    @property
    def message(self) -> Message:
        content = f"{self.text.rstrip()} {INTERRUPTED}".strip() if self.is_interrupted else self.text
        return Message(role="assistant", content=content, tool_calls=self.calls)


async def stream_answer(
    tick: Tick, model: Model, ask: Ask, *, event: str, most_chars: int = 100_000, is_interruptible: bool = False
) -> StreamedAnswer:
    """Stream the answer's text as `event` and return the answer.

    The answer stops at its end, after `most_chars`, or, if `is_interruptible`, when a signal for this run arrives.
    """
    answer = StreamedAnswer()

    async def stop_on_signal() -> None:
        await tick.next_signal()
        if not answer.reason:
            answer.is_interrupted, answer.calls = True, ()
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            if is_interruptible:
                tasks.start_soon(stop_on_signal)
            await _stream(tick, model, ask, event, most_chars, answer)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _innermost(group) from None
    return answer


async def _stream(tick: Tick, model: Model, ask: Ask, event: str, most_chars: int, answer: StreamedAnswer) -> None:
    async with model.answer(ask) as pieces:
        async for piece in pieces:
            match piece:
                case Text():
                    text = piece.text[: most_chars - len(answer.text)]
                    answer.text += text
                    await tick.stream(event, {"text": text})
                    if len(answer.text) >= most_chars:
                        answer.reason = "length"
                        return
                case ModelToolCall():
                    answer.calls += (piece,)
                case ModelEnd():
                    answer.reason, answer.usage = piece.reason or "stop", piece.usage or Usage()
                case _:
                    assert_never(piece)


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside the group: the kernel chooses an outcome by the type of the exception."""
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, BaseExceptionGroup) else first
