"""Poke, and wait for what comes of it: `advance`, `result`, `settle`."""

from collections.abc import Collection, Mapping
from typing import Any

from ocean.clog.clog import Registry
from ocean.kernel.arguments import checked_count, checked_flag, checked_names
from ocean.kernel.coordinator import DEFAULT_CONCURRENCY, Coordinator
from ocean.kernel.dry_run import dry_run_tick
from ocean.kernel.metrics import Observations
from ocean.kernel.poke_sources import PokeSource, checked_source
from ocean.kernel.runtime import Runtime
from ocean.kernel.store import Store
from ocean.state.clock import Clock
from ocean.state.dry_run_result import DryRun
from ocean.state.errors import InvalidValue, ResultTimeout, RunFailed, RunNotFound
from ocean.state.outcomes import note_of, sentence_of
from ocean.state.records import AdvanceResult, Agenda, RunInfo, RunStatus, TickResult
from ocean.state.values import checked_id

POKE_MS = 1_000


class AdvanceVerbs:
    """The verbs that advance runs, or wait while they are advanced."""

    instance_id: str
    observed: Observations
    _store: Store
    _clock: Clock
    _registry: Registry
    _runtime: Runtime
    coordinator: Coordinator

    @property
    def at_work(self) -> int:
        """The number of ticks whose handlers are running in this process."""
        return self._runtime.keeper.count

    async def advance(
        self,
        *,
        budget_ms: int = 1_000,
        hard_ms: int | None = None,
        max_ticks: int | None = None,
        clog_ids: Collection[str] | None = None,
        run_id: str | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        dry_run: bool = False,
        source: PokeSource = "python",
    ) -> AdvanceResult:
        """Advance what is due. `budget_ms` limits claiming; `hard_ms` also stops handlers and gives their runs back.

        `dry_run=True` returns the next tick of the named run and changes nothing. `source` names the kind of caller.
        """
        checked_count(budget_ms, "budget_ms")
        checked_count(concurrency, "concurrency", least=1)
        checked_source(source)
        for name, value in (("hard_ms", hard_ms), ("max_ticks", max_ticks)):
            if value is not None:
                checked_count(value, name)
        for clog_id in checked_names(clog_ids, "clog_ids"):
            self._registry.get(clog_id)
        if run_id is not None:
            await self._require(run_id)
        if checked_flag(dry_run, "dry_run"):
            return await self._dry_run(run_id, max_ticks, clog_ids, hard_ms)
        poke = self.coordinator.new_poke(
            budget_ms if hard_ms is None else min(budget_ms, hard_ms),
            source,
            run_id=run_id,
            clog_ids=clog_ids,
            max_ticks=max_ticks,
            concurrency=concurrency,
        )
        return await self._advanced(await self.coordinator.perform(poke, hard_ms))

    async def _dry_run(
        self, run_id: str | None, max_ticks: int | None, clog_ids: Collection[str] | None, hard_ms: int | None
    ) -> AdvanceResult:
        if run_id is None:
            raise InvalidValue("a dry run must name its run with run_id")
        if max_ticks is not None or clog_ids is not None:
            raise InvalidValue("max_ticks and clog_ids must not be given for a dry run, which names its run")
        return await self._advanced([], await dry_run_tick(self._runtime, run_id, hard_ms))

    async def result(self, run_id: str, *, timeout_ms: int = 30_000) -> Any:
        """Return the run's output once it is done. While waiting, poke the run and whatever else is due here."""
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            seen = self._store.commits_seen()
            run = await self._require(run_id)
            if run.status is RunStatus.DONE:
                return run.output
            if run.status is RunStatus.FAILED:
                raise _failure(run)
            if until <= self._clock.now():
                why = f"run {run_id} is {run.status} after {timeout_ms} ms; it goes on"
                raise with_last_error(ResultTimeout(why, run_id=run_id), run.error)
            await self._moved(run, seen, until)

    async def settle(self, run_id: str, *, timeout_ms: int = 1_000) -> RunInfo:
        """Poke until the run `is_settled` (idle, waiting or ended, with nothing due), at most `timeout_ms`; return it.

        A handler that has started runs to its own time limit, and this waits for it.
        """
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            seen = self._store.commits_seen()
            run = await self._require(run_id)
            if run.is_settled(self._clock.now()) or until <= self._clock.now():
                return run
            await self._moved(run, seen, until)

    async def _moved(self, run: RunInfo, seen: int, until: int) -> None:
        """Have the run called. If it is active or cannot be called, wait for the next commit or due time."""
        now, due = self._clock.now(), run.due_at
        if self.coordinator.has_ticker:
            due = now + POKE_MS
        elif run.status is not RunStatus.ACTIVE or due is None or due <= now:
            if await self.coordinator.move(run.run_id, until - now, "wait", seen):
                return
            # This run may wait for another one, as a parent or behind a key.
            poked = await self.advance(budget_ms=min(max(until - self._clock.now(), 0), POKE_MS), source="wait")
            if poked.outcomes:
                return
            now = self._clock.now()
            due = max(min(time for time in (due, poked.next_wake_at, until) if time is not None), now + 50)
        await self._runtime.commit_or_time(seen, max(min(until, due) - now, 0))

    async def agenda(self) -> Agenda:
        """Return what is due for the clogs of this instance, without advancing any of it."""
        return await self._store.agenda(self._runtime.claimable(None).keys())

    async def _advanced(self, results: list[TickResult], shown: DryRun | None = None) -> AdvanceResult:
        agenda = await self.agenda()
        return AdvanceResult(
            tuple(results),
            agenda.due_now,
            agenda.next_wake_at,
            agenda.oldest_due_age_ms,
            agenda.unclaimable,
            shown,
        )

    def commits_seen(self) -> int:
        """A number that rises with every commit this process has made or noticed; for `next_change`."""
        return self._store.commits_seen()

    async def next_change(self, seen: int, *, wait_ms: int, look_ms: int = 100) -> int:
        """Wait until `commits_seen` is above `seen`, at most `wait_ms`, and return it."""
        await self._runtime.commit_or_time(seen, wait_ms, look_ms)
        return self._store.commits_seen()

    async def _require(self, run_id: str) -> RunInfo:
        run = await self._store.get_run(checked_id(run_id, "run_id"))
        if run is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run


def _failure(run: RunInfo) -> RunFailed:
    error = run.error or {}
    failure = RunFailed(f"run {run.run_id} failed: {error.get('message')}", error, run_id=run.run_id)
    if note := note_of(error):
        failure.add_note(note)
    return failure


def with_last_error(failure: ResultTimeout, error: Mapping[str, Any] | None) -> ResultTimeout:
    """Return the failure with a note of the run's last error and its traceback."""
    if error is not None:
        failure.add_note("\n".join(filter(None, (f"the last error: {sentence_of(error)}", note_of(error)))))
    return failure
