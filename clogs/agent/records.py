"""PURE: what an agent is asked, where it stands, and what its model is told."""

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
"""For all results of one turn together: they are one row, and a character may be four bytes."""
SYSTEM = "You work on a task with the tools you are given. When you have what was asked for, answer without a tool."


class Budget(BaseModel):
    """Calls of the model, from a counter that runs may share: `limit` in all, or in every `per_ms`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(min_length=1, max_length=200)
    limit: int = Field(ge=1)
    per_ms: int | None = Field(default=None, ge=1)


class AgentSettings(BaseModel):
    """What an agent's run is created with. `tools` narrows what the clog has."""

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
    """What somebody signals: a word to the agent, or `stop`, which ends its run with what there is."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(default="", max_length=MOST_TEXT)
    stop: bool = False


CallStatus = Literal["open", "asked", "approved", "rejected", "expired", "answered"]


class PendingCall(BaseModel):
    """A tool call of the current turn. One that needs a human is `asked` until it is decided, once."""

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
    """How a request ended, for whoever comes too late."""

    decision: str
    by: str | None = None


class AgentState(BaseModel):
    """The run's row. What was said is in the rows of its ticks."""

    settings: AgentSettings
    tools: list[str]
    turn: int = 0
    usage: Usage = Usage()
    wanted: list[PendingCall] = []
    unheard: list[str] = []
    """What was said to it while results were missing: a model is told these first."""
    decided: dict[str, ClosedApproval] = {}
    is_funded: bool = False
    """Its budget has given it the next call of the model."""

    @property
    def is_acting(self) -> bool:
        return bool(self.wanted)

    @property
    def asked(self) -> list[PendingCall]:
        """What waits for a human."""
        return [each for each in self.wanted if each.standing == "asked"]

    @property
    def room(self) -> int:
        """How long the result of a call may be."""
        return min(self.settings.result_chars, RESULTS_CHARS // max(len(self.wanted), 1))

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens

    def report(self, answer: str, status: Literal["answered", "stopped"]) -> dict[str, Any]:
        return {"status": status, "answer": answer, "turns": self.turn, "usage": self.usage.model_dump()}


def offered_name(tools: Iterable[str], said: str) -> str | None:
    """Which of the tools a model means. It may name any: only those it was offered count."""
    return next((name for name in tools if said in (name, name.replace(".", "__"))), None)


def added(first: Usage, second: Usage) -> Usage:
    return Usage(
        input_tokens=first.input_tokens + second.input_tokens, output_tokens=first.output_tokens + second.output_tokens
    )


def conversation(rows: Rows, now: Sequence[Message]) -> list[Message]:
    """All that was said, in order; the rows of this tick are `now`."""
    earlier = [Message.model_validate(each) for tick in rows.history for each in tick.rows.get("said", ())]
    return [*earlier, *now]


def ask_of(work: AgentState, said: Iterable[Message], offers: Sequence[dict[str, Any]], key: str) -> Ask:
    told = (Message(role="system", content=work.settings.system), *said)
    return Ask(messages=told, tools=tuple(Offer(**each["function"]) for each in offers), idempotency_key=key)


def result_message(wanted: PendingCall, result: ToolResult, most_chars: int) -> Message:
    """What the model is told: the output as JSON, cut if it is long, or what went wrong."""
    if result.error is not None:
        return refusal_message(wanted, result.error.code, result.error.message)
    text = result.output if isinstance(result.output, str) else json.dumps(result.output, ensure_ascii=False)
    cut = f"{text[:most_chars]}… ({len(text) - most_chars} more characters)" if len(text) > most_chars else text
    return Message(role="tool", content=cut, tool_call_id=wanted.call.id)


def refusal_message(wanted: PendingCall, code: str, message: str) -> Message:
    content = json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False)
    return Message(role="tool", content=content, tool_call_id=wanted.call.id)


def shown_call(call: ModelToolCall) -> dict[str, Any]:
    """For events: without what looks like a secret."""
    try:
        return {"id": call.id, "tool": call.name, "input": redacted(json.loads(call.arguments or "{}"))}
    except ValueError:
        return {"id": call.id, "tool": call.name, "input": redacted(call.arguments)}
