"""What stores refuse, each refusal in one place: its name is the code by which a database's function says it, its
arguments are the facts that come with it."""

from collections.abc import Callable, Mapping
from typing import Any

from ocean.state.attributes import MOST
from ocean.state.counters import Take, decide, reserve
from ocean.state.errors import (
    ClogError,
    DedupeKeyReused,
    InvalidValue,
    LeaseCompleted,
    LeaseLost,
    LockLost,
    OceanError,
    RequestKeyReused,
    RowChanged,
    RunBusy,
    RunEnded,
    RunExists,
    RunNotFound,
    SignalIdReused,
    SignalRefused,
    StoreFailed,
    UnknownClog,
    near_name,
)
from ocean.state.records import RunStatus
from ocean.state.transitions import refuse_if_ended, refuse_unless_held
from ocean.state.values import decode
from ocean.stores.shared.rows import Row, counter_from, run_from


def refusal(code: str, facts: Mapping[str, Any]) -> OceanError:
    """The error that a function of the database means."""
    said = _BY_CODE.get(code)
    if said is None:
        return StoreFailed(f"the database says {code!r}, which this Ocean does not know; upgrade ocean-runtime")
    return said(**facts)


def run_not_found(run_id: str) -> OceanError:
    return RunNotFound(f"there is no run {run_id!r}", run_id=run_id)


def run_ended(run: Row) -> OceanError:
    return _raised(lambda: refuse_if_ended(run_from(run)))


def lock_lost(run_id: str, epoch: int) -> OceanError:
    return _raised(lambda: refuse_unless_held(None, epoch, run_id))


def run_busy(run_id: str, status: str, locked_by: str | None, lock_expires_at: int | None) -> OceanError:
    facts = {"status": RunStatus(status), "locked_by": locked_by, "lock_expires_at": lock_expires_at}
    return RunBusy(f"run {run_id} is {status}, not idle", **facts)


def run_exists(run_id: str) -> OceanError:
    return RunExists(f"run {run_id!r} exists and was created from another body; choose another id")


def run_of_another(run_id: str, owner: str, clog_id: str) -> OceanError:
    return ClogError(f"run {run_id} belongs to clog {owner!r}; {clog_id!r} cannot delete it")


def session_of_others(session_id: str, run_id: str, owner: str, clog_id: str) -> OceanError:
    return ClogError(
        f"session {session_id!r} has run {run_id} of clog {owner!r}; "
        f"{clog_id!r} can delete only a session all of whose runs are its own"
    )


def row_of_ended_run(run_id: str) -> OceanError:
    return RunEnded(f"run {run_id} has ended; its row can only be read")


def tick_gone(run_id: str, tick: int) -> OceanError:
    return LockLost(f"run {run_id} has no tick {tick} any more; this call's work is discarded")


def tick_is_open(run_id: str, tick: int) -> OceanError:
    return ClogError(f"tick {tick} of run {run_id} has not been committed yet; it cannot be deleted")


def signal_id_reused(run_id: str, signal_id: str) -> OceanError:
    return SignalIdReused(f"signal id {signal_id!r} was used for run {run_id} with another body; use a new id")


def signal_refused(run_id: str) -> OceanError:
    return SignalRefused(f"the signal to run {run_id} was required, and that run has ended or is gone")


def timers_need_a_run() -> OceanError:
    return InvalidValue("timers belong to a run; this call has none")


def attributes_need_a_run() -> OceanError:
    return InvalidValue("attributes belong to a run; this call has none")


def too_many_attributes() -> OceanError:
    return InvalidValue(f"a run has at most {MOST} attributes; remove some by setting them to None")


def unknown_clog(clog_id: str, names: list[str]) -> OceanError:
    return UnknownClog(f"no instance has registered a clog {clog_id!r}; {near_name(clog_id, names)}", clog_id=clog_id)


def not_external(clog_id: str) -> OceanError:
    return InvalidValue(f"queues are for workers outside; clog {clog_id!r} is not external, leave queue out")


def not_leased(clog_id: str) -> OceanError:
    return InvalidValue(f"clog {clog_id!r} is not external: its runs are moved by advance, not leased")


def deadline_passed(deadline_at: int, now: int) -> OceanError:
    return InvalidValue(f"deadline_at {deadline_at} has already passed (now is {now})")


def dedupe_key_reused(dedupe_key: str, run_id: str) -> OceanError:
    message = f"dedupe key {dedupe_key!r} is held by run {run_id}, created from another body"
    return DedupeKeyReused(message, run_id=run_id)


def request_key_reused(key: str) -> OceanError:
    return RequestKeyReused(f"request key {key!r} was used for another request; choose a new key")


def retry_id_taken(run_id: str, new_id: str) -> OceanError:
    return RunExists(f"run {new_id} has the id that a retry of {run_id} would get, and is none", run_id=new_id)


def retry_deleted(run_id: str, new_id: str) -> OceanError:
    return RunNotFound(f"run {run_id} was retried as {new_id}, which has been deleted", run_id=new_id)


def no_such_lease() -> OceanError:
    return LeaseLost("there is no such lease: its run is gone, or the id is not one that claim_work gave out")


def lease_lost(run_id: str, worker_id: str, status: str | None) -> OceanError:
    why = f"the run is {status}" if status else "the run is gone"
    return LeaseLost(f"run {run_id} is no longer leased to {worker_id} ({why}); its work is discarded", run_id=run_id)


def lease_completed(run_id: str) -> OceanError:
    return LeaseCompleted(f"this lease of run {run_id} was completed before, with something else")


def row_changed(run_id: str, read: int, version: int, text: str | None) -> OceanError:
    message = f"the row of run {run_id} has changed since version {read}; look at it and complete with row_version"
    return RowChanged(message, row=decode(text), row_version=version)


def counter(counter: Row | None, take: Mapping[str, Any], now: int) -> OceanError:
    stored = None if counter is None or counter["key"] is None else counter_from(counter)
    return _raised(lambda: decide(stored, Take(**take), now))


def promise(counter: Row | None, take: Mapping[str, Any], now: int) -> OceanError:
    stored = None if counter is None or counter["key"] is None else counter_from(counter)
    return _raised(lambda: reserve(stored, Take(**take), now))


def _raised(judge: Callable[[], Any]) -> OceanError:
    """What the kernel's own rule says to the same facts."""
    try:
        judge()
    except OceanError as error:
        return error
    return StoreFailed("the database refuses what this Ocean allows: they are of different versions")


_BY_CODE: dict[str, Callable[..., OceanError]] = {
    said.__name__: said
    for said in (
        attributes_need_a_run,
        counter,
        deadline_passed,
        dedupe_key_reused,
        lease_completed,
        lease_lost,
        lock_lost,
        no_such_lease,
        not_external,
        not_leased,
        promise,
        request_key_reused,
        retry_deleted,
        retry_id_taken,
        row_changed,
        row_of_ended_run,
        run_busy,
        run_ended,
        run_exists,
        run_not_found,
        run_of_another,
        session_of_others,
        signal_id_reused,
        signal_refused,
        tick_gone,
        tick_is_open,
        timers_need_a_run,
        too_many_attributes,
        unknown_clog,
    )
}
