"""The clog of issues: an issue is an idle run. One commit locks it and creates an execution."""

from typing import Any

from pydantic import BaseModel

from clogs.loop.plans import HOLD, LoopPlan
from clogs.loop.records import Issue, IssueLock, after_execution, order_of, result_of
from ocean import Clog, Ok, Outcome, Refuse, RetryPolicy, Tick

ISSUES = "loop"
EXECUTIONS = "loop.run"
CREATED, BLOCKED, FINISHED, FAILED = "loop_run_created", "loop_run_blocked", "loop_run_finished", "loop_run_failed"
INTENDED, NOTED, RESUMED = "loop_effect_intended", "loop_facts_noted", "loop_issue_resumed"
TIMELINE = (CREATED, INTENDED, BLOCKED, FINISHED, FAILED, NOTED, RESUMED)
ENDS = {"completed": FINISHED, "blocked": BLOCKED, "failed": FAILED}

CONFLICT = "LOOP_CONFLICT"
MOST_ATTEMPTS = 3


class Click(BaseModel):
    """A request for the next step, whose execution gets the id `run_id`.

    `tags` identify a repeat of the request; `version` is the version that the issue must have. Without `takes_kept`, a
    kept result is ignored, because its run was deleted.
    """

    run_id: str
    actor: str
    request_id: str
    tags: tuple[str, ...] = ()
    version: int | None = None
    takes_kept: bool = True


def issue_clog(plans: dict[str, LoopPlan], lock_ms: int, **mounts: Any) -> Clog:
    # An operator may delete issues. Every other change goes through the methods.
    clog = Clog(ISSUES, run_state=Issue, generic=["delete"], **mounts)
    _add_advance(clog)
    _add_create(clog, plans)
    _add_begin(clog, plans, lock_ms)
    _add_changes(clog, plans)
    return clog


def _add_advance(clog: Clog) -> None:
    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        """Take the result of an execution that has ended, for any reason, and remove the lock."""
        issue: Issue | None = (await tick.read(run=True)).run
        child = tick.child
        if issue is None or child is None or issue.lock is None or issue.lock.run_id != child.run_id:
            return Ok()
        result = result_of(child)
        after = after_execution(issue, result, tick.now)
        status = result.status if result else "failed"
        payload = {"runId": child.run_id, "stateBefore": issue.state, "stateAfter": after.state, "step": issue.next}
        if result is not None and result.blocker is not None:
            payload["blockerCode"] = result.blocker
        await tick.emit(ENDS[status], payload)
        await tick.set_attributes(state=after.state)
        await tick.write(run=after)
        return Ok()


def _add_create(clog: Clog, plans: dict[str, LoopPlan]) -> None:
    @clog.method
    async def create(tick: Tick, payload: Any) -> str:
        """Create an issue with its row and return its id."""
        issue_id, plan = payload["issue_id"], plans[payload["plan"]]
        if issue_id is not None and (await tick.read(runs=[issue_id])).runs.get(issue_id) is not None:
            raise Refuse(f"issue {issue_id!r} already exists; choose another id", code=CONFLICT)
        issue = Issue(
            title=payload["title"],
            plan=plan.name,
            state=plan.first.state,
            next=plan.first.number,
            created_at=tick.now,
            created_by=tick.caller.actor or "",
            facts=payload["facts"],
        )
        made = await tick.create_run(
            clog_id=ISSUES,
            run_id=issue_id,
            # Crashes must never end an issue.
            retry=RetryPolicy(max_attempts=None),
            attributes={"state": issue.state},
        )
        await tick.read(runs=[made])
        await tick.write(runs={made: issue})
        return made

    @clog.method
    async def show(tick: Tick, payload: Any) -> dict[str, Any]:
        """Return the rows of several issues by their ids."""
        rows = (await tick.read(runs=payload)).runs
        return {issue_id: row.model_dump(mode="json") for issue_id, row in rows.items() if row is not None}


