"""Steps: queued from the start, claimable in order, leased one attempt at a time, and recovered if a worker dies.

An attempt is a child run that a worker leases. It has one try: its end (a report, or a lapsed lease) is an input of the
step, which decides whether there is another attempt.
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
"""The error code of an attempt whose lease expired."""
STALE = "Stale: no progress within threshold"

steps = record_clog(STEPS)
attempts = record_clog(ATTEMPTS, external=True)
dead_letters = record_clog(DEAD_LETTERS)
dead_letters.on_advance(keep)

NOT_LEASED: Row = {"attempt": None, "reserved_at": None, "lease_expires_at": None, "renewed_at": None}


@steps.on_advance
async def advance(tick: Tick) -> Outcome:
    row, is_stored = await state_of(tick)
    if not is_stored:
        await _store(tick, await _with_attempt(tick, row) if row["index"] == 0 else row)
        return Ok()
    if tick.child is not None:
        return await _attempt_ended(tick, row) if tick.child.run_id == row["attempt"] else Ok()
    match tick.input:
        case {"do": "start"} if row["status"] == "queued" and row["attempt"] is None:
            await _store(tick, await _with_attempt(tick, row))
        case {"do": "give up"} if row["status"] == "queued":
            await _store(tick, {**row, "status": "failed", "last_error": "Mission failed"})
        case {"do": "queue"} if row["status"] == "failed":
            await _store(tick, {**row, "status": "queued", "last_error": None})
    return Ok()


async def _with_attempt(tick: Tick, row: Row) -> Row:
    """Return the step with a new attempt that a worker of its executor can lease."""
    attempt = await tick.create_run(
        clog_id=ATTEMPTS,
        input={"step_id": tick.run_id},
        queue=row["executor"],
        retry=RetryPolicy(max_attempts=1),
        notify_parent=True,
        on_parent_end="cancel",
        attributes={"step_id": tick.run_id, "mission_id": row["mission_id"], "executor": row["executor"]},
    )
    return {**row, **NOT_LEASED, "status": "queued", "attempt": attempt}


async def _attempt_ended(tick: Tick, row: Row) -> Outcome:
    assert tick.child is not None
    if tick.child.error is None:
        row = {**row, **NOT_LEASED, "status": "succeeded", "result": tick.child.output, "last_error": None}
        await _store(tick, row)
        data = {"step_id": tick.run_id, "kind": row["kind"], "result": row["result"]}
        await publish(tick, "step:succeeded", data, row["mission_id"])
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
        await _store(tick, await _with_attempt(tick, row))
    if is_lapsed:
        await count(tick, "failed" if is_final else "requeued")
    return Ok()


def is_out_of_retries(failures: int, max_retries: int | None, is_lapsed: bool) -> bool:
    """Without a limit, a reported failure is final and a lapsed lease, which is no failure of the step, is not."""
    if max_retries is None:
        return not is_lapsed
    return failures >= max_retries


async def _fail(tick: Tick, row: Row) -> None:
    """Fail the step until it is redriven: create the dead letter and signal the mission in the same commit."""
    copied = ("mission_id", "kind", "params", "executor", "failure_count", "last_error", "result")
    letter = {"step_id": tick.run_id, **{name: row[name] for name in copied}, "created_at": tick.now}
    attributes = {
        "step_id": tick.run_id,
        "mission_id": row["mission_id"],
        "kind": row["kind"],
        "executor": row["executor"],
    }
    letter_id = await tick.create_run(clog_id=DEAD_LETTERS, input=letter, attributes=attributes)
    await _store(tick, {**row, **NOT_LEASED, "status": "failed", "dead_letter": letter_id})
    data = {
        "step_id": tick.run_id,
        "kind": row["kind"],
        "error": row["last_error"],
        "failure_count": row["failure_count"],
    }
    await publish(tick, "step:failed", data, row["mission_id"])
    await tick.signal(row["mission_id"], {"do": "fail", "step_id": tick.run_id})


@attempts.method
async def started(tick: Tick, payload: Row) -> None:
    """Record that a worker leased the attempt, which makes it a row of `ops_action_runs`."""
    await tick.read(run=True)
    await tick.write(run={"started_at": tick.now, "worker_id": payload["worker_id"]})
    await tick.set_attributes(started_at=tick.now)


@steps.method
async def reserve(tick: Tick, payload: Row) -> Row:
    """Mark the step as running: its attempt was leased."""
    row = await _stored_row(tick)
    if row["attempt"] != payload["attempt"] or row["status"] != "queued":
        raise not_now(f"step {tick.run_id} is {row['status']} and cannot be claimed by this attempt")
    expires_at = payload["lease_expires_at"]
    row = {**row, "status": "running", "reserved_at": tick.now, "renewed_at": tick.now, "lease_expires_at": expires_at}
    await tick.signal(row["mission_id"], {"do": "run"})
    return await _store(tick, row)


@steps.method
async def renewed(tick: Tick, payload: Row) -> Row:
    row = await _stored_row(tick)
    if row["attempt"] != payload["attempt"] or row["status"] != "running":
        raise not_now(f"step {tick.run_id} is {row['status']} and no longer belongs to this attempt")
    expires_at = max(row["lease_expires_at"], payload["lease_expires_at"])
    return await _store(tick, {**row, "renewed_at": tick.now, "lease_expires_at": expires_at})


@steps.method
async def fail_if_stale(tick: Tick, threshold_ms: int) -> str | None:
    """Fail the step if its lease was not renewed in time. Return its attempt, or None if it was renewed."""
    row = await _stored_row(tick)
    if row["status"] != "running" or row["renewed_at"] >= tick.now - threshold_ms:
        return None
    attempt: str = row["attempt"]
    await _fail(tick, {**row, "failure_count": row["failure_count"] + 1, "last_error": STALE})
    await count(tick, "stale")
    return attempt


@steps.method
async def redrive(tick: Tick, letter_id: str) -> None:
    """Queue a dead step again, with all its retries. A dead letter can be redriven once."""
    row = await _stored_row(tick)
    if row["status"] != "failed" or row["dead_letter"] != letter_id:
        raise not_now(f"dead letter {letter_id} was already redriven; its step {tick.run_id} is {row['status']}")
    row = await _with_attempt(tick, {**row, "failure_count": 0, "dead_letter": None})
    await _store(tick, row)
    await tick.signal(row["mission_id"], {"do": "redrive", "step_id": tick.run_id}, required=True)


async def _stored_row(tick: Tick) -> Row:
    rows = await tick.read(run=True)
    if not rows.has_run:
        raise not_now(f"step {tick.run_id} is being created; retry")
    row: Row = rows.run
    return row


async def _store(tick: Tick, row: dict[str, Any]) -> Row:
    row = {**row, "updated_at": tick.now}
    await tick.write(run=row)
    await tick.set_attributes(state=row["status"], reserved_at=row["reserved_at"])
    return row
