"""Retry as new, in one transaction. The failed run is read, not changed."""

from ocean.state.records import Run, event_id
from ocean.state.retry_as_new import refuse_unless_failed, retried, retry_id
from ocean.state.values import decode
from ocean.stores.shared import refusals
from ocean.stores.sqlite.creating import create
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.keys import keys_of


def retry_as_new(u: Unit, run_id: str, actor: str | None) -> Run:
    """Create the run that repeats a failed one, or return it if it was created before."""
    run = u.run(run_id)
    refuse_unless_failed(run)
    earlier = _earlier_retry(u, run)
    if earlier is not None:
        return earlier
    details = u.one("get_details", run_id=run_id)
    assert details is not None
    created = u.one("created_input", run_id=run_id)
    attributes = {row["name"]: decode(row["value"]) for row in u.all("get_attributes", run_id=run_id)}
    new = retried(run, dict(details), attributes, keys_of(u, run), created["body"] if created else None, actor, u.now)
    return create(u, new, caused_by=event_id(run_id, run.event_count))


def _earlier_retry(u: Unit, run: Run) -> Run | None:
    new_id = retry_id(run)
    earlier = u.find(new_id)
    if earlier is not None:
        details = u.one("get_details", run_id=new_id)
        if details is None or details["retry_of"] != run.run_id:
            raise refusals.retry_id_taken(run.run_id, new_id)
        return earlier
    if u.one("earlier_life", run_id=new_id) is not None:
        raise refusals.retry_deleted(run.run_id, new_id)
    return None
