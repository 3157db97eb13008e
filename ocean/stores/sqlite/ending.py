"""Ending runs. Every end goes through `end_run`."""

from typing import Any

from ocean.state.ends import end_requested, end_retried, ended
from ocean.state.outcomes import ErrorInfo
from ocean.state.records import Ending, InputKind, LastTick, Run, RunStatus
from ocean.state.transitions import input_arrived
from ocean.state.values import encode
from ocean.stores.shared import refusals
from ocean.stores.shared.row_rules import text_without_traceback
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.inbox import append_input, drop_timers

MOST_NAMED = 100
"""How many undelivered inputs an event lists. Its count includes all of them."""


def end_run(
    u: Unit,
    run_id: str,
    status: RunStatus,
    *,
    output: str | None = None,
    error: str | None = None,
    tick: int | None = None,
    call: int | None = None,
    caused_by: str | None = None,
    actor: str | None = None,
) -> Run:
    """Drop timers, list undelivered inputs, notify the parent, append the last event, and cancel the children that end
    with their parent."""
    run = u.run(run_id)
    run = run if run.status is status else u.save(ended(run, status, u.now))
    drop_timers(u, run_id)
    u.later("save_end", run_id, run_id=run_id, output=output, error=error)
    _name_undelivered(u, run_id)
    if not _notify_parent(u, run, output, text_without_traceback(error)):
        u.event(run_id, "signal.undelivered", {"to": run.parent_run_id, "kind": "child"})
    text = f'{{"output":{output or "null"}}}' if status is RunStatus.DONE else f'{{"error":{error or "null"}}}'
    last, _ = u.event(run_id, f"run.{status}", None, text=text, tick=tick, call=call, caused_by=caused_by, actor=actor)
    u.ended_parents.append((run_id, last))
    _end_children(u)
    return u.run(run_id)


def _end_children(u: Unit) -> None:
    """End the children of ended parents, in a loop: a long chain of descendants must not become a deep stack."""
    if u.is_ending_children:
        return
    u.is_ending_children = True
    while u.ended_parents:
        parent_id, last = u.ended_parents.pop(0)
        u.flush()
        for child in () if u.is_childless(parent_id) else u.all("children_to_cancel", run_id=parent_id):
            cancelled = ErrorInfo("cancelled", f"its parent {parent_id} ended {u.run(parent_id).status}")
            request_end(u, child["run_id"], Ending.CANCEL, cancelled, caused_by=last)
    u.is_ending_children = False


def request_end(u: Unit, run_id: str, reason: Ending, error: ErrorInfo | None, **where: Any) -> Run:
    """End a run for the kernel. A clog with `on_end` gets one last tick; if its attempts are used up, the run ends
    without it."""
    run = u.run(run_id)
    u.do("release_turns", run_id=run_id)
    text = encode(error.as_json()) if error is not None else _stored_error(u, run_id)
    if run.ending:
        payload = f'{{"reason":"{run.ending}","error":{text or "null"},"attempts":{run.end_attempt}}}'
        u.event(run_id, "run.end_incomplete", None, text=payload, **where)
        u.save(ended(u.run(run_id), RunStatus.FAILED, u.now, end_incomplete=True))
        return end_run(u, run_id, RunStatus.FAILED, error=_stored_error(u, run_id), **where)
    clog = u.clog(run.clog_id)
    following = end_requested(run, reason, clog.last_tick if clog is not None else None, u.now)
    if following.is_ended:
        return end_run(u, run_id, RunStatus.FAILED, error=text, **where)
    u.save(following)
    u.do("save_error", run_id=run_id, error=text)
    stop_by = "null" if following.stop_by is None else following.stop_by
    payload = f'{{"reason":"{reason}","error":{text or "null"},"status":"{following.status}","stop_by":{stop_by}}}'
    u.event(run_id, "run.ending", None, text=payload, **where)
    return u.run(run_id)


def retry_end(u: Unit, run_id: str, actor: str | None) -> Run:
    """Call the last tick again of a run that has ended without it. Its parent is not notified a second time."""
    run = u.run(run_id)
    clog, tick = u.clog(run.clog_id), u.one("get_tick", run_id=run_id, tick=run.tick)
    if not run.end_incomplete or tick is None or clog is None:
        raise refusals.end_not_incomplete(run_id, run.status)
    reason = Ending(tick["reason"])
    u.save(end_retried(run, reason, LastTick(clog.end_retry.max_attempts, clog.cancel_grace_ms), u.now))
    u.do("notify_no_parent", run_id=run_id)
    text = f'{{"reason":"{reason}","error":{_stored_error(u, run_id) or "null"},"status":"pending","stop_by":null}}'
    u.event(run_id, "run.ending", None, text=text, actor=actor)
    u.flush()
    return u.run(run_id)


def finish_last_tick(u: Unit, run_id: str, **where: Any) -> Run:
    """End a run after its last tick. Whatever the tick returned, the run ends with the error that began its end."""
    return end_run(u, run_id, RunStatus.FAILED, error=_stored_error(u, run_id), **where)


def _stored_error(u: Unit, run_id: str) -> str | None:
    details = u.one("get_details", run_id=run_id)
    return details["error"] if details else None


def _name_undelivered(u: Unit, run_id: str) -> None:
    rows = u.all("undelivered", run_id=run_id) if u.run(run_id).pending_count else []
    if rows:
        named: list[dict[str, Any]] = [dict(row) for row in rows[:MOST_NAMED]]
        u.event(run_id, "signal.undelivered", {"to": run_id, "count": len(rows), "inputs": named})


def _notify_parent(u: Unit, run: Run, output: str | None, error: str | None) -> bool:
    """Append the child's outcome to its parent's inbox, in the child's last commit.

    Returns False if the parent should get it but has ended, is ending or was deleted.
    """
    details = u.one("get_details", run_id=run.run_id) if run.parent_run_id is not None else None
    if run.parent_run_id is None or details is None or not details["notify_parent"]:
        return True
    parent = u.find(run.parent_run_id)
    if parent is None or parent.is_ended or parent.ending:
        return False
    u.save(input_arrived(parent, u.now, u.now))
    payload = {
        "number": parent.inbox_count + 1,
        "kind": "child",
        "child_run_id": run.run_id,
        "child_status": run.status,
        "status": u.run(parent.run_id).status,
    }
    event, seq = u.event(parent.run_id, "run.signalled", payload)
    end = f'"status":"{run.status}","output":{output or "null"},"error":{error or "null"}'
    body = f'{{"run_id":{encode(run.run_id)},{end}}}'
    append_input(u, parent.run_id, InputKind.CHILD, body, available_at=u.now, caused_by=event, event_seq=seq)
    return True
