"""Steps: queued from the start, claimable in their turn, leased one attempt at a time, and never lost with a worker.

An attempt is a child run that a worker leases. It has one try: whatever ends it (a report, or a lease that lapsed)
comes to the step as an input, and the step decides whether there is another.
"""

from typing import Any

from clogs.ops.errors import not_now
from clogs.ops.heartbeat import count
from clogs.ops.records import (
    ATTEMPTS,
    DEAD_LETTERS,
    STEPS,
    Row,
    keep,
    publish,
    record_clog,
    state_of,
)
from ocean import Done, Ok, Outcome, RetryPolicy, Tick

LAPSED = "crashed"
"""The code of an attempt whose lease ran out."""
STALE = "Stale: no progress within threshold"

steps = record_clog(STEPS)
attempts = record_clog(ATTEMPTS, external=True)
dead_letters = record_clog(DEAD_LETTERS)
dead_letters.on_advance(keep)

FREE: Row = {"attempt": None, "reserved_at": None, "lease_expires_at": None, "renewed_at": None}


@steps.on_advance
async def advance(tick: Tick) -> Outcome:
    row, is_stored = await state_of(tick)
    if not is_stored:
        await _become(tick, await _claimable(tick, row) if row["index"] == 0 else row)
        return Ok()
    if tick.child is not None:
        return await _attempt_ended(tick, row) if tick.child.run_id == row["attempt"] else Ok()
    match tick.input:
        case {"do": "start"} if row["status"] == "queued" and row["attempt"] is None:
            await _become(tick, await _claimable(tick, row))
        case {"do": "give up"} if row["status"] == "queued":
            await _become(tick, {**row, "status": "failed", "last_error": "Mission failed"})
        case {"do": "queue"} if row["status"] == "failed":
            await _become(tick, {**row, "status": "queued", "last_error": None})
    return Ok()


async def _claimable(tick: Tick, row: Row) -> Row:
    """The step with an attempt that a worker of its executor can lease."""
    attempt = await tick.create_run(
        clog_id=ATTEMPTS,
        input={"step_id": tick.run_id},
        queue=row["executor"],
        retry=RetryPolicy(max_attempts=1),
        notify_parent=True,
        on_parent_end="cancel",
        attributes={"step_id": tick.run_id, "mission_id": row["mission_id"], "executor": row["executor"]},
    )
    return {**row, **FREE, "status": "queued", "attempt": attempt}


async def _attempt_ended(tick: Tick, row: Row) -> Outcome:
    assert tick.child is not None
    if tick.child.error is None:
        row = {**row, **FREE, "status": "succeeded", "result": tick.child.output, "last_error": None}
        await _become(tick, row)
        said = {"step_id": tick.run_id, "kind": row["kind"], "result": row["result"]}
        await publish(tick, "step:succeeded", said, row["mission_id"])
        return Done({"status": "succeeded"})
    is_lapsed = tick.child.error["code"] == LAPSED
    error = "Lease expired" if is_lapsed else tick.child.error["message"]
    row = {**row, "failure_count": row["failure_count"] + 1, "last_error": error}
    if not is_lapsed:
        row["result"] = tick.child.error.get("details")
    is_final = is_out_of_retries(row["failure_count"], row["max_retries"], is_lapsed)
    if is_final:
        await _fail(tick, row)
    else:
        await _become(tick, await _claimable(tick, row))
    if is_lapsed:
        await count(tick, "failed" if is_final else "requeued")
    return Ok()


def is_out_of_retries(failures: int, max_retries: int | None, is_lapsed: bool) -> bool:
    """Without a limit a lapsed lease is tried for ever, for it says nothing of the step; a reported failure does."""
    if max_retries is None:
        return not is_lapsed
    return failures >= max_retries


async def _fail(tick: Tick, row: Row) -> None:
    """For good, unless it is redriven: the letter is written, and the mission told, in the same commit."""
    copied = ("mission_id", "kind", "params", "executor", "failure_count", "last_error", "result")
    letter = {"step_id": tick.run_id, **{name: row[name] for name in copied}, "created_at": tick.now}
    found_by = {
        "step_id": tick.run_id,
        "mission_id": row["mission_id"],
        "kind": row["kind"],
        "executor": row["executor"],
    }
    letter_id = await tick.create_run(clog_id=DEAD_LETTERS, input=letter, attributes=found_by)
    await _become(tick, {**row, **FREE, "status": "failed", "dead_letter": letter_id})
    said = {
        "step_id": tick.run_id,
        "kind": row["kind"],
        "error": row["last_error"],
        "failure_count": row["failure_count"],
    }
    await publish(tick, "step:failed", said, row["mission_id"])
    await tick.signal(row["mission_id"], {"do": "fail", "step_id": tick.run_id})


@attempts.method
async def started(tick: Tick, payload: Row) -> None:
    """A worker has the lease: from now on it is one of the `ops_action_runs`."""
    await tick.read(run=True)
    await tick.write(run={"started_at": tick.now, "worker_id": payload["worker_id"]})
    await tick.set_attributes(started_at=tick.now)


@steps.method
async def reserve(tick: Tick, payload: Row) -> Row:
    """The attempt of this step was leased."""
    row = await _stored(tick)
    if row["attempt"] != payload["attempt"] or row["status"] != "queued":
        raise not_now(f"step {tick.run_id} is {row['status']}, and not to be claimed by this attempt")
    expires_at = payload["lease_expires_at"]
    row = {**row, "status": "running", "reserved_at": tick.now, "renewed_at": tick.now, "lease_expires_at": expires_at}
    await tick.signal(row["mission_id"], {"do": "run"})
    return await _become(tick, row)


@steps.method
async def renewed(tick: Tick, payload: Row) -> Row:
    row = await _stored(tick)
    if row["attempt"] != payload["attempt"] or row["status"] != "running":
        raise not_now(f"step {tick.run_id} is {row['status']}, and no longer this attempt's")
    expires_at = max(row["lease_expires_at"], payload["lease_expires_at"])
    return await _become(tick, {**row, "renewed_at": tick.now, "lease_expires_at": expires_at})


@steps.method
async def fail_if_stale(tick: Tick, threshold_ms: int) -> str | None:
    """The attempt that was given up, or None if it has been renewed in time after all."""
    row = await _stored(tick)
    if row["status"] != "running" or row["renewed_at"] >= tick.now - threshold_ms:
        return None
    attempt: str = row["attempt"]
    await _fail(tick, {**row, "failure_count": row["failure_count"] + 1, "last_error": STALE})
    await count(tick, "stale")
    return attempt


@steps.method
async def redrive(tick: Tick, letter_id: str) -> None:
    """Queue a dead step again, with all its retries. A letter does this once."""
    row = await _stored(tick)
    if row["status"] != "failed" or row["dead_letter"] != letter_id:
        raise not_now(f"dead letter {letter_id} was redriven before; its step {tick.run_id} is {row['status']}")
    row = await _claimable(tick, {**row, "failure_count": 0, "dead_letter": None})
    await _become(tick, row)
    await tick.signal(row["mission_id"], {"do": "redrive", "step_id": tick.run_id}, required=True)


async def _stored(tick: Tick) -> Row:
    rows = await tick.read(run=True)
    if not rows.has_run:
        raise not_now(f"step {tick.run_id} is being created; ask again")
    row: Row = rows.run
    return row


async def _become(tick: Tick, row: dict[str, Any]) -> Row:
    row = {**row, "updated_at": tick.now}
    await tick.write(run=row)
    await tick.set_attributes(state=row["status"], reserved_at=row["reserved_at"])
    return row
