"""An agent's settings, the row of its run, and the messages to its model. Pure."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from clogs.models import Ask, Message, ModelToolCall, Offer, Usage
from ocean import Rows, ToolResult, redacted

DAY_MS = 86_400_000
MOST_TURNS = 100
MOST_CALLS = 32
MOST_TICKS = 1_000
MOST_TEXT = 32_000
MOST_UNHEARD = 8
RESULTS_CHARS = 200_000
"""The limit for all results of one turn together: they are one row, and a character may be four bytes."""
MESSAGES_ROW = "said"
"""The name of the tick's row that holds the messages of that tick."""
SYSTEM = "You work on a task with the tools you are given. When you have the result, answer without a tool call."


class Budget(BaseModel):
    """A limit on calls of the model, from a counter that runs may share: `limit` in total, or in every `per_ms`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(min_length=1, max_length=200)
    limit: int = Field(ge=1)
    per_ms: int | None = Field(default=None, ge=1)


class AgentSettings(BaseModel):
    """The input of an agent's run. `tools` selects some of the clog's tools."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(min_length=1, max_length=MOST_TEXT)
    model: str | None = Field(default=None, min_length=1, max_length=200)
    system: str = Field(default=SYSTEM, max_length=MOST_TEXT)
    tools: list[str] | None = None
    most_turns: int = Field(default=20, ge=1, le=MOST_TURNS)
    most_tokens: int | None = Field(default=None, ge=1)
    result_chars: int = Field(default=8_000, ge=100, le=100_000)
    approval_ms: int = Field(default=DAY_MS, ge=1_000)
    on_expiry: Literal["reject", "fail"] = "reject"
    budget: Budget | None = None


class AgentMessage(BaseModel):
    """A signal to an agent: a message, or `stop`, which ends the run with its current result."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(default="", max_length=MOST_TEXT)
    stop: bool = False


CallStatus = Literal["open", "asked", "approved", "rejected", "expired", "answered"]


class PendingCall(BaseModel):
    """A tool call of the current turn. One that needs approval is `asked` until it is decided, once."""

    approval_id: str
    call: ModelToolCall
    standing: CallStatus = "open"
    tool: str = ""
    fingerprint: str = ""
    expires_at: int | None = None
    by: str | None = None
    reason: str = ""

    @property
    def timer(self) -> str:
        return f"approval {self.approval_id}"


class ClosedApproval(BaseModel):
    """How a request ended, reported to later callers of `approve` and `reject`."""

    decision: str
    by: str | None = None


class AgentState(BaseModel):
    """The run's row. The messages are in the rows of its ticks."""

    settings: AgentSettings
    tools: list[str]
    turn: int = 0
    usage: Usage = Usage()
    wanted: list[PendingCall] = []
    unheard: list[str] = []
    """Messages that arrived before all results of a turn were known: the model gets the results first."""
    decided: dict[str, ClosedApproval] = {}
    is_funded: bool = False
    """Whether the next call of the model is taken from the budget."""

    @property
    def is_acting(self) -> bool:
        return bool(self.wanted)

    @property
    def waiting(self) -> list[PendingCall]:
        """The calls that wait for approval."""
        return [each for each in self.wanted if each.standing == "asked"]

    @property
    def most_result_chars(self) -> int:
        """The longest result of a call that is sent to the model."""
        return min(self.settings.result_chars, RESULTS_CHARS // max(len(self.wanted), 1))

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens

    def report(self, answer: str, status: Literal["answered", "stopped"]) -> dict[str, Any]:
        return {"status": status, "answer": answer, "turns": self.turn, "usage": self.usage.model_dump()}


def offered_name(tools: Iterable[str], requested: str) -> str | None:
    """Return the offered tool that the model requested, or None: a model may name a tool it was not offered."""
    return next((name for name in tools if requested in (name, name.replace(".", "__"))), None)


def added(first: Usage, second: Usage) -> Usage:
    return Usage(
        input_tokens=first.input_tokens + second.input_tokens, output_tokens=first.output_tokens + second.output_tokens
    )


def conversation(rows: Rows, now: Sequence[Message]) -> list[Message]:
    """Return all messages in order: those of earlier ticks, then `now`, those of this tick."""
    earlier = [Message.model_validate(each) for tick in rows.history for each in tick.rows.get(MESSAGES_ROW, ())]
    return [*earlier, *now]


def ask_of(state: AgentState, messages: Iterable[Message], offers: Sequence[dict[str, Any]], key: str) -> Ask:
    sent = (Message(role="system", content=state.settings.system), *messages)
    return Ask(messages=sent, tools=tuple(Offer(**each["function"]) for each in offers), idempotency_key=key)


def result_message(call: PendingCall, result: ToolResult, most_chars: int) -> Message:
    """Return the message to the model: the output as JSON, shortened if it is long, or the error."""
    if result.error is not None:
        return refusal_message(call, result.error.code, result.error.message)
    text = result.output if isinstance(result.output, str) else json.dumps(result.output, ensure_ascii=False)
    cut = f"{text[:most_chars]}… ({len(text) - most_chars} more characters)" if len(text) > most_chars else text
    return Message(role="tool", content=cut, tool_call_id=call.call.id)


def refusal_message(call: PendingCall, code: str, message: str) -> Message:
    content = json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False)
    return Message(role="tool", content=content, tool_call_id=call.call.id)


def shown_call(call: ModelToolCall) -> dict[str, Any]:
    """Return the call as events show it, with secrets redacted."""
    try:
        return {"id": call.id, "tool": call.name, "input": redacted(json.loads(call.arguments or "{}"))}
    except ValueError:
        return {"id": call.id, "tool": call.name, "input": redacted(call.arguments)}
