"""The stored records of issues and executions, and how the result of an execution changes its issue. Pure."""

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from clogs.loop.plans import HOLD, LoopPlan, Step
from ocean import ChildEnd

KEPT_MS = 3_600_000
"""How long a repeat of a successful request gets the same result."""

RunStatus = Literal["pending", "running", "completed", "failed", "blocked"]
LoopStatus = Literal["active", "completed", "failed", "paused"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, serialize_by_alias=True)


class IssueLock(Record):
    """The lock of an issue for one execution. `tags` identify repeats of the request that created it."""

    run_id: str
    owner: str
    expires_at: int
    tags: tuple[str, ...] = ()


class KeptResult(Record):
    """The execution whose result a repeat of its request gets, until `until`."""

    run_id: str
    until: int


class Issue(Record):
    """`next` is the number of the next step. `version` rises when state, next step or facts change.

    `visit` is part of the effect's key: it stays the same while it is unknown whether the effect has happened.
    `failed_step` is the step that the remedy is for, and with which the issue continues when it is resumed. The alias
    of `kept_results` is the name under which they are stored.
    """

    title: str
    plan: str
    state: str
    next: int | None
    created_at: int
    created_by: str
    facts: dict[str, Any] = {}
    version: int = 1
    visit: int = 1
    failed_step: int | None = None
    lock: IssueLock | None = None
    kept_results: dict[str, KeptResult] = Field(
        default={}, validation_alias=AliasChoices("kept_results", "answers"), serialization_alias="answers"
    )


class UpcomingStep(Record):
    """The step that follows, as a response shows it."""

    number: int
    type: str
    estimated_ms: int | None = None


class StepOrder(Record):
    """The input of an execution: the issue as it was when it was locked."""

    issue_id: str
    title: str
    plan: str
    state: str
    next: int | None
    facts: dict[str, Any]
    failed_step: int | None
    actor: str
    key: str


class Result(Record):
    """The result of an execution. `state`, `next` and `failed_step` are those of the issue after it."""

    status: Literal["completed", "failed", "blocked"]
    loop_status: LoopStatus
    state: str
    next: int | None
    failed_step: int | None = None
    ahead: UpcomingStep | None = None
    facts: dict[str, Any] = {}
    blocker: str | None = None
    message: str | None = None


def order_of(issue_id: str, issue: Issue, actor: str) -> StepOrder:
    return StepOrder(
        issue_id=issue_id,
        title=issue.title,
        plan=issue.plan,
        state=issue.state,
        next=issue.next,
        facts=issue.facts,
        failed_step=issue.failed_step,
        actor=actor,
        # The time distinguishes the issue from a deleted one with the same id.
        key=f"{issue_id}@{issue.created_at}:{issue.next}:{issue.visit}",
    )


def ahead_of(step: Step | None) -> UpcomingStep | None:
    return None if step is None else UpcomingStep(number=step.number, type=step.type, estimated_ms=step.estimated_ms)


def done(plan: LoopPlan, step: Step, order: StepOrder, facts: dict[str, Any]) -> Result:
    following = plan.after(step)
    is_held = following is None and step.to == HOLD
    return Result(
        status="completed",
        loop_status="active" if following else "paused" if is_held else "completed",
        state=step.to,
        next=following.number if following else None,
        failed_step=order.failed_step if is_held else None,
        ahead=ahead_of(following),
        facts=facts,
        message=f"on hold after {step.type}; resume the issue when the problem is solved" if is_held else None,
    )


def failed(plan: LoopPlan, step: Step, order: StepOrder, code: str, message: str) -> Result:
    """Return the result of a permanent failure. The next step is the remedy if there is one, otherwise the same one."""
    following = plan.remedy if step.remedied and plan.remedy is not None else step
    return Result(
        status="failed",
        loop_status="failed",
        state=order.state,
        next=following.number,
        ahead=ahead_of(following),
        failed_step=order.failed_step if following is step else step.number,
        message=f"{code}: {message}",
    )


def blocked(order: StepOrder, step: Step | None, code: str, message: str) -> Result:
    return Result(
        status="blocked",
        loop_status="paused",
        state=order.state,
        next=order.next,
        failed_step=order.failed_step,
        ahead=ahead_of(step),
        blocker=code,
        message=f"{code}: {message}",
    )


def finished(order: StepOrder) -> Result:
    message = "the loop is completed; there are no more steps"
    return Result(status="completed", loop_status="completed", state=order.state, next=None, message=message)


def result_of(child: ChildEnd) -> Result | None:
    """Return the result that an execution stored; None if the kernel ended it."""
    stored = child.output if child.error is None else child.error.get("details")
    return Result.model_validate(stored) if isinstance(stored, dict) and "loop_status" in stored else None


def after_execution(issue: Issue, result: Result | None, now: int) -> Issue:
    """Return the issue after its execution has ended: without the lock, and changed by the result."""
    kept = {tag: each for tag, each in issue.kept_results.items() if each.until > now}
    change: dict[str, Any] = {"lock": None, "kept_results": kept}
    if result is None:
        return issue.model_copy(update=change)
    if result.status == "completed" and issue.lock is not None:
        newest = KeptResult(run_id=issue.lock.run_id, until=now + KEPT_MS)
        change["kept_results"] = kept | dict.fromkeys(issue.lock.tags, newest)
    before = (issue.state, issue.next, issue.facts)
    after = (result.state, result.next, issue.facts | result.facts)
    if result.status == "failed" or after != before:
        change |= {"visit": issue.visit + 1}
    if after != before:
        change |= dict(zip(("state", "next", "facts"), after, strict=True)) | {"version": issue.version + 1}
        change |= {"failed_step": result.failed_step}
    return issue.model_copy(update=change)
