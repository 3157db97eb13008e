"""Convert requests to the body of `/chat/completions`, and its chunks to pieces of an answer. Pure."""

from dataclasses import dataclass
from typing import Any

from clogs.models.errors import ModelError
from clogs.models.messages import Ask, Message, ModelEnd, ModelToolCall, Piece, Text, Usage

MOST_CALLS = 128


def request_body(name: str, ask: Ask, asks_usage: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": name, "messages": [_as_sent(each) for each in ask.messages], "stream": True}
    if asks_usage:
        body["stream_options"] = {"include_usage": True}
    if ask.tools:
        body["tools"] = [{"type": "function", "function": offer.model_dump()} for offer in ask.tools]
    if ask.most_tokens is not None:
        body["max_tokens"] = ask.most_tokens
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    return body


def _as_sent(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    return sent


@dataclass
class _Call:
    index: Any
    id: str = ""
    name: str = ""
    arguments: str = ""


class Assembly:
    """Return texts as they arrive. Tool calls arrive in fragments and are returned complete, with the end."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._half = ""

    def take(self, chunk: Any) -> list[Piece]:
        """Return the pieces that this chunk completes."""
        if not isinstance(chunk, dict):
            raise _bad("a chunk that is not an object")
        if chunk.get("error"):
            raise _error_of(chunk["error"])
        self._usage = _usage(chunk.get("usage")) or self._usage
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise _bad("choices that are not a list of objects")
        if not choices:
            return []
        return self._take_choice(choices[0])

    def _take_choice(self, choice: dict[str, Any]) -> list[Piece]:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            raise _bad("a delta that is not an object")
        for fragment in delta.get("tool_calls") or []:
            self._take_call(fragment)
        if isinstance(reason := choice.get("finish_reason"), str):
            self._reason = reason
        texts = [text for part in ("content", "refusal") if isinstance(text := delta.get(part), str)]
        return self._take_text("".join(texts))

    def _take_text(self, text: str) -> list[Piece]:
        whole = self._half + text
        self._half = whole[-1] if ends_in_half(whole) else ""
        complete = clean(whole.removesuffix(self._half))
        return [Text(text=complete)] if complete else []

    def _take_call(self, fragment: Any) -> None:
        function = fragment.get("function") if isinstance(fragment, dict) else None
        if not isinstance(function, dict):
            raise _bad("a tool call that is not an object")
        call = self._call_of(fragment.get("index"), fragment.get("id") or "")
        call.id = call.id or str(fragment.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        call.arguments += str(function.get("arguments") or "")

    def _call_of(self, index: Any, id: str) -> _Call:
        """Find the call by its index; some endpoints send no index, or the same for all, but a distinct id for each."""
        for call in reversed(self._calls):
            if call.index == index and (not id or not call.id or call.id == id):
                return call
        if len(self._calls) >= MOST_CALLS:
            raise _bad(f"more than {MOST_CALLS} tool calls in one answer")
        self._calls.append(_Call(index))
        return self._calls[-1]

    def finish(self) -> list[Piece]:
        """Return the tool calls and the end. An answer without a `finish_reason` is incomplete and raises an error."""
        if self._reason is None:
            raise ModelError("broken_answer", "the endpoint's stream ended in the middle of an answer", is_passing=True)
        if any(not call.name for call in self._calls):
            raise _bad("a tool call without a name")
        calls = [
            ModelToolCall(
                id=clean(call.id) or f"call_{place}", name=clean(call.name), arguments=clean(call.arguments) or "{}"
            )
            for place, call in enumerate(self._calls, 1)
        ]
        return [*calls, ModelEnd(reason=clean(self._reason), usage=self._usage)]


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    counts = [value.get(name) for name in ("prompt_tokens", "completion_tokens")]
    given = [count if isinstance(count, int) and not isinstance(count, bool) else 0 for count in counts]
    return Usage(input_tokens=given[0], output_tokens=given[1])


def _bad(what: str) -> ModelError:
    return ModelError(
        "bad_answer", f"the endpoint sent {what}; check that it serves /chat/completions", is_passing=True
    )


def _error_of(error: Any) -> ModelError:
    text = error.get("message") if isinstance(error, dict) else error
    return ModelError("broken_answer", f"the endpoint reported an error during the answer: {text}", is_passing=True)


def clean(text: str) -> str:
    """Return the text as Ocean can store it: without NUL, surrogate pairs joined, lone surrogates replaced."""
    if text.isascii():
        return text.replace("\x00", "")
    return text.replace("\x00", "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def ends_in_half(text: str) -> bool:
    """Return whether the text ends in half a character: endpoints may send the other half with the next chunk."""
    return "\ud800" <= text[-1:] <= "\udbff"
