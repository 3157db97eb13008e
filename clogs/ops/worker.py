"""A worker: claims steps, executes them, renews their leases meanwhile, and reports the results."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from clogs.ops.api import Ops
from clogs.ops.errors import LEASE_LOST, WENT_STALE
from clogs.ops.executors import Executor, OpsStepFailed, Task, http, noop, shell_allowlist
from clogs.ops.records import Row
from clogs.ops.rpc import MINUTE_MS
from ocean import CallRefused, OceanError, Refuse

WAIT_MS = 5_000


def shipped(shell: Sequence[str] = ()) -> dict[str, Executor]:
    """Return the executors that ship with the Ops-Loop, by name."""
    return {"noop": noop, "http": http, "shell-allowlist": shell_allowlist(shell)}


class Worker:
    """A worker for its executors; `queues` are further executor names to claim steps of, such as `openclaw`.

    The function is found by the step's executor, otherwise by its kind.
    """

    def __init__(
        self,
        ops: Ops,
        executors: Mapping[str, Executor] | None = None,
        *,
        worker_id: str = "worker",
        queues: Sequence[str] = (),
        lease_minutes: int | None = None,
    ) -> None:
        self.ops = ops
        self.executors = dict(shipped(ops.settings.shell_allowlist) if executors is None else executors)
        self.worker_id = worker_id
        self.queues = [*self.executors, *queues]
        self.lease_minutes = lease_minutes or ops.settings.lease_minutes

    async def serve(self) -> None:
        """Work until cancelled; when there is nothing to claim, wait for a change, at most `WAIT_MS`."""
        ocean = self.ops.ocean
        while True:
            seen = ocean.commits_seen()
            if not await self.work_once():
                await ocean.next_change(seen, wait_ms=WAIT_MS)

    async def work_once(self) -> Row | None:
        """Claim a step, execute it and report it. Return the step; None if there was none to claim."""
        claimed = await self.ops.ops_claim_next_step(self.lease_minutes, self.queues, self.worker_id)
        if not claimed:
            return None
        (step,) = claimed
        try:
            report = await self._execute(step)
            return step if report is None else await self.ops.complete(step["id"], step["lease_id"], **report)
        except (Refuse, CallRefused) as refused:
            if refused.code in (LEASE_LOST, WENT_STALE):
                return step
            raise

    async def _execute(self, step: Row) -> Row | None:
        """Return what to report; None if the lease was lost, so that nothing may be reported."""
        executor = self.executors.get(step["executor"]) or self.executors.get(step["kind"])
        if executor is None:
            return {
                "status": "failed",
                "last_error": f"this worker has no executor for {step['kind']!r}; register one under that name",
            }
        report: Row | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew, step, tasks.cancel_scope)
            report = await _outcome(executor, self.ops, step)
            tasks.cancel_scope.cancel()
        return report

    async def _renew(self, step: Row, work: anyio.CancelScope) -> None:
        """Renew at a third of the lease. Stop the work if the lease is lost or cannot be confirmed in time."""
        lease_ms = self.lease_minutes * MINUTE_MS
        clock = self.ops.ocean.clock
        confirmed_at = clock.now()
        while True:
            await self._pause(lease_ms // 3)
            sent_at = clock.now()
            try:
                await self.ops.renew(step["id"], step["lease_id"])
                confirmed_at = sent_at
            except (Refuse, CallRefused):
                work.cancel()
            except OceanError:
                if clock.now() - confirmed_at >= lease_ms:
                    work.cancel()

    async def _pause(self, ms: int) -> None:
        is_over = anyio.Event()
        cancel = self.ops.ocean.clock.call_later(ms, is_over.set)
        try:
            await is_over.wait()
        finally:
            cancel()


async def _outcome(executor: Executor, ops: Ops, step: Row) -> Row:
    try:
        result: Any = await executor(ops.ocean, Task(step, step["id"]))
    except OpsStepFailed as failed:
        return {"status": "failed", "last_error": str(failed), "result": failed.result}
    except Exception as error:
        return {"status": "failed", "last_error": f"{type(error).__name__}: {error}"}
    return {"status": "succeeded", "result": result}
