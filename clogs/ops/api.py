"""The Ops-Loop in Python: the functions of its contract, and methods for what it does by INSERT and UPDATE."""

from collections.abc import Iterable
from typing import Any

from clogs.ops.errors import LEASE_LOST, NO_TABLE, WENT_STALE, check_size, duplicate, wrong
from clogs.ops.queries import list_rows, parse_query, policy_query
from clogs.ops.records import DEAD_LETTERS, EVENTS, POLICY, PROPOSALS, STEPS, Row
from clogs.ops.rpc import MINUTE_MS, MOST_MINUTES, Functions, minutes
from clogs.ops.tables import POLICY_TABLE, TABLE_NAMES, TABLES, policy_row
from clogs.ops.validation import checked_event
from ocean import Caller, DedupeKeyReused, Done, ErrorInfo, Failed, LeaseLost, Refuse

MOST_RESULT_BYTES = 256 * 1024
MOST_ERROR_CHARACTERS = 2_000


class Ops(Functions):
    """One project's Ops-Loop on an Ocean that has its clogs: `Ops(ocean)`."""

    async def rows(self, table: str, pairs: Iterable[tuple[str, str]] = ()) -> tuple[list[Row], str | None]:
        """Return a page of a table by the query parameters of its GET, and the cursor of the next page."""
        if table == POLICY_TABLE:
            return policy_query([policy_row(row) for row in await self.call(POLICY, "rows")], pairs), None
        if table not in TABLES:
            message = f'relation "{table}" does not exist; there are {", ".join(TABLE_NAMES)}'
            raise Refuse(message, code=NO_TABLE, http_status=404)
        ask = parse_query(TABLES[table], pairs)
        found, cursor = await list_rows(self.ocean, self.settings.project, TABLES[table], ask)
        return [{name: row[name] for name in ask.select} if ask.select else row for row in found], cursor

    async def put_policy(
        self, changes: list[Row], *, caller: Caller | None = None, request_key: str | None = None
    ) -> list[Row]:
        """Insert policies or, with `version`, replace exactly that version; all of them or none."""
        given = [{"version": None, **change} for change in changes]
        return [policy_row(row) for row in await self.call(POLICY, "put", given, caller, request_key)]

    async def insert_events(
        self, events: list[Row], *, caller: Caller | None = None, request_key: str | None = None
    ) -> list[Row]:
        """Insert agent events. Each is processed before this returns, however many others wait."""
        given = [checked_event(event) for event in events]
        try:
            ids = await self.call(EVENTS, "insert", given, caller, request_key)
        except DedupeKeyReused as error:
            raise duplicate("ops_agent_events_dedupe_key", error.message) from None
        await self.move(*ids)
        return [await self.row("ops_agent_events", id) for id in ids]

    async def approve(
        self, proposal_id: str, reason: str | None = None, *, caller: Caller | None = None,
        request_key: str | None = None,
    ) -> Row:  # fmt: skip
        return await self._decide(proposal_id, "approve", {"reason": reason}, caller, request_key)

    async def reject(
        self, proposal_id: str, reason: str | None = None, *, caller: Caller | None = None,
        request_key: str | None = None,
    ) -> Row:  # fmt: skip
        return await self._decide(proposal_id, "reject", {"reason": reason}, caller, request_key)

    async def vote(
        self, proposal_id: str, vote: str, role: str | None = None, *, caller: Caller | None = None,
        request_key: str | None = None,
    ) -> Row:  # fmt: skip
        """Cast the vote of one of the caller's roles; `role` is required if the caller has several."""
        if vote not in ("approve", "reject"):
            raise wrong(f"vote must be approve or reject, got {vote!r}")
        return await self._decide(proposal_id, "vote", {"vote": vote, "role": role}, caller, request_key)

    async def _decide(
        self, proposal_id: str, method: str, payload: Row, caller: Caller | None, request_key: str | None
    ) -> Row:
        await self.find("Proposal", PROPOSALS, proposal_id)
        answer = await self.call_on(proposal_id, method, payload, caller, request_key)
        await self.move(proposal_id)
        row = await self.row("ops_mission_proposals", proposal_id)
        mission_id = await self._mission_of(proposal_id, row["status"])
        tally = {name: answer[name] for name in ("votes", "approvals_needed")} if method == "vote" else {}
        return {**row, "mission_id": mission_id, **tally}

    async def renew(self, step_id: str, lease_id: str, lease_minutes: int | None = None) -> Row:
        """Extend the lease of a step and return its row."""
        attempt = await self._leased(step_id, lease_id)
        lease_ms = None if lease_minutes is None else minutes(lease_minutes, "lease_minutes", MOST_MINUTES) * MINUTE_MS
        try:
            expires_at = await self.ocean.renew_work(lease_id, lease_ms=lease_ms)
        except LeaseLost as error:
            raise _lost(error.message) from None
        await self.call_on(step_id, "renewed", {"attempt": attempt, "lease_expires_at": expires_at})
        return await self.row("ops_mission_steps", step_id)

    async def complete(
        self, step_id: str, lease_id: str, status: str, result: Any = None, last_error: str | None = None
    ) -> Row:
        """Report the result of a step. Its mission has advanced when this returns; a repeat has the same result."""
        if status not in ("succeeded", "failed"):
            raise wrong(f"status must be succeeded or failed, got {status!r}")
        check_size(result, "result", MOST_RESULT_BYTES)
        await self._leased(step_id, lease_id)
        message = (last_error or "the executor reported a failure")[:MOST_ERROR_CHARACTERS]
        error = ErrorInfo("ops_reported", message, result)
        try:
            await self.ocean.complete_work(lease_id, Done(result) if status == "succeeded" else Failed(error))
        except LeaseLost as lost:
            raise _lost(lost.message) from None
        run = await self.find("Step", STEPS, step_id)
        await self.move(step_id)
        if run.parent_run_id is not None:
            await self.move_mission(run.parent_run_id)
        row = await self.row("ops_mission_steps", step_id)
        if status == "succeeded" and row["status"] == "failed":
            raise Refuse(f"{row['last_error']}; this report came too late", code=WENT_STALE, http_status=409)
        return row

    async def _leased(self, step_id: str, lease_id: Any) -> str | None:
        """Return the attempt of the lease, or None. A lease of another step counts as lost."""
        await self.find("Step", STEPS, step_id)
        if not isinstance(lease_id, str) or not lease_id:
            raise wrong("lease_id must be the lease_id that ops_claim_next_step returned")
        lease = await self.ocean.standing_of_lease(lease_id)
        if lease is None:
            return None
        attempt = await self.ocean.get_run(lease.run_id)
        if attempt is None or attempt.attributes.get("step_id") != step_id:
            raise _lost(f"lease {lease_id} is not a lease of step {step_id}")
        return lease.run_id

    async def redrive(
        self, dead_letter_id: str, *, caller: Caller | None = None, request_key: str | None = None
    ) -> Row:
        """Queue a dead step again and continue its mission with it. The dead letter stays."""
        await self.find("Dead letter", DEAD_LETTERS, dead_letter_id)
        letter = await self.row("ops_step_dead_letters", dead_letter_id)
        await self.call_on(letter["step_id"], "redrive", dead_letter_id, caller, request_key)
        await self.move_mission(letter["mission_id"])
        return await self.row("ops_mission_steps", letter["step_id"])


def _lost(message: str) -> Refuse:
    return Refuse(message, code=LEASE_LOST, http_status=409)
