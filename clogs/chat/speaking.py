"""An answer said aloud: streamed as it comes, and broken off when the user speaks again."""

import math
from collections.abc import AsyncIterator

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from clogs.chat.turns import Spoken
from clogs.models import Ask, End, Model, ModelError, Text
from ocean import Tick


async def speak(tick: Tick, model: Model, ask: Ask, most_chars: int) -> Spoken:
    """Three tasks: one hears the model, one listens for the user, and this one tells readers what was heard."""
    if any(each.kind == "signal" for each in await tick.pending()):
        return Spoken(is_interrupted=True)
    hearing = _Hearing(model, ask, most_chars)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hearing.hear)
            tasks.start_soon(hearing.stop_when_spoken_to, tick)
            async for text in hearing.heard():
                await tick.stream("chat.token", {"text": text})
                hearing.spoken.text += text
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None
    if hearing.error is not None:
        raise hearing.error
    return hearing.spoken


class _Hearing:
    def __init__(self, model: Model, ask: Ask, most_chars: int) -> None:
        self._model, self._ask, self._most_chars = model, ask, most_chars
        self._scope = anyio.CancelScope()
        self._send: MemoryObjectSendStream[str]
        self._receive: MemoryObjectReceiveStream[str]
        self._send, self._receive = anyio.create_memory_object_stream[str](math.inf)
        self.spoken = Spoken()
        self.error: ModelError | None = None

    async def hear(self) -> None:
        left = self._most_chars
        with self._scope, self._send:
            try:
                async with self._model.answer(self._ask) as pieces:
                    async for piece in pieces:
                        match piece:
                            case Text():
                                self._send.send_nowait(piece.text[:left])
                                left -= len(piece.text)
                                if left <= 0:
                                    self.spoken.reason = "length"
                                    return
                            case End():
                                self.spoken.reason, self.spoken.usage = piece.reason, piece.usage
            except ModelError as error:
                self.error = error

    async def stop_when_spoken_to(self, tick: Tick) -> None:
        await tick.next_signal()
        if self.spoken.reason is None and self.error is None:
            self.spoken.is_interrupted = True
            self._scope.cancel()

    async def heard(self) -> AsyncIterator[str]:
        """All that has come while the last was told, at once: telling never holds up the model."""
        with self._receive:
            async for text in self._receive:
                texts = [text]
                while self._receive.statistics().current_buffer_used:
                    texts.append(self._receive.receive_nowait())
                yield "".join(texts)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The kernel tells failures by their kind, which a group would hide."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
