"""The nine functions of the contract and the heartbeat, with the contract's names, parameters and result columns."""

from contextlib import suppress
from typing import Any

from clogs.ops.errors import not_now, wrong
from clogs.ops.policies import auto_approve_of, is_auto_approvable
from clogs.ops.project import Project
from clogs.ops.proposals import mission_id_of
from clogs.ops.records import (
    ATTEMPTS,
    DEAD_LETTERS,
    EVENTS,
    HEART,
    MISSIONS,
    POLICY,
    PROPOSALS,
    REACTIONS,
    STEPS,
    Row,
)
from clogs.ops.validation import checked_proposal, step_kinds
from ocean import Caller, CallRefused, Failed, Lease, LeaseLost, OceanError, RunEnded

MINUTE_MS = 60_000
MOST_MINUTES = 1_440
MOVERS = (PROPOSALS, MISSIONS, STEPS, DEAD_LETTERS)


class Functions(Project):
    async def ops_create_proposal_and_maybe_autoapprove(
        self,
        p_dedupe_key: str | None,
        p_source: str,
        p_template: Any,
        *,
        caller: Caller | None = None,
        request_key: str | None = None,
    ) -> list[Row]:
        proposal = checked_proposal(p_dedupe_key, p_source, p_template)
        made = await self.call(PROPOSALS, "create", proposal, caller, request_key)
        id = made["proposal_id"]
        await self.move(id)
        row = await self.row("ops_mission_proposals", id)
        mission_id = await self._mission_of(id, row["status"])
        return [{"proposal_id": id, "status": row["status"], "mission_id": mission_id, "reason": row["reason"]}]

    async def _mission_of(self, proposal_id: str, status: str) -> str | None:
        if status not in ("approved", "auto_approved"):
            return None
        mission_id = mission_id_of(proposal_id)
        await self.move_mission(mission_id)
        return mission_id

    async def ops_gate_proposal(self, p_template: Any = None, p_source: str | None = None) -> list[Row]:
        """Return whether the caps allow a proposal now, with `p_source` also that source's cap. Nothing is counted."""
        reason = await self.call(PROPOSALS, "gate", p_source)
        return [{"ok": reason is None, "reason": reason}]

    async def ops_is_auto_approvable(self, p_template: Any) -> bool:
        return is_auto_approvable(auto_approve_of(await self.call(POLICY, "values")), p_template)

    async def ops_create_mission_from_proposal(self, p_proposal_id: str) -> str:
        """Return the proposal's mission. Approval creates it, so there is never a second one."""
        await self.find("Proposal", PROPOSALS, p_proposal_id)
        status = (await self.row("ops_mission_proposals", p_proposal_id))["status"]
        mission_id = await self._mission_of(p_proposal_id, status)
        if mission_id is None:
            raise not_now(f"Proposal {p_proposal_id} is {status}; it must be approved to have a mission")
        return mission_id

    async def ops_maybe_finalize_mission(self, p_mission_id: str) -> None:
        """Advance a mission now; missions end without this call. A missing mission is not an error."""
        run = await self.ocean.get_run(p_mission_id) if isinstance(p_mission_id, str) and p_mission_id else None
        if run is not None and run.clog_id == MISSIONS and run.session_id == self.settings.project:
            await self.move_mission(p_mission_id)

    async def ops_recover_stale_steps(self, p_threshold_minutes: int) -> list[Row]:
        threshold_ms = minutes(p_threshold_minutes, "p_threshold_minutes", 100 * MOST_MINUTES) * MINUTE_MS
        recovered = 0
        cursor = None
        while True:
            page = await self.ocean.list_runs(
                clog_id=STEPS, session_id=self.settings.project, attributes={"state": "running"}, cursor=cursor
            )
            for run in page.runs:
                recovered += await self._recover(run.run_id, threshold_ms)
            if (cursor := page.next_cursor) is None:
                return [{"recovered_steps": recovered}]

    async def _recover(self, step_id: str, threshold_ms: int) -> bool:
        try:
            attempt = await self.call_on(step_id, "fail_if_stale", threshold_ms)
        except RunEnded:
            return False
        if attempt is None:
            return False
        # The worker then sees that its lease is lost. Without this call the step ignores the attempt anyway.
        await self.ocean.cancel_run(attempt, reason="stale")
        step = await self.ocean.get_run(step_id)
        if step is not None and step.parent_run_id is not None:
            await self.move_mission(step.parent_run_id)
        return True

    async def ops_recover_expired_leases(self) -> list[Row]:
        """Recover lapsed leases, as any poke does, and return the totals since the last call."""
        await self.ocean.advance(clog_ids=MOVERS)
        since = await self.call(HEART, "totals_since_last_read", "leases")
        return [{"requeued_steps": since["requeued"], "failed_steps": since["failed"]}]

    async def ops_claim_next_step(
        self,
        p_lease_minutes: int,
        p_executor: str | list[str] | None = None,
        p_worker_id: str = "worker",
    ) -> list[Row]:
        """Lease the step that has been claimable the longest, of any executor or of those named. At most one row.

        The row has the table's columns and `lease_id`, which is needed to renew and complete the step.
        """
        lease_ms = minutes(p_lease_minutes, "p_lease_minutes", MOST_MINUTES) * MINUTE_MS
        queues = [p_executor] if isinstance(p_executor, str) else p_executor
        has_poked = False
        while True:
            leases = await self.ocean.claim_work(ATTEMPTS, p_worker_id, lease_ms, queues)
            for lease in leases:
                step = await self._reserve(lease)
                if step is not None:
                    return [step]
            if not leases:
                if has_poked:
                    return []
                # Recover the leases of dead workers, also where workers are the only callers.
                await self.ocean.advance(clog_ids=MOVERS)
                has_poked = True

    async def _reserve(self, lease: Lease) -> Row | None:
        step_id = lease.input["step_id"]
        reserved = {"attempt": lease.run_id, "lease_expires_at": lease.expires_at}
        try:
            await self.call_on(lease.run_id, "started", {"worker_id": lease.worker_id})
            row = await self.call_on(step_id, "reserve", reserved)
        except (CallRefused, RunEnded):
            with suppress(LeaseLost):
                await self.ocean.complete_work(lease.lease_id, Failed("the step no longer accepts this attempt"))
            return None
        except OceanError:
            # The caller does not get this lease: release it, or it would lapse and count as a failure of the step.
            with suppress(OceanError):
                await self.ocean.release_work(lease.lease_id)
            raise
        await self.move(row["mission_id"])
        return {**await self.row("ops_mission_steps", step_id), "lease_id": lease.lease_id}

    async def ops_extract_step_kinds(self, p_template: Any) -> list[str] | None:
        return step_kinds(p_template)

    async def heartbeat(self) -> Row:
        """Process events and reactions, recover lapsed and stale steps, and return the work since the last call."""
        at_most = {EVENTS: self.settings.event_batch_size, REACTIONS: self.settings.reaction_batch_size}
        for clog_id, most in at_most.items():
            await self.ocean.advance(clog_ids=[clog_id], max_ticks=most)
        await self.ocean.advance(clog_ids=MOVERS)
        await self.ops_recover_stale_steps(self.settings.stale_step_minutes)
        since = await self.call(HEART, "totals_since_last_read", "heartbeat")
        if since["thought"] is not None:
            await self.move(since["thought"])
        return {
            "ok": True,
            "triggerResult": {"events": since["events"], "queued": since["queued"]},
            "reactionResult": {"processed": since["processed"], "created": since["created"]},
            "learningResult": {"promoted": 0},
            "leaseResult": {"requeued_steps": since["requeued"], "failed_steps": since["failed"]},
            "staleResult": {"recovered": since["stale"]},
        }


def minutes(value: Any, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise wrong(f"{name} must be a whole number of minutes from 1 to {most}, got {value!r}")
    return value
