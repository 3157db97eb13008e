"""The store's verbs about clogs, runs, their inputs and their concurrency keys."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ocean.kernel.store.runs import Request
from ocean.state.effects import NewRun, NewSignal
from ocean.state.eligibility import Surroundings
from ocean.state.ends import refuse_if_ended
from ocean.state.filters import RunFilter
from ocean.state.outcomes import ErrorInfo
from ocean.state.records import (
    DEFAULT_QUEUE,
    ClogRecord,
    Ending,
    Input,
    KeyInfo,
    Run,
    RunCount,
    RunInfo,
    RunPage,
    SignalReceipt,
    TickInfo,
)
from ocean.state.transitions import paused, resumed
from ocean.state.values import encode
from ocean.stores.shared.rows import clog_from, input_from, tick_from
from ocean.stores.sqlite import claiming, creating, deleting, inbox, keys, listing, retry_as_new
from ocean.stores.sqlite.crashes import as_if_noted
from ocean.stores.sqlite.ending import request_end, retry_end
from ocean.stores.sqlite.engine import executor
from ocean.stores.sqlite.engine.executor import UnitExecutor
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.run_info import info


class SqliteRunStore(UnitExecutor):
    """Verbs about clogs, runs and concurrency keys."""

    async def register_clogs(self, clogs: Sequence[ClogRecord]) -> None:
        def act(u: Unit) -> None:
            for clog in clogs:
                facts: dict[str, Any] = {
                    "clog_id": clog.clog_id,
                    "version": clog.version,
                    "has_on_end": clog.has_on_end,
                    "allows": encode(list(clog.allows)),
                    "end_retry": encode(clog.end_retry.as_json()),
                    "grace_ms": clog.cancel_grace_ms,
                    "now": u.now,
                }
                before = u.clog(clog.clog_id)
                if clog.external and before is not None and not before.external:
                    u.do("queue_older_runs", clog_id=clog.clog_id, queue=DEFAULT_QUEUE)
                if clog.has_handler or clog.external:
                    u.do("register_clog", **facts, external=clog.external, takes_all_inputs=clog.takes_all_inputs)
                else:
                    u.do("register_methods", **facts)

        await self._write(act)

    async def list_clogs(self) -> list[ClogRecord]:
        return await self._read(lambda u: [clog_from(row) for row in u.all("list_clogs")])

    async def create_run(self, new: NewRun, request: Request | None) -> RunInfo:
        def act(u: Unit) -> RunInfo:
            return executor.once(u, request, RunInfo, lambda: creating.create_and_show(u, new))

        return await self._write(act)

    async def retry_run(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        def act(u: Unit) -> RunInfo:
            return executor.once(u, request, RunInfo, lambda: info(u, retry_as_new.retry_as_new(u, run_id, actor)))

        return await self._write(act)

    async def find_run(self, clog_id: str, session_id: str, dedupe_key: str) -> tuple[str, str] | None:
        return await self._read(lambda u: creating.holder_of_key(u, clog_id, session_id, dedupe_key))

    async def deliver_signal(self, signal: NewSignal, request: Request | None) -> SignalReceipt:
        def act(u: Unit) -> SignalReceipt:
            return executor.once(u, request, SignalReceipt, lambda: inbox.deliver(u, signal))

        return await self._write(act)

    async def get_run(self, run_id: str) -> RunInfo | None:
        def act(u: Unit) -> RunInfo | None:
            run = u.find(run_id)
            return None if run is None else info(u, run)

        return await self._read(act)

    async def survey(self, run_id: str, clog_ids: Collection[str]) -> tuple[Run, Surroundings] | None:
        def act(u: Unit) -> tuple[Run, Surroundings] | None:
            run = u.find(run_id)
            return None if run is None else (as_if_noted(u, run), claiming.surroundings(u, run, clog_ids))

        return await self._read(act)

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        return await self._read(lambda u: listing.list_runs(u, where, limit, cursor, is_descending))

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount:
        return await self._read(lambda u: listing.count_runs(u, where, cap))

    async def list_ticks(self, run_id: str, after: int, limit: int) -> list[TickInfo]:
        def act(u: Unit) -> list[TickInfo]:
            u.run(run_id)
            return [tick_from(row) for row in u.all("list_ticks", run_id=run_id, after=after, limit=limit)]

        return await self._read(act)

    async def list_inputs(self, run_id: str, after: int, limit: int) -> list[Input]:
        def act(u: Unit) -> list[Input]:
            u.run(run_id)
            return [input_from(row) for row in u.all("list_inputs", run_id=run_id, after=after, limit=limit)]

        return await self._read(act)

    async def due_inputs(self, run_id: str, limit: int) -> list[Input]:
        def act(u: Unit) -> list[Input]:
            return [input_from(row) for row in u.all("due_inputs", run_id=run_id, now=u.now, limit=limit)]

        return await self._read(act)

    async def set_limit(self, key: str, limit: int, actor: str | None, request: Request | None) -> KeyInfo:
        def change(u: Unit) -> KeyInfo:
            return executor.once(u, request, KeyInfo, lambda: keys.set_limit(u, key, limit, actor))

        return await self._write(change)

    async def get_key(self, key: str) -> KeyInfo:
        return await self._read(lambda u: keys.key_info(u, key))

    async def list_keys(self, after: str, limit: int) -> list[KeyInfo]:
        return await self._read(lambda u: keys.list_keys(u, after, limit))

    async def cancel_run(self, run_id: str, reason: str | None, actor: str | None, request: Request | None) -> RunInfo:
        def cancel(u: Unit) -> RunInfo:
            run = u.run(run_id)
            if run.ending is None:
                refuse_if_ended(run)
                request_end(u, run_id, Ending.CANCEL, ErrorInfo("cancelled", reason or "cancelled"), actor=actor)
            u.flush()
            return info(u, u.run(run_id))

        return await self._write(lambda u: executor.once(u, request, RunInfo, lambda: cancel(u)))

    async def retry_end(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        def act(u: Unit) -> RunInfo:
            return executor.once(u, request, RunInfo, lambda: info(u, retry_end(u, run_id, actor)))

        return await self._write(act)

    async def set_run_paused(self, run_id: str, is_paused: bool, actor: str | None, request: Request | None) -> RunInfo:
        def change(u: Unit) -> RunInfo:
            run = u.run(run_id)
            following = (paused if is_paused else resumed)(run, u.now)
            if run.paused != is_paused:
                u.save(following)
                payload = {"status": run.status}
                u.event(run_id, "run.paused" if is_paused else "run.resumed", payload, actor=actor)
            u.flush()
            return info(u, u.run(run_id))

        return await self._write(lambda u: executor.once(u, request, RunInfo, lambda: change(u)))

    async def set_clog_paused(
        self, clog_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> ClogRecord:
        def change(u: Unit) -> ClogRecord:
            clog = u.clog(clog_id)
            if clog is None:
                raise creating.unknown_clog(u, clog_id)
            if clog.paused != is_paused:
                u.do("set_clog_paused", clog_id=clog_id, paused=is_paused)
                type = "clog.paused" if is_paused else "clog.resumed"
                u.event_without_run(type=type, payload="{}", clog_id=clog_id, actor=actor)
            return replace(clog, paused=is_paused)

        return await self._write(lambda u: executor.once(u, request, ClogRecord, lambda: change(u)))

    async def delete_run(self, run_id: str, actor: str | None, request: Request | None) -> int:
        def delete(u: Unit) -> int:
            u.run(run_id)
            return deleting.delete_run(u, run_id, actor)

        return await self._write(lambda u: executor.once(u, request, int, lambda: delete(u)))

    async def delete_session(self, session_id: str, actor: str | None, request: Request | None) -> int:
        def delete(u: Unit) -> int:
            return deleting.delete_session(u, session_id, actor)

        return await self._write(lambda u: executor.once(u, request, int, lambda: delete(u)))
