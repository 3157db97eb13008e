"""The Loop API in Python. The routes call these verbs, and have no rules of their own."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, get_args

from clogs.loop.errors import errors, refused
from clogs.loop.executions import execution_clog, resolved, sight_of
from clogs.loop.issues import CONFLICT, ISSUES, Click, issue_clog
from clogs.loop.plans import LoopPlan, Step
from clogs.loop.queries import LoopQueries, Projects
from clogs.loop.records import Result, StepOrder, ahead_of, order_of
from clogs.loop.routes import mount
from clogs.loop.schemas import IssueShown, Mode, RunNextStepAnswer, RunShown
from clogs.loop.views import answer_of, dry_answer
from ocean import Caller, Clog, InvalidValue, Ocean, RunStatus

LOCK_MS = 300_000
PATIENCE_MS = 30_000
"""How long a click waits for an execution that another process works on, or that waits for its next attempt."""


class Loop(LoopQueries):
    """Plans, and the two clogs that carry them out. The first plan is that of issues which name none."""

    def __init__(self, *plans: LoopPlan, lock_ms: int = LOCK_MS) -> None:
        super().__init__({plan.name: plan for plan in plans})
        if not plans or len(self.plans) < len(plans):
            raise InvalidValue(f"a Loop has plans, each with a name of its own; got {[plan.name for plan in plans]}")
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
        """A new issue at the beginning of its plan. With a `request_key` a repeat answers the first one."""
        name = next(iter(self.plans)) if plan is None else plan
        if name not in self.plans:
            raise refused("INVALID_REQUEST", f"there is no plan {name!r}; there are {[*self.plans]}")
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
        """What gates look at, and others find out; None forgets a fact."""
        return await self._change(ocean, issue_id, "note", {"facts": {**facts}}, actor, if_match, projects)

    async def resume(
        self, ocean: Ocean, issue_id: str, *, actor: str, if_match: int | None = None, projects: Projects = None
    ) -> IssueShown:
        """From hold back to the step that has failed."""
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
        """Execute the next step of the issue's plan and answer how it went; or what would be, in a dry run."""
        if mode not in get_args(Mode):
            raise refused("INVALID_REQUEST", f"mode is 'execute' or 'dryRun', got {mode!r}")
        request_id = request_id or ocean.new_id()
        run, issue = await self._read(ocean, issue_id, projects)
        if mode == "dryRun":
            if if_match not in (None, issue.version):
                raise refused(CONFLICT, f"issue {issue_id!r} is at version {issue.version}, not {if_match}")
            found = await self._rehearsed(order_of(issue_id, issue, actor), run.session_id, ocean.clock.now())
            return dry_answer(request_id, issue_id, ocean.new_id(), found)
        if run.status is not RunStatus.IDLE:
            # An execution has ended, and the issue has not been told yet.
            await ocean.settle(issue_id, timeout_ms=PATIENCE_MS)
        tags = [_tag("key", actor, idempotency_key)] if idempotency_key is not None else []
        tags += [_tag("version", actor, if_match)] if if_match is not None else []
        # A new id is above all earlier ones, so that lists are in order within a millisecond.
        click = Click(run_id=ocean.new_id(), actor=actor, request_id=request_id, tags=tuple(tags), version=if_match)
        return answer_of(await self._executed(ocean, issue_id, click))

    async def _executed(self, ocean: Ocean, issue_id: str, click: Click) -> RunShown:
        told = await self._begin(ocean, issue_id, click)
        if "expired" in told:
            await self._end_expired(ocean, issue_id, told["expired"])
            told = await self._begin(ocean, issue_id, click)
        if "expired" in told:
            raise refused(CONFLICT, f"issue {issue_id!r} is being freed, its lock has run out; ask again")
        if "kept" in told:
            kept = await ocean.get_run(told["kept"])
            if kept is not None:
                return await self._shown(ocean, kept)
            return await self._executed(ocean, issue_id, click.model_copy(update={"takes_kept": False}))
        run = await ocean.settle(told["begun"], timeout_ms=PATIENCE_MS)
        if run.is_ended:
            await ocean.settle(issue_id, timeout_ms=PATIENCE_MS)
        return await self._shown(ocean, run)

    async def _begin(self, ocean: Ocean, issue_id: str, click: Click) -> dict[str, str]:
        told: dict[str, str] = await ocean.call_clog(
            run_id=issue_id, method="begin", payload=click.model_dump(mode="json"), caller=Caller(click.actor)
        )
        return told

    async def _end_expired(self, ocean: Ocean, issue_id: str, run_id: str) -> None:
        """The lock has run out, and so has the execution's time: any poke ends it, and that frees the issue."""
        await ocean.advance(run_id=run_id, budget_ms=PATIENCE_MS)
        await ocean.settle(issue_id, timeout_ms=PATIENCE_MS)

    async def _rehearsed(self, order: StepOrder, project: str, now: int) -> Result | Step:
        plan = self.plans.get(order.plan)
        try:
            found = await resolved(plan, order, sight_of(order, project, now))
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
        said = payload | {"version": version}
        await ocean.call_clog(run_id=issue_id, method=method, payload=said, caller=Caller(actor))
        return await self.get_issue(ocean, issue_id)


def _tag(kind: str, actor: str, value: str | int) -> str:
    """Short, whatever was sent, and an actor's own."""
    return hashlib.sha256(json.dumps([kind, actor, value]).encode()).hexdigest()
