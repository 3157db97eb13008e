"""A chat: one run is one conversation, a signal is a message, and a tick streams the answer to one message.

The history is in the rows of the ticks. A message that arrives during an answer interrupts it: the part that was
streamed is kept, and is in the history when the model is called for the new message.

Read `records` first (settings, turns, the part of the history that is sent to the model), then this file.

| event | when | payload |
|---|---|---|
| `chat.opened` | the conversation begins | `model` |
| `chat.heard` | streamed, when a call of a tick begins | `text`, `signal_id` |
| `chat.token` | streamed, for each part of the answer | `text` |
| `chat.error` | streamed, the model failed and will be called again | `code`, `message`, `after_ms` |
| `chat.turn` | with the commit | the `Turn`: it replaces all events streamed in its tick |
| `chat.refused` | a signal is not a valid message | `code`, `message`, `signal_id` |

A reader keeps the streamed events that `ocean.StreamReader` keeps: those of stored steps, others of the highest call.
"""

from typing import Any, assert_never

import anyio
from pydantic import ValidationError

from clogs.chat.records import MOST_TURNS, ChatAnswer, ChatMessage, ChatSettings, Turn, ask_of
from clogs.models import Ask, EnvironmentModels, Finder, Model, ModelEnd, ModelError, ModelToolCall, Text
from ocean import UNSET, Clog, Done, Failed, InvalidValue, Ok, Outcome, Retry, Rows, Tick

__all__ = ["ChatMessage", "ChatSettings", "Turn", "chat", "make_chat"]

IDLE = "chat.idle"


def make_chat(models: Finder, clog_id: str = "chat", lock_ms: int = 10_000) -> Clog:
    """Make a chat with these models: `Models([…])`, or `EnvironmentModels()`.

    `lock_ms` is how long a conversation waits after its server died during an answer.
    """
    clog = Clog(clog_id, run_state=ChatSettings, tick_ms=600_000, lock_ms=lock_ms)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, tick=["turn"], history=MOST_TURNS)
        if tick.timer == IDLE and not await tick.pending():
            return Done({"reason": "idle"})
        try:
            settings = rows.run or _opened(tick, models)
            message = _message(tick, settings)
        except ValidationError as error:
            return await _refused(tick, error)
        except ModelError as error:
            return Failed(error.info)
        turn = await _make_turn(tick, models, settings, rows, message.text) if message.is_message else None
        if isinstance(turn, Retry):
            return turn
        if not rows.has_run:
            await tick.emit("chat.opened", {"model": settings.model})
        if turn is not None:
            await tick.emit("chat.turn", turn.model_dump())
        row = {} if turn is None else {"turn": turn.model_dump()}
        await tick.write(run=UNSET if rows.has_run else settings, tick=row)
        if settings.idle_ms is not None:
            await tick.set_timer(IDLE, after_ms=settings.idle_ms)
        return Ok()

    @clog.method
    async def turns(tick: Tick, payload: Any) -> list[Any]:
        """Return the newest turns, oldest first; at most n with `{"limit": n}`."""
        options = {"limit": MOST_TURNS} | (payload if isinstance(payload, dict) else {})
        if not isinstance(options["limit"], int) or not 1 <= options["limit"] <= MOST_TURNS:
            raise InvalidValue(f"limit must be between 1 and {MOST_TURNS}, got {options['limit']!r}")
        return [each.rows["turn"] for each in (await tick.read(history=options["limit"])).history]

    return clog


def _opened(tick: Tick, models: Finder) -> ChatSettings:
    """Return the settings with the name of the model. An unknown model fails the run before the first turn."""
    given = ChatSettings.model_validate((tick.input if tick.reason == "created" else None) or {})
    return given.model_copy(update={"model": models.find(given.model or models.default).name})


def _message(tick: Tick, settings: ChatSettings) -> ChatMessage:
    match tick.reason:
        case "created":
            return ChatMessage(text=settings.text or "")
        case "signal":
            return ChatMessage.model_validate(tick.input)
        case _:
            return ChatMessage()


async def _make_turn(tick: Tick, models: Finder, settings: ChatSettings, rows: Rows, text: str) -> Turn | Retry:
    """Return the turn with the model's answer, which is a step: a repeated tick does not call the model again."""
    await tick.stream("chat.heard", {"text": text, "signal_id": tick.signal_id})
    turn = Turn(text=text, model=settings.model or "", signal_id=tick.signal_id)
    earlier = [Turn.model_validate(each.rows["turn"]) for each in rows.history]

    async def answer(key: str) -> Any:
        ask = ask_of(settings, earlier, text, key)
        return (await stream_reply(tick, models.find(turn.model), ask, settings.answer_chars)).model_dump()

    try:
        received = ChatAnswer.model_validate(await tick.step("answer", answer))
    except ModelError as error:
        return await _failed_turn(tick, turn, error)
    facts = received.model_dump(exclude={"text"})
    return Turn.model_validate(turn.model_dump() | facts | {"answer": received.text})


async def _failed_turn(tick: Tick, turn: Turn, error: ModelError) -> Turn | Retry:
    """Retry as the run's policy allows. After the last attempt the turn fails and the conversation goes on."""
    attempts = tick.run.max_attempts
    outcome = error.outcome
    if isinstance(outcome, Retry) and (attempts is None or tick.attempt + 1 < attempts):
        details = {"code": error.code, "message": error.message, "after_ms": error.after_ms}
        await tick.stream("chat.error", details)
        return outcome
    return turn.model_copy(update={"error": error.info.as_json()})


async def _refused(tick: Tick, error: ValidationError) -> Outcome:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "the input"
    message = f"{place}: {first['msg']}"
    if tick.reason == "created":
        return Failed({"code": "bad_settings", "message": message})
    await tick.emit("chat.refused", {"code": "bad_message", "message": message, "signal_id": tick.signal_id})
    return Ok()


chat = make_chat(EnvironmentModels())


async def stream_reply(tick: Tick, model: Model, ask: Ask, most_chars: int) -> ChatAnswer:
    """Stream the answer to its end, to `most_chars`, or until another signal for this run arrives, and return it."""
    if any(each.kind == "signal" for each in await tick.pending()):
        return ChatAnswer(is_interrupted=True)
    reply = ChatAnswer()

    async def stop_on_signal() -> None:
        await tick.next_signal()
        reply.is_interrupted = reply.reason is None
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_on_signal)
            await _stream(tick, model, ask, most_chars, reply)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _innermost(group) from None
    return reply


async def _stream(tick: Tick, model: Model, ask: Ask, most_chars: int, reply: ChatAnswer) -> None:
    async with model.answer(ask) as pieces:
        async for piece in pieces:
            match piece:
                case Text():
                    part = piece.text[: most_chars - len(reply.text)]
                    reply.text += part
                    await tick.stream("chat.token", {"text": part})
                    if len(reply.text) >= most_chars:
                        reply.reason = "length"
                        return
                case ModelEnd():
                    reply.reason, reply.usage = piece.reason, piece.usage
                case ModelToolCall():
                    # A chat offers no tools; a call that a model makes anyway is dropped.
                    pass
                case _:
                    assert_never(piece)


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error inside the group: the kernel chooses an outcome by the type of the exception."""
    first = group.exceptions[0]
    return _innermost(first) if isinstance(first, BaseExceptionGroup) else first
