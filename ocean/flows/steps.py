"""A step of a flow: its function is called, retried by its own policy, and its result stored."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote

from ocean.flows.errors import FlowError, FlowMisused, StepFailed
from ocean.flows.journal import MOST_RESULT_BYTES, Entry, Journal, undone_name
from ocean.flows.replay import IN_STEP, MOST_STEPS_A_TICK, Operation, Replay, Undo
from ocean.kernel.invoke import invoke
from ocean.kernel.step_records import count_as_retry, has_begun, store_begin, stored_result
from ocean.kernel.tick_log import log_failed_step
from ocean.state.backoff import RetryPolicy, next_attempt_at
from ocean.state.errors import Abort, InvalidValue, LockLost, StoreBusy, StoreFailed
from ocean.state.outcomes import ErrorInfo, aborted, error_info
from ocean.state.tracebacks import carry, without_traceback
from ocean.state.values import decode, encode

STORE_ERRORS = (LockLost, StoreBusy, StoreFailed)
"""These fail the tick: they do not count as an attempt of a step, and the flow must not catch them."""
FINAL = (Abort, FlowError, FlowMisused, InvalidValue)
"""Errors that another attempt would raise again."""
DEFAULT_RETRY = RetryPolicy()
UNDO_RETRY = RetryPolicy(max_attempts=10)
ABORT = "abort"


class _Raised(Exception):
    """Carries an error of the step's function through `tick.step`, whose own errors are no failed attempts."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@dataclass(frozen=True, slots=True)
