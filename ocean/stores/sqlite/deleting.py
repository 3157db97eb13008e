"""Deleting runs and sessions. Their events stay; only retention removes events, oldest first."""

from ocean.state.outcomes import ErrorInfo
from ocean.state.records import RunStatus
from ocean.state.values import encode
from ocean.stores.sqlite.ending import end_run
from ocean.stores.sqlite.engine.unit_of_work import Unit


def delete_run(u: Unit, run_id: str, actor: str | None) -> int:
    """Delete a run and all its descendants; returns how many. A run that has not ended ends first, so its parent gets
    its outcome."""
    u.flush()
    doomed = [row["run_id"] for row in u.all("descendants", run_id=run_id)]
    for each in doomed:
        run = u.run(each)
        if not run.is_ended:
            error = encode(ErrorInfo("deleted", f"run {each} was deleted").as_json())
            end_run(u, each, RunStatus.FAILED, error=error, actor=actor)
    for each in reversed(doomed):
        run = u.run(each)
        u.event(each, "run.deleted", {"status": run.status}, tick=run.tick or None, actor=actor)
        u.flush()
        u.do("delete_run", run_id=each)
        u.forget(each)
    return len(doomed)


def delete_session(u: Unit, session_id: str, actor: str | None) -> int:
    u.flush()
    gone = 0
    for row in u.all("session_runs", session_id=session_id):
        if u.find(row["run_id"]) is not None:
            gone += delete_run(u, row["run_id"], actor)
    if u.all("delete_session", session_id=session_id):
        u.event_without_run(type="session.deleted", payload=encode({"runs": gone}), session_id=session_id, actor=actor)
    return gone
