"""What there is to be seen of issues and their executions, for whoever may see it."""

from collections.abc import Collection

from clogs.loop.errors import refused
from clogs.loop.issues import EXECUTIONS, ISSUES, TIMELINE
from clogs.loop.plans import LoopPlan
from clogs.loop.records import Issue
from clogs.loop.schemas import EventShown, IssueShown, RunShown
from clogs.loop.views import event_shown, issue_shown, run_shown
from ocean import Ocean, RunInfo

Projects = Collection[str] | None
"""Those that somebody may see; None is all of them."""


class LoopQueries:
    """The verbs that only read."""

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
        """Newest first, with the cursor of the next page."""
        asked = projects if project is None else {project} & set(projects if projects is not None else {project})
        found = await ocean.list_runs(
            clog_id=ISSUES,
            session_id=None if asked is None else sorted(asked),
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
        if run is None or not is_execution or not _sees(projects, run):
            raise refused("ISSUE_NOT_FOUND", f"there is no run {run_id!r} of an issue")
        return await self._shown(ocean, run)

    async def list_runs(
        self, ocean: Ocean, issue_id: str, *, limit: int = 50, cursor: str | None = None, projects: Projects = None
    ) -> tuple[list[RunShown], str | None]:
        """The issue's executions, newest first, with the cursor of the next page."""
        await self._read(ocean, issue_id, projects)
        found = await ocean.list_runs(
            clog_id=EXECUTIONS, parent_run_id=issue_id, order="newest", limit=limit, cursor=cursor
        )
        return [await self._shown(ocean, run) for run in found.runs], found.next_cursor

    async def list_events(
        self, ocean: Ocean, issue_id: str, *, limit: int = 50, before: int | None = None, projects: Projects = None
    ) -> list[EventShown]:
        """What has happened to the issue, newest first; the next page is `before` the last one's cursor."""
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
        if run is not None and run.clog_id == ISSUES and _sees(projects, run):
            rows = await self._rows(ocean, [issue_id])
            if issue_id in rows:
                return run, rows[issue_id]
        raise refused("ISSUE_NOT_FOUND", f"there is no issue {issue_id!r}; POST /api/loop/issues makes one")

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


def _sees(projects: Projects, run: RunInfo) -> bool:
    return projects is None or run.session_id in projects
