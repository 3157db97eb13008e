"""An agent: one run is one task. A model with tools works on it in a loop until it gives an answer without a tool call.

A tick either calls the model or makes the tool calls that the model requested. Each answer of the model and each tool
call is a step. A call of a dangerous tool waits for `approve` or `reject`, which record the caller, or expires.

Read `records` first (settings, the run's row, the messages to the model), then this file (the loop), `tool_calls` and
`approvals`.

| event | when | payload |
|---|---|---|
| `agent.began` | the run begins | `model`, `tools` |
| `agent.token` | streamed, for each part of the model's text | `text` |
| `agent.error` | streamed, the model failed and will be called again | `code`, `message`, `details`, `after_ms` |
| `agent.refused` | a signal is not a valid message | `code`, `message` |
| `agent.turn` | with the commit of the model's answer | `turn`, `text`, `calls`, `usage`, `is_interrupted` |
| `agent.waiting` | the budget is used up for now | `budget`, `retry_after_ms` |
| `approval.requested` | a dangerous call waits for a human | `approval_id`, `tool`, `input`, `expires_at`, … |
| `approval.decided` | the request was decided, or it expired | `approval_id`, `tool`, `decision`, `by`, `reason` |

The kernel emits `tool.called` for every tool call.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from clogs.agent.approvals import add_approvals, close
from clogs.agent.records import (
    MESSAGES_ROW,
    MOST_CALLS,
    MOST_TICKS,
    MOST_UNHEARD,
    AgentMessage,
    AgentSettings,
    AgentState,
    Budget,
    PendingCall,
    added,
    ask_of,
    conversation,
    shown_call,
)
from clogs.agent.tool_calls import act
from clogs.models import EnvironmentModels, Finder, Message, ModelError
from clogs.models.streaming import StreamedAnswer, stream_answer
from ocean import Abort, Clog, Continue, Done, Failed, Ok, Outcome, Retry, Rows, Tick, Tool, ToolBox, Wait

ENDS = {"cancel": "cancelled", "deadline": "expired", "exhausted": "failed"}
__all__ = ["AgentMessage", "AgentSettings", "Budget", "agent", "make_agent"]


def make_agent(
    models: Finder,
    toolbox: Iterable[Tool | ToolBox | str] = (),
    clog_id: str = "agent",
    *,
    approver_role: str | None = None,
) -> Clog:
    """Make an agent with these models and tools. With `approver_role`, only callers with that role may decide."""
    clog = Clog(clog_id, run_state=AgentState, toolbox=toolbox, tick_ms=600_000)
    add_approvals(clog, approver_role)
    offered = sorted(clog.toolbox)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, tick=[MESSAGES_ROW], history=MOST_TICKS)
        messages: list[Message] = []
        try:
            state: AgentState = rows.run or await _begin(tick, models, offered, messages)
            ended = await _take_input(tick, state, messages)
        except ModelError as error:
            return Failed(error.info)
        except ValidationError as error:
            return Failed({"code": "bad_settings", "message": _first_error(error)})
        if ended is not None:
            return ended
        outcome = await (
            _act(tick, state, messages) if state.is_acting else _call_model(tick, models, state, rows, messages)
        )
        if not isinstance(outcome, Retry | Failed):
            await tick.write(
                run=state, tick={MESSAGES_ROW: [each.model_dump() for each in messages]} if messages else {}
            )
        return outcome

    @clog.on_end
    async def end(tick: Tick) -> Outcome:
        """Close the approval requests that are still open."""
        state: AgentState = (await tick.read(run=True)).run
        for call in state.waiting if state else []:
            await close(tick, state, call, ENDS.get(tick.reason, tick.reason))
        return Ok()

    return clog


async def _begin(tick: Tick, models: Finder, offered: list[str], messages: list[Message]) -> AgentState:
    settings = AgentSettings.model_validate(tick.input)
    settings.model = models.find(settings.model or models.default).name
    missing = sorted({*(settings.tools or ())} - {*offered})
    if missing:
        raise Abort(f"there is no tool {missing[0]!r}; available: {', '.join(offered) or 'none'}", code="unknown_tool")
    tools = offered if settings.tools is None else sorted({*settings.tools})
    messages.append(Message(role="user", content=settings.task))
    await tick.emit("agent.began", {"model": settings.model, "tools": tools})
    return AgentState(settings=settings, tools=tools)


async def _take_input(tick: Tick, state: AgentState, messages: list[Message]) -> Outcome | None:
    """Take the tick's input: a message, a stop, or an approval that expired. Decisions are already in the row."""
    if tick.timer is not None:
        return await _expired(tick, state, tick.timer)
    if tick.reason != "signal" or tick.input is None:
        return None
    try:
        message = AgentMessage.model_validate(tick.input)
    except ValidationError as error:
        await tick.emit("agent.refused", {"code": "bad_message", "message": _first_error(error)})
        return None
    if message.stop:
        for call in state.waiting:
            await close(tick, state, call, "stopped")
        return Done(state.report("", "stopped"))
    if message.text and state.is_acting and len(state.unheard) >= MOST_UNHEARD:
        await tick.emit(
            "agent.refused",
            {
                "code": "too_many_words",
                "message": f"{MOST_UNHEARD} messages already wait for the results of the tool calls",
            },
        )
    elif message.text and state.is_acting:
        state.unheard.append(message.text)
    elif message.text:
        messages.append(Message(role="user", content=message.text))
    return None


