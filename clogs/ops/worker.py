"""A worker: claims steps, does them with its executors, renews beside the work, and reports."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from clogs.ops.api import Ops
from clogs.ops.errors import LEASE_LOST, WENT_STALE
from clogs.ops.executors import Executor, OpsStepFailed, Task, http, noop, shell_allowlist
from clogs.ops.records import Row
from clogs.ops.rpc import MINUTE_MS
from ocean import CallRefused, OceanError, Refuse

LOOK_MS = 5_000


def shipped(shell: Sequence[str] = ()) -> dict[str, Executor]:
    """The executors that come with the Ops-Loop, by name."""
    return {"noop": noop, "http": http, "shell-allowlist": shell_allowlist(shell)}


class Worker:
    """Serves the executors it has; `queues` are others under whose names it claims too, such as `openclaw`.

    The executor's function is found by the step's executor, else by its kind.
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
        """Work until cancelled; look again when something has changed, or after a while."""
        ocean = self.ops.ocean
        while True:
            seen = ocean.commits_seen()
            if not await self.work_once():
                await ocean.next_change(seen, wait_ms=LOOK_MS)

    async def work_once(self) -> Row | None:
        """Claim a step, do it, report it. The step as it is then; None if there was nothing to do."""
        claimed = await self.ops.ops_claim_next_step(self.lease_minutes, self.queues, self.worker_id)
        if not claimed:
            return None
        (step,) = claimed
        try:
            said = await self._done(step)
            return step if said is None else await self.ops.complete(step["id"], step["lease_id"], **said)
        except (Refuse, CallRefused) as refused:
            if refused.code in (LEASE_LOST, WENT_STALE):
                return step
            raise

    async def _done(self, step: Row) -> Row | None:
        """What is to be reported; None if the lease was lost, and with it the right to report."""
        executor = self.executors.get(step["executor"]) or self.executors.get(step["kind"])
        if executor is None:
            return {"status": "failed", "last_error": f"this worker has no executor for {step['kind']!r}"}
        said: Row | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew, step, tasks.cancel_scope)
            said = await _outcome(executor, self.ops, step)
            tasks.cancel_scope.cancel()
        return said

    async def _renew(self, step: Row, work: anyio.CancelScope) -> None:
        """At a third of the lease. When it is lost, or cannot be confirmed in time, the work is stopped."""
        lease_ms = self.lease_minutes * MINUTE_MS
        clock = self.ops.ocean.clock
        confirmed_at = clock.now()
        while True:
            await self._pause(lease_ms // 3)
            asked_at = clock.now()
            try:
                await self.ops.renew(step["id"], step["lease_id"])
                confirmed_at = asked_at
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
