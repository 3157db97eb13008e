"""The Loop API in Python. The routes call these verbs and add no rules of their own."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, get_args

from clogs.loop.errors import errors, refused
from clogs.loop.executions import execution_clog, resolve, sight_of
from clogs.loop.issues import CONFLICT, ISSUES, Click, issue_clog
from clogs.loop.plans import LoopPlan, Step
from clogs.loop.queries import LoopQueries, Projects
from clogs.loop.records import Result, StepOrder, ahead_of, order_of
from clogs.loop.routes import mount
from clogs.loop.schemas import IssueShown, Mode, RunNextStepAnswer, RunShown
from clogs.loop.views import answer_of, dry_answer
from ocean import Caller, Clog, InvalidValue, Ocean, RunStatus

LOCK_MS = 300_000
WAIT_MS = 30_000
"""How long a request waits for an execution that another process runs, or that waits for its next attempt."""


class Loop(LoopQueries):
    """Plans and the two clogs that execute them. The first plan is the default of new issues."""

    def __init__(self, *plans: LoopPlan, lock_ms: int = LOCK_MS) -> None:
        super().__init__({plan.name: plan for plan in plans})
        if not plans or len(self.plans) < len(plans):
            raise InvalidValue(
                f"a Loop must have at least one plan, and their names must differ; got {[plan.name for plan in plans]}"
            )
        self.issues = issue_clog(self.plans, lock_ms, errors=errors)
        self.executions = execution_clog(self.plans)
        mount(self)

    @property
    def clogs(self) -> list[Clog]:
        """For `Ocean.open(clogs=…)`."""
        return [self.issues, self.executions]

    async def create_issue(
        self,
        ocean: Ocean,
        title: str,
        *,
        actor: str,
        issue_id: str | None = None,
        project: str = "default",
        plan: str | None = None,
        facts: Mapping[str, Any] | None = None,
        request_key: str | None = None,
    ) -> IssueShown:
        """Create an issue at the start of its plan. A repeat with the same `request_key` returns the first issue."""
        name = next(iter(self.plans)) if plan is None else plan
        if name not in self.plans:
            raise refused("INVALID_REQUEST", f"there is no plan {name!r}; available: {', '.join(self.plans)}")
        made = await ocean.call_clog(
            clog_id=ISSUES,
            session_id=project,
            method="create",
            payload={"issue_id": issue_id, "title": title, "plan": name, "facts": {**(facts or {})}},
            caller=Caller(actor),
            request_key=request_key,
        )
        return await self.get_issue(ocean, made)

    async def note_facts(
        self,
        ocean: Ocean,
        issue_id: str,
        facts: Mapping[str, Any],
        *,
        actor: str,
        if_match: int | None = None,
        projects: Projects = None,
    ) -> IssueShown:
        """Store facts, which gates read; None removes a fact."""
        return await self._change(ocean, issue_id, "note", {"facts": {**facts}}, actor, if_match, projects)

    async def resume(
        self, ocean: Ocean, issue_id: str, *, actor: str, if_match: int | None = None, projects: Projects = None
    ) -> IssueShown:
        """Continue an issue on hold with the step that failed."""
        return await self._change(ocean, issue_id, "resume", {}, actor, if_match, projects)

    async def run_next_step(
        self,
        ocean: Ocean,
        issue_id: str,
        *,
        actor: str,
        mode: Mode = "execute",
        request_id: str | None = None,
        idempotency_key: str | None = None,
        if_match: int | None = None,
        projects: Projects = None,
    ) -> RunNextStepAnswer:
        """Execute the next step of the issue's plan and return the result; in a dry run, what would be executed."""
        if mode not in get_args(Mode):
            raise refused("INVALID_REQUEST", f"mode must be 'execute' or 'dryRun', got {mode!r}")
        request_id = request_id or ocean.new_id()
        run, issue = await self._read(ocean, issue_id, projects)
        if mode == "dryRun":
            if if_match not in (None, issue.version):
                raise refused(CONFLICT, f"issue {issue_id!r} is at version {issue.version}, not {if_match}")
            found = await self._dry_run(order_of(issue_id, issue, actor), run.session_id, ocean.clock.now())
            return dry_answer(request_id, issue_id, ocean.new_id(), found)
        if run.status is not RunStatus.IDLE:
            # An execution has ended, and the issue has not taken its result yet.
            await ocean.settle(issue_id, timeout_ms=WAIT_MS)
        tags = [_tag("key", actor, idempotency_key)] if idempotency_key is not None else []
        tags += [_tag("version", actor, if_match)] if if_match is not None else []
        # A new id sorts after all earlier ones, so lists are in order within a millisecond.
        click = Click(run_id=ocean.new_id(), actor=actor, request_id=request_id, tags=tuple(tags), version=if_match)
        return answer_of(await self._execute(ocean, issue_id, click))

    async def _execute(self, ocean: Ocean, issue_id: str, click: Click) -> RunShown:
        begun = await self._begin(ocean, issue_id, click)
        if "expired" in begun:
            await self._end_expired(ocean, issue_id, begun["expired"])
            begun = await self._begin(ocean, issue_id, click)
        if "expired" in begun:
            raise refused(CONFLICT, f"the lock of issue {issue_id!r} has expired and is being removed; retry")
        if "kept" in begun:
            kept = await ocean.get_run(begun["kept"])
            if kept is not None:
                return await self._shown(ocean, kept)
            return await self._execute(ocean, issue_id, click.model_copy(update={"takes_kept": False}))
        run = await ocean.settle(begun["begun"], timeout_ms=WAIT_MS)
        if run.is_ended:
            await ocean.settle(issue_id, timeout_ms=WAIT_MS)
        return await self._shown(ocean, run)

    async def _begin(self, ocean: Ocean, issue_id: str, click: Click) -> dict[str, str]:
        begun: dict[str, str] = await ocean.call_clog(
            run_id=issue_id, method="begin", payload=click.model_dump(mode="json"), caller=Caller(click.actor)
        )
        return begun

    async def _end_expired(self, ocean: Ocean, issue_id: str, run_id: str) -> None:
        """End an execution whose deadline, the expiry of the lock, has passed. Its end removes the lock."""
        await ocean.advance(run_id=run_id, budget_ms=WAIT_MS)
        await ocean.settle(issue_id, timeout_ms=WAIT_MS)

    async def _dry_run(self, order: StepOrder, project: str, now: int) -> Result | Step:
        plan = self.plans.get(order.plan)
        try:
            found = await resolve(plan, order, sight_of(order, project, now))
        except Exception as error:
            step = plan.find(order.next or 0) if plan else None
            message = f"{type(error).__name__}: {error}"
            return Result(
                status="failed",
                loop_status="failed",
                state=order.state,
                next=order.next,
                ahead=ahead_of(step),
                message=message,
            )
        return found[0] if isinstance(found, tuple) else found

    async def _change(
        self,
        ocean: Ocean,
        issue_id: str,
        method: str,
        payload: dict[str, Any],
        actor: str,
        version: int | None,
        projects: Projects,
    ) -> IssueShown:
        await self._read(ocean, issue_id, projects)
        versioned = payload | {"version": version}
        await ocean.call_clog(run_id=issue_id, method=method, payload=versioned, caller=Caller(actor))
        return await self.get_issue(ocean, issue_id)


def _tag(kind: str, actor: str, value: str | int) -> str:
    """Return a short tag for any value, different for each actor."""
    return hashlib.sha256(json.dumps([kind, actor, value]).encode()).hexdigest()
