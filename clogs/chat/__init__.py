"""A chat: one run is one conversation, a message is a signal, and a tick answers one message in a stream.

The history is the ticks' own rows. A message that comes while an answer is given breaks it off: what was said is kept,
and the new message is answered with it in the history.

| event | when | payload |
|---|---|---|
| `chat.opened` | the conversation begins | `model` |
| `chat.heard` | streamed, as a call of a tick begins | `text`, `signal_id` |
| `chat.token` | streamed, as the model speaks | `text` |
| `chat.error` | streamed, the model failed and is asked again | `code`, `message`, `after_ms` |
| `chat.turn` | with the commit | the `Turn`: it stands for everything streamed in its tick |
| `chat.refused` | a signal that is no message | `code`, `message`, `signal_id` |

Streamed events carry the tick and the call: a reader keeps those of the highest call.
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
    """A chat with these models: `Models([…])`, or `EnvironmentModels()`.

    `lock_ms` is how long a conversation waits for a server that died in the middle of an answer.
    """
    clog = Clog(clog_id, run_state=ChatSettings, tick_ms=600_000, lock_ms=lock_ms)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, tick=["turn"], history=MOST_TURNS)
        if tick.timer == IDLE and not await tick.pending():
            return Done({"reason": "idle"})
        try:
            settings = rows.run or _opened(tick, models)
            said = _said(tick, settings)
        except ValidationError as error:
            return await _refused(tick, error)
        except ModelError as error:
            return Failed(error.info)
        turn = await _turn(tick, models, settings, rows, said.text) if said.is_message else None
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
        """The newest turns, oldest first; `{"limit": n}` for at most so many."""
        asked = {"limit": MOST_TURNS} | (payload if isinstance(payload, dict) else {})
        if not isinstance(asked["limit"], int) or not 1 <= asked["limit"] <= MOST_TURNS:
            raise InvalidValue(f"turns takes a limit from 1 to {MOST_TURNS}")
        return [each.rows["turn"] for each in (await tick.read(history=asked["limit"])).history]

    return clog


def _opened(tick: Tick, models: Finder) -> ChatSettings:
    """A model that is not there fails the run before anything is said."""
    given = ChatSettings.model_validate((tick.input if tick.reason == "created" else None) or {})
    return given.model_copy(update={"model": models.find(given.model or models.default).name})


def _said(tick: Tick, settings: ChatSettings) -> ChatMessage:
    match tick.reason:
        case "created":
            return ChatMessage(text=settings.text or "")
        case "signal":
            return ChatMessage.model_validate(tick.input)
        case _:
            return ChatMessage()


async def _turn(tick: Tick, models: Finder, settings: ChatSettings, rows: Rows, text: str) -> Turn | Retry:
    """The answer is a step: once it is there, it is neither asked for nor paid for again."""
    await tick.stream("chat.heard", {"text": text, "signal_id": tick.signal_id})
    turn = Turn(text=text, model=settings.model or "", signal_id=tick.signal_id)
    earlier = [Turn.model_validate(each.rows["turn"]) for each in rows.history]

    is_said = False

    async def answer(key: str) -> Any:
        nonlocal is_said
        is_said = True
        ask = ask_of(settings, earlier, text, key)
        return (await speak(tick, models.find(turn.model), ask, settings.answer_chars)).model_dump()

    try:
        spoken = ChatAnswer.model_validate(await tick.step("answer", answer))
    except ModelError as error:
        return await _unanswered(tick, turn, error)
    if spoken.text and not is_said:
        # An earlier call has said it and stopped. Readers drop what that call streamed.
        await tick.stream("chat.token", {"text": spoken.text})
    facts = spoken.model_dump(exclude={"text"})
    return Turn.model_validate(turn.model_dump() | facts | {"answer": spoken.text})


async def _unanswered(tick: Tick, turn: Turn, error: ModelError) -> Turn | Retry:
    """Asked again as the run's policy says. Then the message is given up, not the conversation."""
    attempts = tick.run.max_attempts
    outcome = error.outcome
    if isinstance(outcome, Retry) and (attempts is None or tick.attempt + 1 < attempts):
        told = {"code": error.code, "message": error.message, "after_ms": error.after_ms}
        await tick.stream("chat.error", told)
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


async def speak(tick: Tick, model: Model, ask: Ask, most_chars: int) -> ChatAnswer:
    """The answer as far as it came: to its end, to `most_chars`, or until another signal waits for this run."""
    if any(each.kind == "signal" for each in await tick.pending()):
        return ChatAnswer(is_interrupted=True)
    spoken = ChatAnswer()

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


async def _say(tick: Tick, model: Model, ask: Ask, most_chars: int, spoken: ChatAnswer) -> None:
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
                case ModelEnd():
                    spoken.reason, spoken.usage = piece.reason, piece.usage
                case ModelToolCall():
                    # A chat offers no tools; a call that a model makes anyway is dropped.
                    pass
                case _:
                    assert_never(piece)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A failure is told by its kind, which a group would hide."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
