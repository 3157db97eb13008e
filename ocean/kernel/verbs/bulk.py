"""Bulk verbs: one verb for all runs that a query selects, in bounded batches, at a limited rate, with progress.

A batch is listed by one read and executed as single verbs concurrently, which the store groups into transactions. The
list begins with the oldest run and stops at those that existed when the call began, so it ends. Nothing of the walk
is stored: after a crash, repeat the call; a verb that was done before has no second effect.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from math import ceil
from typing import Any, Unpack

import anyio

from ocean.kernel.arguments import UNSET, checked_count, checked_flag, optional_id
from ocean.kernel.new_runs import new_signal
from ocean.kernel.run_query import RunQuery, run_filter, with_statuses
from ocean.kernel.store import Store
from ocean.state.clock import Clock, sleep
from ocean.state.errors import BulkStopped, InvalidValue, OceanError
from ocean.state.filters import RunFilter, Span
from ocean.state.ids import derived_id
from ocean.state.records import ENDED, RunPage, RunStatus
from ocean.state.values import checked_id, shown

LIVE = tuple(status for status in RunStatus if status not in ENDED)
FAILED = (RunStatus.FAILED,)

MOST_BATCH = 1_000
MOST_PER_SECOND = 100_000


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """What a bulk verb has done so far; `errors` counts the `refused` runs by error code."""

    seen: int = 0
    done: int = 0
    refused: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BulkResult(BulkProgress):
    """What a bulk verb has done; `more` means that it stopped at `most` with runs left."""

    more: bool = False


class BulkQuery(RunQuery, total=False):
    """Which runs, and how many at a time."""

    everything: bool
    """Instead of a query: every run."""
    batch: int
    per_second: int | None
    most: int | None
    """Stop after this many runs."""
    on_progress: Callable[[BulkProgress], object] | None
    """Called after every batch, and awaited if it returns an awaitable."""
    actor: str | None


Act = Callable[[str], Awaitable[object]]


class Bulk:
    """The walk of one call. `statuses` apply unless the query names some."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        statuses: tuple[RunStatus, ...] | None,
        *,
        everything: bool = False,
        batch: int = 100,
        per_second: int | None = None,
        most: int | None = None,
        on_progress: Callable[[BulkProgress], object] | None = None,
        actor: str | None = None,
        **query: Unpack[RunQuery],
    ) -> None:
        self._store = store
        self._clock = clock
        self._where = _checked_query(query, statuses, everything)
        self._batch = checked_count(batch, "batch", least=1, most=MOST_BATCH)
        self._per_second = per_second
        if per_second is not None:
            checked_count(per_second, "per_second", least=1, most=MOST_PER_SECOND)
        self._left = None if most is None else checked_count(most, "most", least=1)
        if on_progress is not None and not callable(on_progress):
            raise InvalidValue(f"on_progress must be a function of a BulkProgress, got {shown(on_progress)}")
        self._on_progress = on_progress
        self.actor = optional_id(actor, "actor")
        self._progress = BulkProgress()

    def only_incomplete_ends(self) -> None:
        """Limit the walk to runs that have ended without their last tick."""
        if self._where.end_incomplete is False:
            raise InvalidValue("end_incomplete must be True or absent: only such runs have a last tick to call again")
        self._where = replace(self._where, end_incomplete=True)

    async def run(self, act: Act) -> BulkResult:
        where = _until(self._where, await self._newest_at())
        cursor: str | None = None
        while True:
            began_at = self._clock.now()
            page = await self._page(where, self._size(), cursor)
            if page.runs:
                await self._do([run.run_id for run in page.runs], act)
                await self._report()
            cursor = page.next_cursor
            if cursor is None or self._left == 0:
                done = self._progress
                return BulkResult(done.seen, done.done, done.refused, done.errors, more=cursor is not None)
            await self._pace(began_at, len(page.runs))

    async def _newest_at(self) -> int:
        """Return the time of the newest run, or now. A clock that is ahead of ours may have created runs."""
        newest = (await self._page(RunFilter(), 1, None, is_descending=True)).runs
        return max([self._clock.now(), *(run.created_at for run in newest)])

    async def _page(self, where: RunFilter, size: int, cursor: str | None, *, is_descending: bool = False) -> RunPage:
        try:
            return await self._store.list_runs(where, size, cursor, is_descending)
        except OceanError as error:
            raise self._stopped(error) from error

    def _size(self) -> int:
        return min(size for size in (self._batch, self._per_second, self._left) if size is not None)

    async def _pace(self, began_at: int, count: int) -> None:
        if self._per_second is not None:
            pace = ceil(count * 1_000 / self._per_second)
            await sleep(self._clock, min(began_at + pace - self._clock.now(), pace))

    async def _do(self, run_ids: Sequence[str], act: Act) -> None:
        refusals: list[OceanError] = []
        stops: list[Exception] = []

        async def one(run_id: str) -> None:
            try:
                await act(run_id)
            except Exception as error:
                # A refusal concerns its run; any other error would also occur for the next run.
                is_refusal = isinstance(error, OceanError) and error.http_status < 500
                (refusals if is_refusal else stops).append(error)  # type: ignore[arg-type]

        async with anyio.create_task_group() as group:
            for run_id in run_ids:
                group.start_soon(one, run_id)
        self._count(len(run_ids), refusals, len(stops))
        if stops:
            raise self._stopped(stops[0]) from stops[0]

    def _count(self, seen: int, refusals: Sequence[OceanError], stopped: int) -> None:
        so_far = self._progress
        errors = dict(so_far.errors)
        for refusal in refusals:
            errors[refusal.code] = errors.get(refusal.code, 0) + 1
        done = so_far.done + seen - len(refusals) - stopped
        self._progress = BulkProgress(so_far.seen + seen, done, so_far.refused + len(refusals), errors)
        self._left = None if self._left is None else self._left - seen

    async def _report(self) -> None:
        if self._on_progress is not None:
            result = self._on_progress(self._progress)
            if isawaitable(result):
                await result

    def _stopped(self, error: Exception) -> BulkStopped:
        done = self._progress
        return BulkStopped(f"stopped after {done.done} of {done.seen} runs: {error}", done, error)


