"""An agent: one run is one task, worked on by a model with tools in a loop, until the model answers without one.

A tick either thinks (asks the model) or acts (makes the calls it asked for). Every answer of the model and every call
of a tool is a step. A dangerous tool waits for `approve` or `reject`, which name who decided, or for its time to pass.

| event | when | payload |
|---|---|---|
| `agent.began` | the run begins | `model`, `tools` |
| `agent.token` | streamed, as the model speaks | `text` |
| `agent.error` | streamed, the model failed and is asked again | `code`, `message`, `details`, `after_ms` |
| `agent.refused` | a signal that is no message | `code`, `message` |
| `agent.turn` | with the commit of a thought | `turn`, `text`, `calls`, `usage`, `is_interrupted` |
| `agent.waiting` | its budget is spent for now | `budget`, `retry_after_ms` |
| `approval.requested` | a dangerous call waits for a human | `approval_id`, `tool`, `input`, `expires_at`, … |
| `approval.decided` | it was decided, or nobody did | `approval_id`, `tool`, `decision`, `by`, `reason` |

The kernel's `tool.called` tells of every call.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from clogs.agent.approvals import add_approvals, close
from clogs.agent.records import (
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
    """An agent with these models and tools. With `approver_role`, only callers who have it may decide."""
    clog = Clog(clog_id, run_state=AgentState, toolbox=toolbox, tick_ms=600_000)
    add_approvals(clog, approver_role)
    offered = sorted(clog.toolbox)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, tick=["said"], history=MOST_TICKS)
        said: list[Message] = []
        try:
            work: AgentState = rows.run or await _begun(tick, models, offered, said)
            ended = await _taken_in(tick, work, said)
        except ModelError as error:
            return Failed(error.info)
        except ValidationError as error:
            return Failed({"code": "bad_settings", "message": _first(error)})
        if ended is not None:
            return ended
        outcome = await (_acted(tick, work, said) if work.is_acting else _thought(tick, models, work, rows, said))
        if not isinstance(outcome, Retry | Failed):
            await tick.write(run=work, tick={"said": [each.model_dump() for each in said]} if said else {})
        return outcome

    @clog.on_end
    async def end(tick: Tick) -> Outcome:
        """Whoever looks at an open request must see that it is over."""
        work: AgentState = (await tick.read(run=True)).run
        for wanted in work.asked if work else []:
            await close(tick, work, wanted, ENDS.get(tick.reason, tick.reason))
        return Ok()

    return clog


async def _begun(tick: Tick, models: Finder, offered: list[str], said: list[Message]) -> AgentState:
    settings = AgentSettings.model_validate(tick.input)
    settings.model = models.find(settings.model or models.default).name
    missing = sorted({*(settings.tools or ())} - {*offered})
    if missing:
        raise Abort(f"there is no tool {missing[0]!r}; there are: {', '.join(offered) or 'none'}", code="unknown_tool")
    tools = offered if settings.tools is None else sorted({*settings.tools})
    said.append(Message(role="user", content=settings.task))
    await tick.emit("agent.began", {"model": settings.model, "tools": tools})
    return AgentState(settings=settings, tools=tools)


async def _taken_in(tick: Tick, work: AgentState, said: list[Message]) -> Outcome | None:
    """What has come: a word, a stop, a request that expired. What was decided is in the row already."""
    if tick.timer is not None:
        return await _expired(tick, work, tick.timer)
    if tick.reason != "signal" or tick.input is None:
        return None
    try:
        word = AgentMessage.model_validate(tick.input)
    except ValidationError as error:
        await tick.emit("agent.refused", {"code": "bad_message", "message": _first(error)})
        return None
    if word.stop:
        for wanted in work.asked:
            await close(tick, work, wanted, "stopped")
        return Done(work.report("", "stopped"))
    if word.text and work.is_acting and len(work.unheard) >= MOST_UNHEARD:
        await tick.emit("agent.refused", {"code": "too_many_words", "message": "it has yet to hear the earlier ones"})
    elif word.text and work.is_acting:
        work.unheard.append(word.text)
    elif word.text:
        said.append(Message(role="user", content=word.text))
    return None


async def _expired(tick: Tick, work: AgentState, timer: str) -> Outcome | None:
    for wanted in work.asked:
        if wanted.timer == timer:
            await close(tick, work, wanted, "expired")
            if work.settings.on_expiry == "fail":
                message = f"nobody approved {wanted.tool!r} within {work.settings.approval_ms} ms"
                return Failed({"code": "approval_expired", "message": message})
    return None


async def _acted(tick: Tick, work: AgentState, said: list[Message]) -> Outcome:
    said += await act(tick, work)
    if work.asked:
        return Ok()
    said += [Message(role="user", content=text) for text in work.unheard]
    work.wanted, work.unheard = [], []
    return Continue()


async def _thought(tick: Tick, models: Finder, work: AgentState, rows: Rows, said: list[Message]) -> Outcome:
    held = await _held(tick, work)
    if held is not None:
        return held
    is_aloud = False

    async def ask(key: str) -> Any:
        nonlocal is_aloud
        is_aloud = True
        asked = ask_of(work, conversation(rows, said), tick.tools.schemas("openai", work.tools), key)
        model = models.find(work.settings.model or models.default)
        return (await stream_answer(tick, model, asked, event="agent.token", is_interruptible=True)).model_dump()

    try:
        thought = StreamedAnswer.model_validate(await tick.step("think", ask))
    except ModelError as error:
        if error.is_passing:
            await tick.stream("agent.error", error.info.as_json() | {"after_ms": error.after_ms})
        return error.outcome
    if thought.text and not is_aloud:
        # An earlier call has said it and stopped. Readers drop what that call streamed.
        await tick.stream("agent.token", {"text": thought.text})
    return await _concluded(tick, work, said, thought)


async def _held(tick: Tick, work: AgentState) -> Outcome | None:
    """Why the model is not asked now: somebody spoke meanwhile, or there is nothing left to spend."""
    if await tick.pending(1):
        return Ok()
    settings = work.settings
    if work.turn >= settings.most_turns:
        return Failed({"code": "out_of_turns", "message": f"no answer after {work.turn} turns: raise most_turns"})
    if settings.most_tokens is not None and work.tokens >= settings.most_tokens:
        return Failed({"code": "out_of_tokens", "message": f"{work.tokens} tokens are used: raise most_tokens"})
    return None if settings.budget is None or work.is_funded else await _funded(tick, work, settings.budget)


async def _funded(tick: Tick, work: AgentState, budget: Budget) -> Outcome:
    """Taken in one tick and spent in the next: a take is sure only when it is committed."""
    taken = await tick.take(budget.key, limit=budget.limit, per_ms=budget.per_ms)
    if taken:
        work.is_funded = True
        return Continue()
    if taken.retry_after_ms is None:
        return Failed({"code": "budget_spent", "message": f"the budget {budget.key!r} of {budget.limit} is spent"})
    await tick.emit("agent.waiting", {"budget": budget.key, "retry_after_ms": taken.retry_after_ms})
    return Wait(for_ms=taken.retry_after_ms)


async def _concluded(tick: Tick, work: AgentState, said: list[Message], thought: StreamedAnswer) -> Outcome:
    work.turn += 1
    work.is_funded = False
    work.usage = added(work.usage, thought.usage)
    calls = thought.calls[:MOST_CALLS]
    thought = thought.model_copy(update={"calls": calls})
    await tick.emit(
        "agent.turn",
        {
            "turn": work.turn,
            "text": thought.text,
            "calls": [shown_call(call) for call in calls],
            "usage": thought.usage.model_dump(),
            "is_interrupted": thought.is_interrupted,
        },
    )
    if thought.text or calls:
        said.append(thought.message)
    if thought.is_interrupted:
        return Ok()
    if not calls:
        return Done(work.report(thought.text, "answered"))
    work.wanted = [PendingCall(approval_id=f"{work.turn}.{place}", call=call) for place, call in enumerate(calls, 1)]
    return Continue()


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'input'}: {first['msg']}"


agent = make_agent(EnvironmentModels())
