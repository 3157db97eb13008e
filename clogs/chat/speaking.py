"""An answer said aloud: streamed as it comes, and broken off when the user speaks again."""

import anyio

from clogs.chat.turns import Spoken
from clogs.models import Ask, End, Model, Text
from ocean import Tick


async def speak(tick: Tick, model: Model, ask: Ask, most_chars: int) -> Spoken:
    """The answer as far as it came: to its end, to `most_chars`, or until another signal waits for this run."""
    if any(each.kind == "signal" for each in await tick.pending()):
        return Spoken(is_interrupted=True)
    spoken = Spoken()

    async def stop_when_spoken_to() -> None:
        await tick.next_signal()
        spoken.is_interrupted = spoken.reason is None
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_when_spoken_to)
            await _say(tick, model, ask, most_chars, spoken)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return spoken


async def _say(tick: Tick, model: Model, ask: Ask, most_chars: int, spoken: Spoken) -> None:
    async with model.answer(ask) as pieces:
        async for piece in pieces:
            match piece:
                case Text():
                    heard = piece.text[: most_chars - len(spoken.text)]
                    spoken.text += heard
                    await tick.stream("chat.token", {"text": heard})
                    if len(spoken.text) >= most_chars:
                        spoken.reason = "length"
                        return
                case End():
                    spoken.reason, spoken.usage = piece.reason, piece.usage


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A failure is told by its kind, which a group would hide."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
