"""The read verbs of the Loop API: issues, their executions and events, limited to the projects of the caller."""

from collections.abc import Collection

from clogs.loop.errors import refused
from clogs.loop.issues import EXECUTIONS, ISSUES, TIMELINE
from clogs.loop.plans import LoopPlan
from clogs.loop.records import Issue
from clogs.loop.schemas import EventShown, IssueShown, RunShown
from clogs.loop.views import event_shown, issue_shown, run_shown
from ocean import Ocean, RunInfo

Projects = Collection[str] | None
"""The projects that the caller may read; None for all."""


class LoopQueries:
    """The verbs that only read, a base of `Loop`."""

    def __init__(self, plans: dict[str, LoopPlan]) -> None:
        self.plans = plans

    async def get_issue(self, ocean: Ocean, issue_id: str, *, projects: Projects = None) -> IssueShown:
        run, issue = await self._read(ocean, issue_id, projects)
        return issue_shown(run, issue, self.plans, ocean.clock.now())

    async def list_issues(
        self,
        ocean: Ocean,
        *,
        project: str | None = None,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        projects: Projects = None,
    ) -> tuple[list[IssueShown], str | None]:
        """Return issues, newest first, and the cursor of the next page."""
        sessions = projects if project is None else {project} & set(projects if projects is not None else {project})
        found = await ocean.list_runs(
            clog_id=ISSUES,
            session_id=None if sessions is None else sorted(sessions),
            attributes=None if state is None else {"state": state},
            order="newest",
            limit=limit,
            cursor=cursor,
        )
        rows = await self._rows(ocean, [run.run_id for run in found.runs])
        now = ocean.clock.now()
        shown = [issue_shown(run, rows[run.run_id], self.plans, now) for run in found.runs if run.run_id in rows]
        return shown, found.next_cursor

    async def get_run(self, ocean: Ocean, run_id: str, *, projects: Projects = None) -> RunShown:
        run = await ocean.get_run(run_id)
        is_execution = run is not None and run.clog_id == EXECUTIONS and run.parent_run_id is not None
        if run is None or not is_execution or not _may_read(projects, run):
            raise refused("ISSUE_NOT_FOUND", f"there is no execution {run_id!r}")
        return await self._shown(ocean, run)

    async def list_runs(
        self, ocean: Ocean, issue_id: str, *, limit: int = 50, cursor: str | None = None, projects: Projects = None
    ) -> tuple[list[RunShown], str | None]:
        """Return the issue's executions, newest first, and the cursor of the next page."""
        await self._read(ocean, issue_id, projects)
        found = await ocean.list_runs(
            clog_id=EXECUTIONS, parent_run_id=issue_id, order="newest", limit=limit, cursor=cursor
        )
        return [await self._shown(ocean, run) for run in found.runs], found.next_cursor

    async def list_events(
        self, ocean: Ocean, issue_id: str, *, limit: int = 50, before: int | None = None, projects: Projects = None
    ) -> list[EventShown]:
        """Return the issue's events, newest first; the next page is `before` the cursor of the last one."""
        run, _ = await self._read(ocean, issue_id, projects)
        found = await ocean.read_newest_events(
            session_id=run.session_id,
            correlation_id=run.correlation_id,
            types=TIMELINE,
            before=before,
            limit=limit,
        )
        return [event_shown(event) for event in found]

    async def _read(self, ocean: Ocean, issue_id: str, projects: Projects) -> tuple[RunInfo, Issue]:
        run = await ocean.get_run(issue_id)
        if run is not None and run.clog_id == ISSUES and _may_read(projects, run):
            rows = await self._rows(ocean, [issue_id])
            if issue_id in rows:
                return run, rows[issue_id]
        raise refused("ISSUE_NOT_FOUND", f"there is no issue {issue_id!r}; create one with POST /api/loop/issues")

    async def _rows(self, ocean: Ocean, issue_ids: list[str]) -> dict[str, Issue]:
        if not issue_ids:
            return {}
        rows = await ocean.call_clog(clog_id=ISSUES, method="show", payload=issue_ids)
        return {issue_id: Issue.model_validate(row) for issue_id, row in rows.items()}

    async def _shown(self, ocean: Ocean, run: RunInfo) -> RunShown:
        if run.tick == 0 or "started_at" in run.attributes:
            return run_shown(run)
        ticks = await ocean.list_ticks(run.run_id, limit=1)
        return run_shown(run, ticks[0].claimed_at if ticks else None)


def _may_read(projects: Projects, run: RunInfo) -> bool:
    return projects is None or run.session_id in projects
