"""The eight tables: their columns as the contract lists them, and which can be filtered and ordered by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clogs.ops.records import ATTEMPTS, DEAD_LETTERS, EVENTS, MISSIONS, PROPOSALS, REACTIONS, STEPS, Row
from ocean import RunInfo, RunStatus

POLICY_TABLE = "ops_policy"
ACTION_STATUS = {RunStatus.DONE: "succeeded", RunStatus.FAILED: "failed"}


@dataclass(frozen=True, slots=True)
class Table:
    """`filters` maps columns to the attribute that finds them, `orders` the columns by which rows can be sorted.

    An order of None is the order of creation; otherwise it names an attribute.
    """

    name: str
    clog_id: str
    columns: tuple[str, ...]
    filters: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, str | None] = field(default_factory=lambda: {"created_at": None})
    cells: Callable[[RunInfo, Row], Row] = lambda run, row: {"created_at": run.created_at, **row, "id": run.run_id}

    def shown(self, run: RunInfo, row: Row) -> Row:
        cells = self.cells(run, row)
        return {name: _iso(cells[name]) if name.endswith("_at") else cells[name] for name in self.columns}


def _iso(at: Any) -> str | None:
    """Return a time as PostgreSQL shows a timestamptz in JSON."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")


def policy_row(row: Row) -> Row:
    return {**row, "updated_at": _iso(row["updated_at"])}


def _action(run: RunInfo, row: Row) -> Row:
    error = run.error or {}
    return {
        "id": run.run_id,
        "run_id": run.run_id,
        "step_id": run.attributes["step_id"],
        "executor": run.attributes["executor"],
        "status": ACTION_STATUS.get(run.status, "started"),
        "started_at": row.get("started_at"),
        "completed_at": run.ended_at,
        "meta": {"worker_id": row.get("worker_id")},
        "error": "Lease expired" if error.get("code") == "crashed" else error.get("message"),
    }


def _columns(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_BY_STATUS = {"status": "state"}

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(
            "ops_mission_proposals",
            PROPOSALS,
            _columns("id dedupe_key source status template reason policy_snapshot approved_at created_at"),
            {**_BY_STATUS, "source": "source", "dedupe_key": "dedupe_key"},
        ),
        Table(
            "ops_missions",
            MISSIONS,
            _columns("id proposal_id status policy_snapshot started_at completed_at created_at updated_at"),
            {**_BY_STATUS, "proposal_id": "proposal_id"},
        ),
        Table(
            "ops_mission_steps",
            STEPS,
            _columns(
                "id mission_id kind params status executor reserved_at lease_expires_at failure_count max_retries "
                "last_error result created_at updated_at"
            ),
            {**_BY_STATUS, "mission_id": "mission_id", "kind": "kind", "executor": "executor"},
            # Steps of a mission are created at the same time: their position distinguishes them.
            {"created_at": "position", "reserved_at": "reserved_at"},
        ),
        Table(
            "ops_agent_events",
            EVENTS,
            _columns("id dedupe_key type data mission_id processed_at created_at"),
            {"type": "type", "mission_id": "mission_id", "dedupe_key": "dedupe_key", "processed_at": "processed"},
        ),
        Table(
            "ops_agent_reactions",
            REACTIONS,
            _columns("id event_id status payload created_at updated_at"),
            {**_BY_STATUS, "event_id": "event_id", "payload->>pattern_id": "pattern_id"},
        ),
        Table(
            "ops_action_runs",
            ATTEMPTS,
            _columns("id run_id step_id executor status started_at completed_at meta error"),
            {"step_id": "step_id", "executor": "executor"},
            {"started_at": "started_at"},
            _action,
        ),
        Table(
            "ops_step_dead_letters",
            DEAD_LETTERS,
            _columns("id step_id mission_id kind params executor failure_count last_error result created_at"),
            {"mission_id": "mission_id", "step_id": "step_id", "kind": "kind", "executor": "executor"},
        ),
    )
}
POLICY_COLUMNS = _columns("key value version updated_at")
TABLE_NAMES = (POLICY_TABLE, *TABLES)
