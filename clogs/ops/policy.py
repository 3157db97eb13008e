"""The policies of a project: one row, each key with its own version."""

from typing import Any

from clogs.ops.records import POLICY, Row
from clogs.ops.refusals import duplicate, not_now
from clogs.ops.rules import checked_policy
from ocean import Clog, Tick

policy = Clog(POLICY, generic=())

UNSNAPPED = ("reaction_matrix",)
"""Not part of a snapshot: it decides what is proposed, not what becomes of it, and may be large."""


@policy.method
async def rows(tick: Tick, payload: None) -> list[Row]:
    kept = (await tick.read(session=True)).session or {}
    return [{"key": key, **kept[key]} for key in sorted(kept)]


@policy.method
async def values(tick: Tick, payload: None) -> dict[str, Any]:
    kept = (await tick.read(session=True)).session or {}
    return {key: each["value"] for key, each in kept.items()}


@policy.method
async def put(tick: Tick, changes: list[Row]) -> list[Row]:
    """Insert policies, or with a version replace exactly that version. All of them, or none."""
    kept = dict((await tick.read(session=True)).session or {})
    for change in changes:
        key, before = change["key"], change["version"]
        value = checked_policy(key, change["value"])
        version = kept[key]["version"] if key in kept else 0
        if before is None and version:
            raise duplicate("ops_policy_key", f"Key (key)=({key}) already exists; to replace it, say its version")
        if before is not None and before != version:
            raise not_now(f"policy {key} is at version {version}, not {before}; read it, and put your change again")
        kept[key] = {"value": value, "version": version + 1, "updated_at": tick.now}
    await tick.write(session=kept)
    return [{"key": change["key"], **kept[change["key"]]} for change in changes]


def snapshot(policies: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in policies.items() if key not in UNSNAPPED}
