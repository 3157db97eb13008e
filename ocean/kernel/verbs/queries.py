"""Verbs that only read: runs, their ticks and inputs, and why a run is not moving."""

from dataclasses import replace
from typing import Any, Unpack

from ocean.clog.clog import Registry
from ocean.kernel.arguments import checked_count, checked_limit, feed_filter
from ocean.kernel.instances import Instances
from ocean.kernel.run_query import RunOrder, RunQuery, is_descending, run_filter
from ocean.kernel.runtime import Runtime
from ocean.kernel.store import Store
from ocean.kernel.store.claims import RowsAsk
from ocean.state.clock import Clock
from ocean.state.effects import RowKey
from ocean.state.eligibility import Explanation, Hold, holds, is_asleep, with_explanation, with_last_error
from ocean.state.errors import RunNotFound
from ocean.state.instances import with_holder
from ocean.state.outcomes import sentence_of
from ocean.state.records import Input, Run, RunCount, RunInfo, RunOwner, RunPage, RunStatus, TickInfo
from ocean.state.tracebacks import without_traceback
from ocean.state.transitions import due_at
from ocean.state.values import checked_id


class QueryVerbs:
    _store: Store
    _clock: Clock
    _registry: Registry
    _runtime: Runtime
    instances: Instances

    async def get_run(self, run_id: str) -> RunInfo | None:
        """Return the run as it is now, or None if there is none."""
        return await self._store.get_run(checked_id(run_id, "run_id"))

    async def list_runs(
        self,
        *,
        order: RunOrder | None = None,
        limit: int = 100,
        cursor: str | None = None,
        **query: Unpack[RunQuery],
    ) -> RunPage:
        """Return a page of the runs that the query selects. Their errors have a place, but no traceback."""
        where = run_filter(**query)
        page = await self._store.list_runs(where, checked_limit(limit), cursor, is_descending(where, order))
        return replace(page, runs=tuple(_without_traceback(run) for run in page.runs))

    async def count_runs(self, *, cap: int = 10_000, **query: Unpack[RunQuery]) -> RunCount:
        """Count the runs that the query selects, at most up to `cap`."""
        where = run_filter(**query)
        return await self._store.count_runs(where, checked_count(cap, "cap", least=1, most=1_000_000))

    async def list_ticks(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[TickInfo]:
        """Return the run's ticks in order; `after` is the last tick number already seen."""
        after = checked_count(after, "after")
        return await self._store.list_ticks(checked_id(run_id, "run_id"), after, checked_limit(limit))

    async def list_inputs(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[Input]:
        """Return the run's inbox in order of arrival, delivered or not; `after` is the last number already seen."""
        after = checked_count(after, "after")
        return await self._store.list_inputs(checked_id(run_id, "run_id"), after, checked_limit(limit))

    async def standing(self, run_id: str) -> RunOwner | None:
        """Return the session and clog of a run, and what the clog allows; None if there is no such run."""
        return await self._store.standing(checked_id(run_id, "run_id"))

    async def has_events(self, run_id: str, session_id: str) -> bool:
        """Return whether the session's log has an event of such a run, which may have been deleted."""
        where = feed_filter(run_id, session_id, None, (), None)
        return bool(await self._store.read_events(where, 0, 1))

    async def explain(self, run_id: str) -> Explanation:
        """Explain why the run is not moving, by the rules of the claim. No holds: the next `advance` here takes it."""
        found = await self._store.survey(checked_id(run_id, "run_id"), self._runtime.claimable(None))
        if found is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        run, around = found
        found_holds = holds(run, around, self._clock.now())
        if run.locked_by is not None and not run.leased and any(hold.code == "locked" for hold in found_holds):
            holder = await self.instances.holder(run.locked_by)
            # If it is gone, its locks were released just now.
            run, around = await self._store.survey(run_id, self._runtime.claimable(None)) or found
            found_holds = holds(run, around, self._clock.now())
            found_holds = with_holder(found_holds, run, holder, self.instances.here, self._clock.now())
        found_holds = await self._with_clog_explanation(run, found_holds)
        error = await self._last_error(run)
        if error is not None:
            found_holds = with_last_error(found_holds, sentence_of(error))
        return Explanation(run_id, run.status, due_at(run), found_holds, error)

    async def _last_error(self, run: Run) -> dict[str, Any] | None:
        if not run.attempt and run.ending is None and run.status is not RunStatus.FAILED:
            return None
        info = await self._store.get_run(run.run_id)
        return None if info is None else info.error

    async def _with_clog_explanation(self, run: Run, found: tuple[Hold, ...]) -> tuple[Hold, ...]:
        """Add the clog's own explanation to the holds of an idle or waiting run, if the clog is registered here."""
        clog = self._registry.get(run.clog_id) if run.clog_id in self._registry else None
        if clog is None or clog.explainer is None or not any(is_asleep(hold) for hold in found):
            return found
        key = RowKey("run", run.clog_id, run_id=run.run_id)
        read = await self._store.read_rows(RowsAsk(run.clog_id, run.session_id, run.run_id, (key,)))
        return with_explanation(found, clog.explain_row(read.rows[key].text))


def _without_traceback(run: RunInfo) -> RunInfo:
    return run if run.error is None else replace(run, error=without_traceback(run.error))
