"""Verbs on one run: create, signal, cancel, retry, pause, resume, delete."""

from typing import Any, Unpack

from ocean.kernel.arguments import UNSET, optional_id, request_of
from ocean.kernel.new_runs import RunOptions, new_run, new_signal
from ocean.kernel.runtime import Runtime
from ocean.kernel.store import Store
from ocean.state.clock import Clock
from ocean.state.ids import IdSource
from ocean.state.records import RunInfo, SignalReceipt
from ocean.state.values import checked_id


class RunVerbs:
    _store: Store
    _clock: Clock
    _ids: IdSource
    _runtime: Runtime

    def new_id(self) -> str:
        """Return a new UUIDv7, as a run gets that is created without an id."""
        return self._ids.new(self._clock.now())

    async def create_run(
        self,
        *,
        session_id: str,
        clog_id: str,
        input: Any = UNSET,
        run_id: str | None = None,
        actor: str | None = None,
        request_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> RunInfo:
        """Create a run: pending with `input`, idle without. Returns the existing run for a used id or dedupe key."""
        new = new_run(
            run_id=self._ids.new(self._clock.now()) if run_id is None else run_id,
            is_id_given=run_id is not None,
            session_id=session_id,
            clog_id=clog_id,
            input=input,
            actor=actor,
            **options,
        )
        request = request_of(request_key, "create_run", [new.body_hash, run_id, new.dedupe_key, new.dedupe_ms])
        return await self._store.create_run(new, request)

    async def signal(
        self,
        run_id: str,
        input: Any = UNSET,
        *,
        signal_id: str | None = None,
        deliver_at: int | None = None,
        if_idle: bool = False,
        actor: str | None = None,
        request_key: str | None = None,
    ) -> SignalReceipt:
        """Append an input to a run's inbox. Once this returns, no crash loses it."""
        signal = new_signal(run_id, input, signal_id=signal_id, deliver_at=deliver_at, if_idle=if_idle, actor=actor)
        request = request_of(request_key, "signal", [run_id, signal.body_hash, signal_id, if_idle])
        return await self._store.deliver_signal(signal, request)

    async def cancel_run(
        self,
        run_id: str,
        *,
        reason: str | None = None,
        actor: str | None = None,
        request_key: str | None = None,
    ) -> RunInfo:
        """End a run as failed, code `cancelled`; a clog with `on_end` gets its last tick first."""
        if reason is not None:
            checked_id(reason, "reason", 4_000)
        request = request_of(request_key, "cancel_run", [checked_id(run_id, "run_id"), reason])
        run = await self._store.cancel_run(run_id, reason, optional_id(actor, "actor"), request)
        if run.ending is not None:
            self._runtime.keeper.run_is_ending(run_id)
        return run

    async def retry_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Create a run with the input and options of a failed one, linked by `retry_of`; a repeat returns the same."""
        request = request_of(request_key, "retry_run", checked_id(run_id, "run_id"))
        return await self._store.retry_run(run_id, optional_id(actor, "actor"), request)

    async def retry_end(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Call the last tick again of a run that has ended without it (`end_incomplete`), with all its attempts."""
        request = request_of(request_key, "retry_end", checked_id(run_id, "run_id"))
        return await self._store.retry_end(run_id, optional_id(actor, "actor"), request)

    async def pause_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Pause a run: signals queue, direct calls work, a deadline still ends it."""
        request = request_of(request_key, "pause_run", checked_id(run_id, "run_id"))
        return await self._store.set_run_paused(run_id, True, optional_id(actor, "actor"), request)

    async def resume_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Resume a paused run."""
        request = request_of(request_key, "resume_run", checked_id(run_id, "run_id"))
        return await self._store.set_run_paused(run_id, False, optional_id(actor, "actor"), request)

    async def delete_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> int:
        """Delete a run, its children and all their rows. Returns the number of runs deleted. Events stay."""
        request = request_of(request_key, "delete_run", checked_id(run_id, "run_id"))
        return await self._store.delete_run(run_id, optional_id(actor, "actor"), request)
