"""What is stored of an issue and of an execution, and how the one changes the other: pure."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from clogs.loop.plans import HOLD, LoopPlan, Step
from ocean import ChildEnd

KEPT_MS = 3_600_000
"""How long a success is answered again to whoever repeats its request."""

RunStatus = Literal["pending", "running", "completed", "failed", "blocked"]
LoopStatus = Literal["active", "completed", "failed", "paused"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class IssueLock(Record):
    """Whose execution the issue is locked for. `tags` say by which headers its answer may be asked for again."""

    run_id: str
    owner: str
    expires_at: int
    tags: tuple[str, ...] = ()


class KeptResult(Record):
    run_id: str
    until: int


class Issue(Record):
    """`next` is the number of the next step. `version` rises when state, next step or facts change.

    `visit` names what an effect is tried for: it stays while it is not known whether the effect has happened.
    `failed_step` is what a remedy remedies, and where the issue goes on when it is resumed.
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
    answers: dict[str, KeptResult] = {}


class UpcomingStep(Record):
    number: int
    type: str
    estimated_ms: int | None = None


class StepOrder(Record):
    """What an execution is told: the issue as it was when it was locked."""

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
    """How an execution went. `state`, `next` and `failed_step` are the issue's after it."""

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
        # The time tells an issue from one of the same name that was deleted.
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
        message=f"on hold after {step.type}; resume it when it is remedied" if is_held else None,
    )


def failed(plan: LoopPlan, step: Step, order: StepOrder, code: str, message: str) -> Result:
    """A failure for good. Its remedy is the next step if it has one, else the same step."""
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
    message = "the loop is completed; there is no further step"
    return Result(status="completed", loop_status="completed", state=order.state, next=None, message=message)


def result_of(child: ChildEnd) -> Result | None:
    """What an execution said of itself; None if the kernel has ended it."""
    said = child.output if child.error is None else child.error.get("details")
    return Result.model_validate(said) if isinstance(said, dict) and "loop_status" in said else None


def settled(issue: Issue, result: Result | None, now: int) -> Issue:
    """The issue after its execution has ended: free, and where the execution has left it."""
    kept = {tag: answer for tag, answer in issue.answers.items() if answer.until > now}
    change: dict[str, Any] = {"lock": None, "answers": kept}
    if result is None:
        return issue.model_copy(update=change)
    if result.status == "completed" and issue.lock is not None:
        answer = KeptResult(run_id=issue.lock.run_id, until=now + KEPT_MS)
        change["answers"] = kept | dict.fromkeys(issue.lock.tags, answer)
    before = (issue.state, issue.next, issue.facts)
    after = (result.state, result.next, issue.facts | result.facts)
    if result.status == "failed" or after != before:
        change |= {"visit": issue.visit + 1}
    if after != before:
        change |= dict(zip(("state", "next", "facts"), after, strict=True)) | {"version": issue.version + 1}
        change |= {"failed_step": result.failed_step}
    return issue.model_copy(update=change)