def _add_begin(clog: Clog, plans: dict[str, LoopPlan], lock_ms: int) -> None:
    @clog.method
    async def begin(tick: Tick, payload: Any) -> dict[str, Any]:
        """Lock the issue and create its execution, or return the run whose result is kept for this request."""
        click = Click.model_validate(payload)
        issue = await _stored_issue(tick)
        kept = [issue.kept_results[tag] for tag in click.tags if tag in issue.kept_results]
        for result in kept if click.takes_kept else ():
            if result.until > tick.now:
                return {"kept": result.run_id}
        _check_unlocked(tick, issue)
        if issue.lock is not None:
            return {"expired": issue.lock.run_id}
        _check_version(tick, issue, click.version)
        step = None if issue.next is None or issue.plan not in plans else plans[issue.plan].find(issue.next)
        expires_at = tick.now + lock_ms
        run_id = await tick.create_run(
            clog_id=EXECUTIONS,
            run_id=click.run_id,
            input=order_of(tick.run_id, issue, click.actor).model_dump(mode="json"),
            notify_parent=True,
            on_parent_end="cancel",
            # The execution ends with the lock: when the lock has expired, the execution has ended too.
            deadline_at=expires_at,
            retry=RetryPolicy(max_attempts=MOST_ATTEMPTS),
            attributes=_attributes(click, issue, step.type if step else None),
        )
        lock = IssueLock(run_id=run_id, owner=click.actor, expires_at=expires_at, tags=click.tags)
        await tick.emit(CREATED, {"runId": run_id, "step": issue.next, "stateBefore": issue.state,
                                  "requestId": click.request_id})  # fmt: skip
        await tick.write(run=issue.model_copy(update={"lock": lock}))
        return {"begun": run_id}


def _add_changes(clog: Clog, plans: dict[str, LoopPlan]) -> None:
    @clog.method
    async def note(tick: Tick, payload: Any) -> int:
        """Store reported facts; null removes one. Return the version."""
        issue = await _stored_issue(tick)
        _check_version(tick, issue, payload["version"])
        merged = issue.facts | payload["facts"]
        facts = {name: value for name, value in merged.items() if value is not None}
        if facts == issue.facts:
            return issue.version
        await tick.emit(NOTED, {"stateBefore": issue.state, "stateAfter": issue.state})
        await tick.write(run=issue.model_copy(update={"facts": facts, "version": issue.version + 1}))
        return issue.version + 1

    @clog.method
    async def resume(tick: Tick, payload: Any) -> int:
        """Continue an issue on hold with the step that failed. Return the version."""
        issue = await _stored_issue(tick)
        _check_unlocked(tick, issue)
        _check_version(tick, issue, payload["version"])
        step = plans[issue.plan].find(issue.failed_step or 0) if issue.plan in plans else None
        if issue.state != HOLD or step is None:
            raise Refuse(f"issue {tick.run_id!r} must be on hold to be resumed; it is {issue.state}", code=CONFLICT)
        change = {"state": step.state, "next": step.number, "failed_step": None, "version": issue.version + 1}
        await tick.emit(RESUMED, {"stateBefore": HOLD, "stateAfter": step.state, "step": step.number})
        await tick.set_attributes(state=step.state)
        await tick.write(run=issue.model_copy(update=change))
        return issue.version + 1


async def _stored_issue(tick: Tick) -> Issue:
    issue: Issue | None = (await tick.read(run=True)).run
    if issue is None:
        raise Refuse(f"there is no issue {tick.run_id!r}", code="ISSUE_NOT_FOUND", http_status=404)
    return issue


def _check_unlocked(tick: Tick, issue: Issue) -> None:
    lock = issue.lock
    if lock is not None and lock.expires_at > tick.now:
        raise Refuse(
            f"issue {tick.run_id!r} is locked by {lock.owner} for run {lock.run_id}; retry when that run has ended",
            code=CONFLICT,
            details={"runId": lock.run_id, "owner": lock.owner, "expiresAt": lock.expires_at},
        )


def _check_version(tick: Tick, issue: Issue, version: int | None) -> None:
    if version is not None and version != issue.version:
        raise Refuse(
            f"issue {tick.run_id!r} is at version {issue.version}, not {version}; read it again",
            code=CONFLICT,
            details={"version": issue.version},
        )


def _attributes(click: Click, issue: Issue, step_type: str | None) -> dict[str, Any]:
    attributes = {"actor": click.actor, "request_id": click.request_id, "state_before": issue.state}
    return attributes | ({} if step_type is None else {"step": issue.next, "step_type": step_type})
