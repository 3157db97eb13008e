"""A model without a network. Its answer depends on the conversation only, so equal requests get the same one."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from clogs.models.errors import ModelError
from clogs.models.messages import Ask, Message, ModelEnd, ModelToolCall, Piece, Text, Usage

WORD = re.compile(r"\s*\S+\s*")


@dataclass(frozen=True)
class ModelReply:
    """An answer: text, then tool calls as (name, arguments). `error`, if given, is raised after the text."""

    say: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    error: ModelError | None = None


@dataclass(frozen=True)
class Rule:
    """The reply to a last message that contains `pattern`; `{0}`, `{1}` … in its text are the match and its groups."""

    pattern: str
    reply: ModelReply = field(default_factory=ModelReply)


Responder = Callable[[Ask], ModelReply]


def by_rules(*rules: Rule, otherwise: Responder | None = None) -> Responder:
    """Reply by the first rule that matches the last message; without a match by `otherwise`, or `small_talk`."""

    def replying(ask: Ask) -> ModelReply:
        last = _last(ask).content
        for rule in rules:
            if found := re.search(rule.pattern, last, re.IGNORECASE):
                return _filled(rule.reply, [found.group(0), *(group or "" for group in found.groups())])
        return (otherwise or small_talk)(ask)

    return replying


def by_script(*replies: ModelReply) -> Responder:
    """Give the n-th reply to a request with n - 1 assistant messages; the last reply is repeated."""
    if not replies:
        raise ValueError("replies must contain at least one reply")

    def replying(ask: Ask) -> ModelReply:
        given = sum(message.role == "assistant" for message in ask.messages)
        return replies[min(given, len(replies) - 1)]

    return replying


def small_talk(ask: Ask) -> ModelReply:
    """Greet, or repeat the last message and the number of earlier ones: enough to see a conversation work."""
    last = _last(ask)
    if last.role == "tool":
        return ModelReply(f"The tool returned: {last.content}")
    if re.match(r"\W*(hi|hello|hey)\b", last.content, re.IGNORECASE):
        return ModelReply("Hello! I am the offline model. I need no network, and I repeat what you write.")
    earlier = sum(message.role == "user" for message in ask.messages) - 1
    remembered = f" I remember {earlier} earlier message{'s' if earlier != 1 else ''} from you." if earlier > 0 else ""
    return ModelReply(f"You wrote: {last.content}{remembered}")


class OfflineModel:
    """Stream word by word. `pause` is awaited before each word, for demos and tests that control the pace."""

    def __init__(
        self,
        replying: Responder = small_talk,
        *,
        name: str = "offline",
        pause: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.name = name
        self._replying = replying
        self._pause = pause

    @asynccontextmanager
    async def answer(self, ask: Ask) -> AsyncIterator[AsyncIterator[Piece]]:
        async with aclosing(self._pieces(ask, self._replying(ask))) as pieces:
            yield pieces

    async def _pieces(self, ask: Ask, reply: ModelReply) -> AsyncGenerator[Piece, None]:
        for word in words(reply.say):
            if self._pause is not None:
                await self._pause()
            yield Text(text=word)
        if reply.error is not None:
            raise reply.error
        given = sum(message.role == "assistant" for message in ask.messages)
        for place, (name, arguments) in enumerate(reply.calls, 1):
            yield ModelToolCall(id=f"call_{given + 1}_{place}", name=name, arguments=json.dumps(dict(arguments)))
        heard = sum(len(words(message.content)) for message in ask.messages)
        usage = Usage(input_tokens=heard, output_tokens=len(words(reply.say)))
        yield ModelEnd(reason="tool_calls" if reply.calls else "stop", usage=usage)


def words(text: str) -> list[str]:
    """Split the text into words that keep their surrounding space; joined, they are the text again."""
    return WORD.findall(text) or ([text] if text else [])


def _last(ask: Ask) -> Message:
    return ask.messages[-1] if ask.messages else Message(role="user")


def _filled(reply: ModelReply, found: Sequence[str]) -> ModelReply:
    return ModelReply(
        _fill(reply.say, found), [(name, _fill(dict(given), found)) for name, given in reply.calls], reply.error
    )


def _fill(value: Any, found: Sequence[str]) -> Any:
    match value:
        case str():
            return re.sub(r"\{(\d)\}", lambda place: (found[int(place[1]) :] or [place[0]])[0], value)
        case dict():
            return {name: _fill(each, found) for name, each in value.items()}
        case list():
            return [_fill(each, found) for each in value]
        case _:
            return value