class StepCall:
    """What a step calls. `key` is its idempotency key, unless it has its own."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    policy: RetryPolicy
    undo: Callable[..., Any] | None = None
    key: str | None = None


def stored_name(journal: Journal, name: str) -> str:
    """Return the name under which the result is stored, unique over all generations of the run."""
    return f"{name}@{journal.generation}" if journal.generation else name


def step_key(journal: Journal, name: str) -> str:
    """Return the idempotency key of a step. It is the same for every attempt, in every tick."""
    return f"{journal.key}/{quote(stored_name(journal, name), safe='')}"


async def take_step(replay: Replay, operation: Operation, call: StepCall) -> Any:
    """Return the result of a step: the stored one, or that of a call now.

    Raises the error of a step that has failed finally, and suspends the flow until the next attempt.
    """
    entry = operation.entry
    if replay.can_look and not (entry is not None and entry.is_done):
        entry = await _look(replay, operation, entry, call) or entry
    if entry is not None:
        _remember_undo(replay, entry, call)
    if entry is None or not entry.is_done:
        replay.check_cancelled(operation)
        replay.suspend_if_frozen(operation.branch)
        entry = await _attempt(replay, operation, entry, call)
        _remember_undo(replay, entry, call)
    if entry.error is not None:
        raise _failure(entry)
    return copy.deepcopy(entry.value)


def _remember_undo(replay: Replay, entry: Entry, call: StepCall) -> None:
    """Note how to undo a step that may have had its effect: it is done, has failed, or was begun."""
    if call.undo is not None:
        entry.undo = entry.undo or replay.journal.next_undo
        replay.undos[entry.name] = Undo(entry, call.undo, call.policy)


async def _look(replay: Replay, operation: Operation, entry: Entry | None, call: StepCall) -> Entry | None:
    """Return the entry of a step that was stored, done or begun, in a tick that was not committed."""
    tick, journal, name = replay.tick, replay.journal, stored_name(replay.journal, operation.name)
    found = await stored_result(tick, name, journal.run_id)
    if found is not None:
        before = entry or Entry(operation.kind, operation.name, began_at=replay.now)
        return await _done(replay, operation, before, decode(found), call)
    has_undo = call.undo is not None and (entry is None or not entry.undo)
    if has_undo and await has_begun(tick, name, journal.run_id):
        begun = entry or Entry(operation.kind, operation.name, began_at=replay.now)
        begun.undo = journal.next_undo
        return replay.record(operation, begun)
    return None


async def _attempt(replay: Replay, operation: Operation, entry: Entry | None, call: StepCall) -> Entry:
    if entry is not None and entry.until is not None and entry.until > replay.now:
        replay.suspend(operation.branch, entry.until)
    entry = await _begin(replay, operation, entry, call)
    key = call.key or step_key(replay.journal, operation.name)

    async def act(_: str) -> Any:
        return await _call(call.fn, key, call.args, operation.name)

    replay.steps_taken += 1
    try:
        value = await replay.tick.step(
            stored_name(replay.journal, operation.name), act, scope="run", look=replay.may_have_stored
        )
    except _Raised as raised:
        await _record_failure(replay, operation, entry, raised.error, call)
    return await _done(replay, operation, entry, value, call)


async def _begin(replay: Replay, operation: Operation, entry: Entry | None, call: StepCall) -> Entry:
    """Return the entry of a step that may have its effect now; suspend the flow if this tick must be committed first.

    That a step with an undo is begun is stored before its effect: with the journal if that is written anyway, else by
    itself. If the run is ended from outside, a replay of the journal must find the step, so all before it is committed.
    """
    is_new = call.undo is not None and (entry is None or not entry.undo)
    entry = entry or Entry(operation.kind, operation.name, began_at=replay.now)
    is_late = replay.steps_taken > 0 and 2 * replay.tick.elapsed_ms >= replay.tick.deadline - replay.tick.now
    must_commit = is_late or replay.steps_taken >= MOST_STEPS_A_TICK or (is_new and replay.is_dirty)
    if is_new:
        entry.undo = replay.journal.next_undo
        replay.record(operation, entry)
    if must_commit:
        replay.commit_first(operation.branch)
    if is_new:
        await store_begin(replay.tick, stored_name(replay.journal, operation.name))
    return entry


async def _done(replay: Replay, operation: Operation, entry: Entry, value: Any, call: StepCall) -> Entry:
    """Record the result of a step. The last step that is done is undone first, whenever it was begun."""
    done = Entry(entry.kind, entry.name, is_done=True, value=value, attempts=entry.attempts + 1)
    done.undo = replay.journal.next_undo if call.undo is not None else 0
    if done.kind != "now":
        type = "flow.undone" if done.kind == "undo" else "flow.step"
        await replay.emit(operation.branch, type, {"step": _step_name(done), "attempts": done.attempts})
    return replay.record(operation, done)


async def _call(fn: Callable[..., Any], key: str, args: tuple[Any, ...], name: str) -> Any:
    inside = IN_STEP.set(name)
    try:
        value = await invoke(fn, key, *args)
        size = len(encode(value, f"the result of step {name!r}").encode())
        if size > MOST_RESULT_BYTES:
            raise InvalidValue(
                f"the result of step {name!r} must be at most {MOST_RESULT_BYTES} bytes of JSON, got {size}: store it "
                "elsewhere and return a reference"
            )
        return value
    except STORE_ERRORS:
        raise
    except Exception as error:
        raise _Raised(error) from error
    finally:
        IN_STEP.reset(inside)


async def _record_failure(
    replay: Replay, operation: Operation, entry: Entry, error: Exception, call: StepCall
) -> NoReturn:
    """Record a failed attempt and suspend the flow: until the next attempt, or until the final error is committed."""
    attempts, policy = entry.attempts + 1, call.policy
    info = aborted(error) if isinstance(error, Abort) else error_info(error)
    stored = storable(info.as_json() | ({ABORT: True} if isinstance(error, Abort) else {}))
    failed = dataclasses.replace(entry, error=stored, attempts=attempts, until=None)
    count_as_retry(replay.tick, _step_name(failed), info)
    payload = {"step": _step_name(failed), "attempt": attempts, "error": _public_error(failed)}
    keep_one_traceback(replay.journal, failed)
    seed = (replay.journal.key, operation.name)
    next_at = next_attempt_at(policy, policy.max_attempts, attempts, entry.began_at, replay.now, seed)
    _log_failure(replay, failed, info, policy, None if isinstance(error, FINAL) else next_at)
    if not isinstance(error, FINAL) and next_at is not None:
        failed.until = next_at
        await replay.emit(
            operation.branch,
            "flow.undo_retrying" if failed.kind == "undo" else "flow.step_retrying",
            payload | {"next_at": next_at},
        )
        replay.record(operation, failed)
        replay.suspend(operation.branch, next_at)
    failed.is_done = True
    await replay.emit(operation.branch, "flow.undo_failed" if failed.kind == "undo" else "flow.step_failed", payload)
    replay.record(operation, failed)
    # If the flow acted on the error before it is committed, a crash would allow another attempt, which might succeed.
    replay.commit_first(operation.branch)


def _log_failure(replay: Replay, failed: Entry, info: ErrorInfo, policy: RetryPolicy, next_at: int | None) -> None:
    tick, name = replay.tick, f"undo of {_step_name(failed)}" if failed.kind == "undo" else failed.name
    next_ms = None if next_at is None else next_at - replay.now
    log_failed_step(tick, name, failed.attempts, policy.max_attempts, info, next_ms)


def keep_one_traceback(journal: Journal, failed: Entry) -> None:
    """Leave the traceback only in the entry that failed last: a journal may have a thousand of them."""
    for each in journal.entries.values():
        if each is not failed:
            each.error = without_traceback(each.error)


def storable(error: dict[str, Any]) -> dict[str, Any]:
    """Return the error, with message and details escaped and cut if they cannot be stored as JSON."""
    try:
        encode(error)
    except InvalidValue:
        return error | {"message": ascii(error["message"])[:4000], "details": ascii(error["details"])[:4000]}
    return error


def _failure(entry: Entry) -> Exception:
    error = entry.error or {}
    if ABORT in error:
        failure: Exception = Abort(error["message"], code=error["code"], details=error["details"])
    else:
        failure = StepFailed(_step_name(entry), entry.attempts, without_traceback(_public_error(entry)) or {})
    carry(failure, error.get("where"))
    return failure


def _public_error(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in (entry.error or {}).items() if name != ABORT}


def _step_name(entry: Entry) -> str:
    return undone_name(entry) if entry.kind == "undo" else entry.name
