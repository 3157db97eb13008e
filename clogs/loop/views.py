"""Convert stored records to responses. Pure, so that a repeated response is identical."""

from typing import Any

from clogs.loop.issues import TIMELINE
from clogs.loop.plans import LoopPlan, Step, next_of
from clogs.loop.records import Issue, Result, UpcomingStep, ahead_of, result_of
from clogs.loop.schemas import (
    EventShown,
    IssueShown,
    LockShown,
    NextStep,
    RunNextStepAnswer,
    RunShown,
    StepExecuted,
    iso,
)
from ocean import ChildEnd, Event, RunInfo

PAYLOAD = ("runId", "step", "stateBefore", "stateAfter", "blockerCode", "requestId", "prUrl", "reviewers")
"""The fields that an event of the timeline may show."""


def issue_shown(run: RunInfo, issue: Issue, plans: dict[str, LoopPlan], now: int) -> IssueShown:
    following = next_of(plans.get(issue.plan), issue.state, issue.next)
    lock = issue.lock if issue.lock is not None and issue.lock.expires_at > now else None
    return IssueShown(
        issue_id=run.run_id,
        project=run.session_id,
        title=issue.title,
        plan=issue.plan,
        state=issue.state,
        version=issue.version,
        next_step=_next(ahead_of(following)) if isinstance(following, Step) else None,
        lock=None if lock is None else LockShown(run_id=lock.run_id, owner=lock.owner, expires_at=iso(lock.expires_at)),
        facts=issue.facts,
        created_at=iso(issue.created_at),
        created_by=issue.created_by,
    )


def run_shown(run: RunInfo, claimed_at: int | None = None) -> RunShown:
    """`claimed_at` is the start of a run without the attribute `started_at`."""
    attributes = run.attributes
    result = _result(run)
    started: int | None = attributes.get("started_at", claimed_at)
    ended = run.ended_at if started is not None else None
    unfinished: Any = "pending" if run.tick == 0 else "running"
    error = (run.error or {}) if run.is_ended and result is None else {}
    return RunShown(
        run_id=run.run_id,
        issue_id=run.parent_run_id or "",
        status=result.status if result else "failed" if run.is_ended else unfinished,
        loop_status=result.loop_status if result else "failed" if run.is_ended else "active",
        step_number=attributes.get("step"),
        step_type=attributes.get("step_type"),
        state_before=attributes["state_before"],
        state_after=result.state if result else attributes["state_before"] if run.is_ended else None,
        blocker_code=result.blocker if result else None,
        message=result.message if result else f"{error.get('code')}: {error.get('message')}" if error else None,
        next_step=_next(result.ahead) if result else _same_step(attributes) if run.is_ended else None,
        actor=attributes["actor"],
        request_id=attributes["request_id"],
        created_at=iso(run.created_at),
        started_at=None if started is None else iso(started),
        completed_at=None if run.ended_at is None else iso(run.ended_at),
        duration_ms=None if started is None or ended is None else max(ended - started, 0),
    )


def answer_of(run: RunShown) -> RunNextStepAnswer:
    return RunNextStepAnswer(
        request_id=run.request_id,
        issue_id=run.issue_id,
        run_id=run.run_id,
        step_executed=step_of(run),
        next_step=run.next_step,
        loop_status=run.loop_status,
        message=run.message or (None if run.completed_at else f"still running: GET /api/loop/runs/{run.run_id}"),
    )


def step_of(run: RunShown) -> StepExecuted | None:
    """Return the step that the run has executed or is executing; None for a blocked one."""
    if run.step_number is None or run.step_type is None or run.status == "blocked":
        return None
    return StepExecuted(
        step_number=run.step_number,
        step_type=run.step_type,
        status=run.status,
        started_at=run.started_at or run.created_at,
        completed_at=run.completed_at,
        duration_ms=run.duration_ms,
    )


def dry_answer(request_id: str, issue_id: str, run_id: str, found: Result | Step) -> RunNextStepAnswer:
    """Return the response of a dry run."""
    if isinstance(found, Step):
        ahead, status, message = ahead_of(found), "active", f"would execute step {found.number}, {found.type}"
    else:
        ahead, status, message = found.ahead, found.loop_status, found.message or ""
    return RunNextStepAnswer(
        request_id=request_id,
        issue_id=issue_id,
        run_id=run_id,
        next_step=_next(ahead),
        loop_status=status,  # type: ignore[arg-type]
        message=message,
    )


def event_shown(event: Event) -> EventShown:
    assert event.type in TIMELINE
    return EventShown(
        event_id=event.id,
        cursor=event.seq,
        type=event.type,
        occurred_at=iso(event.ts),
        actor=event.actor,
        payload={name: event.payload[name] for name in PAYLOAD if event.payload.get(name) is not None},
    )


def _result(run: RunInfo) -> Result | None:
    return result_of(ChildEnd(run.run_id, run.status, run.output, run.error)) if run.is_ended else None


def _next(ahead: UpcomingStep | None) -> NextStep | None:
    if ahead is None:
        return None
    return NextStep(step_number=ahead.number, step_type=ahead.type, estimated_duration_ms=ahead.estimated_ms)


def _same_step(attributes: dict[str, Any]) -> NextStep | None:
    """Return the execution's own step: it is still the next one if the kernel ended the execution."""
    if "step" not in attributes:
        return None
    return NextStep(step_number=attributes["step"], step_type=attributes["step_type"])
