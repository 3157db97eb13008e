"""What both stores know about instances."""

from dataclasses import asdict

from ocean.state.instances import InstanceRecord, ProcessIdentity
from ocean.stores.shared.rows import Row

UNSEEN_MS = 7 * 86_400_000
"""When the record of an instance that holds no run is deleted."""
MOST_FORGOTTEN = 100


def instance_from(row: Row) -> InstanceRecord:
    process = ProcessIdentity(row["boot_id"], row["pid_namespace"], row["pid"], row["process_start"])
    return InstanceRecord(row["instance_id"], process, row["longest_lock_ms"], row["started_at"], row["seen_at"])


def instance_values(instance_id: str, process: ProcessIdentity) -> dict[str, str | int | None]:
    return {"instance_id": instance_id, **asdict(process)}