async def _expired(tick: Tick, state: AgentState, timer: str) -> Outcome | None:
    for call in state.waiting:
        if call.timer == timer:
            await close(tick, state, call, "expired")
            if state.settings.on_expiry == "fail":
                message = f"{call.tool!r} was not approved within {state.settings.approval_ms} ms"
                return Failed({"code": "approval_expired", "message": message})
    return None


async def _act(tick: Tick, state: AgentState, messages: list[Message]) -> Outcome:
    messages += await act(tick, state)
    if state.waiting:
        return Ok()
    messages += [Message(role="user", content=text) for text in state.unheard]
    state.wanted, state.unheard = [], []
    return Continue()


async def _call_model(tick: Tick, models: Finder, state: AgentState, rows: Rows, messages: list[Message]) -> Outcome:
    reason = await _why_not_now(tick, state)
    if reason is not None:
        return reason

    async def ask(key: str) -> Any:
        request = ask_of(state, conversation(rows, messages), tick.tools.schemas("openai", state.tools), key)
        model = models.find(state.settings.model or models.default)
        return (await stream_answer(tick, model, request, event="agent.token", is_interruptible=True)).model_dump()

    try:
        answer = StreamedAnswer.model_validate(await tick.step("think", ask))
    except ModelError as error:
        if error.is_passing:
            await tick.stream("agent.error", error.info.as_json() | {"after_ms": error.after_ms})
        return error.outcome
    return await _finish_turn(tick, state, messages, answer)


async def _why_not_now(tick: Tick, state: AgentState) -> Outcome | None:
    """Return why the model is not called now: an input arrived meanwhile, or a limit is reached. None to call it."""
    if await tick.pending(1):
        return Ok()
    settings = state.settings
    if state.turn >= settings.most_turns:
        return Failed({"code": "out_of_turns", "message": f"no answer after {state.turn} turns; raise most_turns"})
    if settings.most_tokens is not None and state.tokens >= settings.most_tokens:
        return Failed({"code": "out_of_tokens", "message": f"{state.tokens} tokens are used; raise most_tokens"})
    return None if settings.budget is None or state.is_funded else await _take_budget(tick, state, settings.budget)


async def _take_budget(tick: Tick, state: AgentState, budget: Budget) -> Outcome:
    """Take one call from the budget. The next tick makes it, since a take counts only when it is committed."""
    taken = await tick.take(budget.key, limit=budget.limit, per_ms=budget.per_ms)
    if taken:
        state.is_funded = True
        return Continue()
    if taken.retry_after_ms is None:
        return Failed({"code": "budget_spent", "message": f"the budget {budget.key!r} of {budget.limit} is used up"})
    await tick.emit("agent.waiting", {"budget": budget.key, "retry_after_ms": taken.retry_after_ms})
    return Wait(for_ms=taken.retry_after_ms)


async def _finish_turn(tick: Tick, state: AgentState, messages: list[Message], answer: StreamedAnswer) -> Outcome:
    state.turn += 1
    state.is_funded = False
    state.usage = added(state.usage, answer.usage)
    calls = answer.calls[:MOST_CALLS]
    answer = answer.model_copy(update={"calls": calls})
    await tick.emit(
        "agent.turn",
        {
            "turn": state.turn,
            "text": answer.text,
            "calls": [shown_call(call) for call in calls],
            "usage": answer.usage.model_dump(),
            "is_interrupted": answer.is_interrupted,
        },
    )
    if answer.text or calls:
        messages.append(answer.message)
    if answer.is_interrupted:
        return Ok()
    if not calls:
        return Done(state.report(answer.text, "answered"))
    state.wanted = [PendingCall(approval_id=f"{state.turn}.{place}", call=call) for place, call in enumerate(calls, 1)]
    return Continue()


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'input'}: {first['msg']}"


agent = make_agent(EnvironmentModels())
