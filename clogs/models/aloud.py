"""A model's answer with its tool calls, said aloud: an event for its words as they come. A signal may break it off."""

import anyio
from pydantic import BaseModel

from clogs.models.errors import ModelError
from clogs.models.messages import Ask, End, Message, Model, Text, ToolCall, Usage
from ocean import Tick

INTERRUPTED = "[interrupted]"


class Thought(BaseModel):
    """An answer as far as it came; what was broken off has no tool calls. Dumped, it is a step's result."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reason: str = ""
    usage: Usage = Usage()
    is_interrupted: bool = False

    @property
    def message(self) -> Message:
        said = f"{self.text.rstrip()} {INTERRUPTED}".strip() if self.is_interrupted else self.text
        return Message(role="assistant", content=said, tool_calls=self.calls)


async def think_aloud(
    tick: Tick, model: Model, ask: Ask, *, event: str, most_chars: int = 100_000, is_interruptible: bool = False
) -> Thought:
    """Streams `event` with the words as they come, several at once where telling is slower than the model."""
    hearing = _Hearing(model, ask, most_chars)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hearing.hear)
            if is_interruptible:
                tasks.start_soon(hearing.stop_at_a_signal, tick)
            while words := await hearing.next_words():
                await tick.stream(event, {"text": words})
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _innermost(group) from None
    if hearing.error is not None:
        raise hearing.error
    return hearing.thought


class _Hearing:
    def __init__(self, model: Model, ask: Ask, most_chars: int) -> None:
        self._model, self._ask, self._left = model, ask, most_chars
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._told = 0
        self._is_over = False
        self.thought = Thought()
        self.error: ModelError | None = None

    async def hear(self) -> None:
        try:
            with self._scope:
                async with self._model.answer(self._ask) as pieces:
                    async for piece in pieces:
                        if self._left <= 0:
                            self.thought.reason = "length"
                            break
                        self._take(piece)
        except ModelError as error:
            self.error = error
        finally:
            self._is_over = True
            self._news.set()

    def _take(self, piece: Text | ToolCall | End) -> None:
        match piece:
            case Text():
                self.thought.text += piece.text[: self._left]
                self._left -= len(piece.text)
                self._news.set()
            case ToolCall():
                self.thought.calls += (piece,)
            case End():
                self.thought.reason, self.thought.usage = piece.reason, piece.usage or Usage()

    async def stop_at_a_signal(self, tick: Tick) -> None:
        await tick.next_signal()
        if not self._is_over:
            self.thought.is_interrupted, self.thought.calls = True, ()
            self._scope.cancel()

    async def next_words(self) -> str:
        """What has come since the last words; nothing when it is over."""
        while self._told == len(self.thought.text) and not self._is_over:
            self._news = anyio.Event()
            await self._news.wait()
        words = self.thought.text[self._told :]
        self._told += len(words)
        return words


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The kernel tells failures by their kind, which a group would hide."""
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, BaseExceptionGroup) else first
