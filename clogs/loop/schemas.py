"""The requests and responses of the contract, field by field. A response that does not fit is never sent."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from clogs.loop.records import LoopStatus, RunStatus

RUN_NEXT_STEP: Final = "loop.runNextStep.v1"
ISSUES_V1, RUNS_V1, EVENTS_V1 = "loop.issues.v1", "loop.runs.v1", "loop.events.v1"

Mode = Literal["execute", "dryRun"]
StepStatus = Literal["pending", "running", "completed", "failed", "skipped"]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]


class WireModel(BaseModel):
    """A response: snake_case in Python, camelCase on the wire, without absent fields."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)

    def wire(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class RequestModel(BaseModel):
    """A request. Only the contract's field names are accepted, and a text is never converted to a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RunNextStep(RequestModel):
    mode: Mode = "execute"


class NewIssue(RequestModel):
    title: Annotated[str, Field(min_length=1, max_length=1_000)]
    issueId: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    project: Annotated[str, Field(min_length=1, max_length=256)] = "default"
    plan: str | None = None
    facts: dict[str, Any] = {}


class ChangedFacts(RequestModel):
    facts: dict[str, Any]


class EmptyRequest(RequestModel):
    pass


def _whole(text: Any) -> Any:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 17 else text


Digits = Annotated[int, BeforeValidator(_whole)]
Limit = Annotated[Digits, Field(ge=1, le=200)]


class RunListQuery(RequestModel):
    limit: Limit = 50
    cursor: str | None = None


class IssueListQuery(RunListQuery):
    project: str | None = None
    state: str | None = None


class EventListQuery(RequestModel):
    limit: Limit = 50
    before: Digits | None = None


class StepExecuted(WireModel):
    step_number: Number
    step_type: str
    status: StepStatus
    started_at: str
    completed_at: str | None = None
    duration_ms: Count | None = None


class NextStep(WireModel):
    step_number: Number
    step_type: str
    estimated_duration_ms: Count | None = None


class RunNextStepAnswer(WireModel):
    schema_version: Literal["loop.runNextStep.v1"] = RUN_NEXT_STEP
    request_id: str
    issue_id: str
    run_id: str
    step_executed: StepExecuted | None = None
    next_step: NextStep | None = None
    loop_status: LoopStatus
    message: str | None = None


class LockShown(WireModel):
    run_id: str
    owner: str
    expires_at: str


class IssueShown(WireModel):
    issue_id: str
    project: str
    title: str
    plan: str
    state: str
    version: Number
    next_step: NextStep | None = None
    lock: LockShown | None = None
    facts: dict[str, Any]
    created_at: str
    created_by: str


class RunShown(WireModel):
    """An execution. `status` is pending or running, then completed, failed or blocked."""

    run_id: str
    issue_id: str
    status: RunStatus
    loop_status: LoopStatus
    step_number: Number | None = None
    step_type: str | None = None
    state_before: str
    state_after: str | None = None
    blocker_code: str | None = None
    message: str | None = None
    next_step: NextStep | None = None
    actor: str
    request_id: str
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    duration_ms: Count | None = None


class EventShown(WireModel):
    """An event of an issue. `cursor` is a value for `before`."""

    event_id: str
    cursor: Number
    type: str
    occurred_at: str
    actor: str | None = None
    payload: dict[str, Any]


def iso(ms: int) -> str:
    seconds, rest = divmod(ms, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"