class BulkVerbs:
    """The single verb, for each run that the query selects."""

    _store: Store
    _clock: Clock

    async def cancel_runs(self, *, reason: str | None = None, **query: Unpack[BulkQuery]) -> BulkResult:
        """Cancel the runs that the query selects; without a status, those that have not ended."""
        if reason is not None:
            checked_id(reason, "reason", 4_000)
        bulk = Bulk(self._store, self._clock, LIVE, **query)
        return await bulk.run(lambda run_id: self._store.cancel_run(run_id, reason, bulk.actor, None))

    async def signal_runs(
        self,
        *,
        input: Any = UNSET,
        signal_id: str | None = None,
        request_key: str | None = None,
        deliver_at: int | None = None,
        **query: Unpack[BulkQuery],
    ) -> BulkResult:
        """Signal the runs; without a status, those that have not ended. Either id makes a repeat safe."""
        bulk = Bulk(self._store, self._clock, LIVE, **query)
        each_id = _signal_id(signal_id, request_key)
        signal = new_signal("any", input, signal_id=each_id, deliver_at=deliver_at, actor=bulk.actor)
        return await bulk.run(lambda run_id: self._store.deliver_signal(replace(signal, run_id=run_id), None))

    async def retry_runs(self, **query: Unpack[BulkQuery]) -> BulkResult:
        """Retry failed runs as new, each at most once."""
        bulk = Bulk(self._store, self._clock, FAILED, **query)
        return await bulk.run(lambda run_id: self._store.retry_run(run_id, bulk.actor, None))

    async def retry_ends(self, **query: Unpack[BulkQuery]) -> BulkResult:
        """Call the last tick again of those runs of the query that have ended without it."""
        bulk = Bulk(self._store, self._clock, None, **query)
        bulk.only_incomplete_ends()
        return await bulk.run(lambda run_id: self._store.retry_end(run_id, bulk.actor, None))

    async def delete_runs(self, **query: Unpack[BulkQuery]) -> BulkResult:
        """Delete the runs with their children; without a status, whatever it is."""
        bulk = Bulk(self._store, self._clock, None, **query)
        return await bulk.run(lambda run_id: self._store.delete_run(run_id, bulk.actor, None))


def _checked_query(query: RunQuery, statuses: tuple[RunStatus, ...] | None, everything: bool) -> RunFilter:
    where = run_filter(**query)
    checked_flag(everything, "everything")
    if where.is_everything and not everything:
        raise InvalidValue("the query must not be empty: it would select every run; for that, pass everything=True")
    if everything and not where.is_everything:
        raise InvalidValue("everything=True must not be combined with a query; leave one of them out")
    return where if statuses is None else with_statuses(where, statuses)


def _until(where: RunFilter, newest_at: int) -> RunFilter:
    """Limit the query to runs that exist now: runs created meanwhile are not selected."""
    low, high = where.created.low, where.created.high
    return replace(where, created=Span(low, newest_at + 1 if high is None else min(high, newest_at + 1)))


def _signal_id(signal_id: str | None, request_key: str | None) -> str:
    """Return the signal id by which a run recognises a repeat: given, or derived from the request key."""
    if (signal_id is None) == (request_key is None):
        raise InvalidValue(
            "signal_runs needs either a signal_id or a request_key: a repeat with it sends no second signal"
        )
    if signal_id is not None:
        return checked_id(signal_id, "signal_id")
    return derived_id("signal_runs", checked_id(request_key, "request_key"))
