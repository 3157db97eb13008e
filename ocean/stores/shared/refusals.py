"""Every refusal of a store, once. The name of a function here is the code that a function in the database raises, and
its arguments are the facts that are raised with it."""

from collections.abc import Callable, Mapping
from typing import Any

from ocean.state.attributes import MOST
from ocean.state.counters import Take, decide, reserve
from ocean.state.ends import refuse_if_ended
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
    RunNotIncomplete,
    SignalIdReused,
    SignalRefused,
    StoreFailed,
    UnknownClog,
    near_name,
)
from ocean.state.records import RunStatus
from ocean.state.transitions import call_must_stop, refuse_unless_held
from ocean.state.values import decode
from ocean.stores.shared.rows import Row, counter_from, run_from


def refusal(code: str, facts: Mapping[str, Any]) -> OceanError:
    """Return the error for a code that a function in the database has raised."""
    make_error = _BY_CODE.get(code)
    if make_error is None:
        return StoreFailed(f"the database refused with unknown code {code!r}; upgrade ocean-runtime")
    return make_error(**facts)


def run_not_found(run_id: str) -> OceanError:
    return RunNotFound(f"there is no run {run_id!r}", run_id=run_id)


def run_ended(run: Row) -> OceanError:
    return _raised(lambda: refuse_if_ended(run_from(run)))


def end_not_incomplete(run_id: str, status: str) -> OceanError:
    return RunNotIncomplete(
        f"run {run_id} must have ended without its last tick (end_incomplete), it is {status}",
        run_id=run_id,
        status=RunStatus(status),
    )


def lock_lost(run_id: str, epoch: int) -> OceanError:
    return _raised(lambda: refuse_unless_held(None, epoch, run_id))


def run_is_ending(run_id: str, ending: str) -> OceanError:
    return call_must_stop(run_id, ending)


def run_busy(run_id: str, status: str, locked_by: str | None, lock_expires_at: int | None) -> OceanError:
    facts = {"status": RunStatus(status), "locked_by": locked_by, "lock_expires_at": lock_expires_at}
    return RunBusy(f"run {run_id} must be idle, but is {status}", **facts)


def run_exists(run_id: str) -> OceanError:
    return RunExists(f"run {run_id!r} already exists with another body; choose another id")


def run_of_another(run_id: str, owner: str, clog_id: str) -> OceanError:
    return ClogError(f"run {run_id} belongs to clog {owner!r}, so clog {clog_id!r} must not delete it")


def session_of_others(session_id: str, run_id: str, owner: str, clog_id: str) -> OceanError:
    return ClogError(
        f"clog {clog_id!r} must not delete session {session_id!r}: run {run_id} in it belongs to clog {owner!r}"
    )


def row_of_ended_run(run_id: str) -> OceanError:
    return RunEnded(f"run {run_id} has ended, so its row must not be written")


def tick_gone(run_id: str, tick: int) -> OceanError:
    return LockLost(f"run {run_id} no longer has tick {tick}; the work of this call is discarded")


def tick_is_open(run_id: str, tick: int) -> OceanError:
    return ClogError(f"tick {tick} of run {run_id} must be committed before it is deleted")


def signal_id_reused(run_id: str, signal_id: str) -> OceanError:
    return SignalIdReused(f"signal id {signal_id!r} was already used for run {run_id} with another body; use a new id")


def signal_refused(run_id: str) -> OceanError:
    return SignalRefused(f"the signal to run {run_id} is required, but that run has ended or does not exist")


def timers_need_a_run() -> OceanError:
    return InvalidValue("timers must belong to a run, and this call has none")


def attributes_need_a_run() -> OceanError:
    return InvalidValue("attributes must belong to a run, and this call has none")


def too_many_attributes() -> OceanError:
    return InvalidValue(f"a run must have at most {MOST} attributes; remove some by setting them to None")


def unknown_clog(clog_id: str, names: list[str]) -> OceanError:
    return UnknownClog(f"no instance has registered a clog {clog_id!r}; {near_name(clog_id, names)}", clog_id=clog_id)


def not_external(clog_id: str) -> OceanError:
    return InvalidValue(f"`queue` must be absent: clog {clog_id!r} is not external")


def not_leased(clog_id: str) -> OceanError:
    return InvalidValue(
        f"clog {clog_id!r} must be external to lease its runs; runs of other clogs are moved by advance"
    )


def deadline_passed(deadline_at: int, now: int) -> OceanError:
    return InvalidValue(f"`deadline_at` must be in the future (now is {now}), got {deadline_at}")


def dedupe_key_reused(dedupe_key: str, run_id: str) -> OceanError:
    message = f"dedupe key {dedupe_key!r} is held by run {run_id}, which was created with another body"
    return DedupeKeyReused(message, run_id=run_id)


def request_key_reused(key: str) -> OceanError:
    return RequestKeyReused(f"request key {key!r} was already used for another request; choose a new key")


def retry_id_taken(run_id: str, new_id: str) -> OceanError:
    return RunExists(
        f"run {run_id} cannot be retried: run {new_id} has the id of its retry, but is not its retry", run_id=new_id
    )


def retry_deleted(run_id: str, new_id: str) -> OceanError:
    return RunNotFound(f"run {run_id} was retried as {new_id}, which has been deleted", run_id=new_id)


def no_such_lease() -> OceanError:
    return LeaseLost("there is no such lease: its run was deleted, or claim_work never returned this id")


def lease_lost(run_id: str, worker_id: str, status: str | None) -> OceanError:
    why = f"the run is {status}" if status else "the run was deleted"
    return LeaseLost(f"run {run_id} is no longer leased to {worker_id} ({why}); its work is discarded", run_id=run_id)


def lease_completed(run_id: str) -> OceanError:
    return LeaseCompleted(f"this lease of run {run_id} was already completed with another body")


def row_changed(run_id: str, read: int, version: int, text: str | None) -> OceanError:
    message = f"the row of run {run_id} has changed since version {read}; read it and complete with its `row_version`"
    return RowChanged(message, row=decode(text), row_version=version)


def counter(counter: Row | None, take: Mapping[str, Any], now: int) -> OceanError:
    stored = None if counter is None or counter["key"] is None else counter_from(counter)
    return _raised(lambda: decide(stored, Take(**take), now))


def promise(counter: Row | None, take: Mapping[str, Any], now: int) -> OceanError:
    stored = None if counter is None or counter["key"] is None else counter_from(counter)
    return _raised(lambda: reserve(stored, Take(**take), now))


def _raised(judge: Callable[[], Any]) -> OceanError:
    """Return the error that the same rule raises in Python for the same facts."""
    try:
        judge()
    except OceanError as error:
        return error
    return StoreFailed("the database refused what this version of Ocean allows; upgrade ocean-runtime")


_BY_CODE: dict[str, Callable[..., OceanError]] = {
    make_error.__name__: make_error
    for make_error in (
        attributes_need_a_run,
        counter,
        deadline_passed,
        end_not_incomplete,
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
        run_is_ending,
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
