"""A step of a flow: taken at most once at a time, tried again by its own policy, and remembered."""

import copy
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import quote

from ocean.flows.errors import FlowError, FlowMisused, StepFailed
from ocean.flows.journal import MOST_RESULT_BYTES, Entry, Journal, undone_name
from ocean.flows.replay import IN_STEP, MOST_STEPS_A_TICK, Operation, Play, Undo
from ocean.kernel.invoke import invoke
from ocean.state.backoff import RetryPolicy, next_attempt_at
from ocean.state.errors import Abort, InvalidValue, LockLost, StoreBusy, StoreFailed
from ocean.state.outcomes import error_info
from ocean.state.values import encode

THE_DATABASE = (LockLost, StoreBusy, StoreFailed)
"""Nobody's attempt, and not the flow's to catch."""
FINAL = (Abort, FlowError, FlowMisused, InvalidValue)
"""Trying once more would give the same."""
DEFAULT_RETRY = RetryPolicy()
UNDO_RETRY = RetryPolicy(max_attempts=10)
ABORT = "abort"


class _Raised(Exception):
    """Out of a step's function, past the tool that has called it: what the tool itself raises is no failed attempt."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _NotStored(Exception):
    pass


def stored_name(journal: Journal, name: str) -> str:
    """The step's name in the whole run, over all its generations."""
    return f"{name}@{journal.generation}" if journal.generation else name


def step_key(journal: Journal, name: str) -> str:
    """The same for every attempt of a step, in whichever tick it is made."""
    return f"{journal.key}/{quote(stored_name(journal, name), safe='')}"


async def taken(
    play: Play,
    operation: Operation,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: RetryPolicy,
    undo: Callable[..., Any] | None = None,
) -> Any:
    """The step's result: remembered, or now. Raises what it failed with for good, or puts the flow away."""
    entry = operation.entry
    if entry is None or not entry.is_done:
        entry = await _attempted(play, operation, entry, fn, args, policy, undo is not None)
    if entry.error is not None:
        raise _failure(entry)
    if undo is not None:
        play.undos.append(Undo(entry.undo, entry.name, undo, entry.value, policy))
    return copy.deepcopy(entry.value)


async def _attempted(
    play: Play,
    operation: Operation,
    entry: Entry | None,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    policy: RetryPolicy,
    has_undo: bool,
) -> Entry:
    branch = operation.branch
    if play.is_frozen and not play.can_look:
        play.suspend(branch)
    if not play.is_frozen:
        _wait_for_its_time(play, operation, entry, has_undo)
    entry = entry or Entry(operation.kind, operation.name, began_at=play.now)
    key = step_key(play.journal, operation.name)

    async def call(_: str) -> Any:
        if play.is_frozen:
            raise _NotStored
        return await _called(fn, key, args, operation.name)

    play.steps_taken += 1
    try:
        value = await play.tick.step(
            stored_name(play.journal, operation.name), call, scope="run", look=play.may_have_stored
        )
    except _NotStored:
        play.suspend(branch)
    except _Raised as raised:
        await _failed(play, operation, entry, raised.error, policy)
    done = Entry(entry.kind, entry.name, is_done=True, value=value, attempts=entry.attempts + 1)
    done.undo = 1 + max((each.undo for each in play.journal.entries.values()), default=0) if has_undo else 0
    if done.kind != "now":
        type = "flow.undone" if done.kind == "undo" else "flow.step"
        await play.tell(operation.branch, type, {"step": _step(done), "attempts": done.attempts})
    return play.record(operation, done)


def _wait_for_its_time(play: Play, operation: Operation, entry: Entry | None, has_undo: bool) -> None:
    if entry is not None and entry.until is not None and entry.until > play.now:
        play.suspend(operation.branch, entry.until)
    is_late = play.steps_taken > 0 and 2 * play.tick.elapsed_ms >= play.tick.deadline - play.tick.now
    # If the run is ended from outside, what is to be undone is found by playing the journal: so it must be committed.
    if is_late or play.steps_taken >= MOST_STEPS_A_TICK or (has_undo and play.is_dirty):
        play.commit_first(operation.branch)


async def _called(fn: Callable[..., Any], key: str, args: tuple[Any, ...], name: str) -> Any:
    inside = IN_STEP.set(name)
    try:
        value = await invoke(fn, key, *args)
        size = len(encode(value, f"the result of step {name!r}").encode())
        if size > MOST_RESULT_BYTES:
            raise InvalidValue(
                f"the result of step {name!r} is {size} bytes of JSON, over {MOST_RESULT_BYTES}: store it elsewhere, "
                "return a reference"
            )
        return value
    except THE_DATABASE:
        raise
    except Exception as error:
        raise _Raised(error) from error
    finally:
        IN_STEP.reset(inside)


async def _failed(play: Play, operation: Operation, entry: Entry, error: Exception, policy: RetryPolicy) -> NoReturn:
    """Remember the failed attempt, and put the flow away: until the next one, or until it is known as the last."""
    attempts, info = entry.attempts + 1, error_info(error)
    said = info.as_json() | ({ABORT: True} if isinstance(error, Abort) else {})
    if isinstance(error, Abort):
        said["message"] = str(error) or "aborted"
    failed = Entry(entry.kind, entry.name, error=storable(said), attempts=attempts, began_at=entry.began_at)
    told = {"step": _step(failed), "attempt": attempts, "error": _told(failed)}
    seed = (play.journal.key, operation.name)
    next_at = next_attempt_at(policy, policy.max_attempts, attempts, entry.began_at, play.now, seed)
    if not isinstance(error, FINAL) and next_at is not None:
        failed.until = next_at
        await play.tell(
            operation.branch,
            "flow.undo_retrying" if failed.kind == "undo" else "flow.step_retrying",
            told | {"next_at": next_at},
        )
        play.record(operation, failed)
        play.suspend(operation.branch, next_at)
    failed.is_done = True
    await play.tell(operation.branch, "flow.undo_failed" if failed.kind == "undo" else "flow.step_failed", told)
    play.record(operation, failed)
    # Were it not committed before the flow acts on it, a crash would let the step be tried again, and perhaps succeed.
    play.commit_first(operation.branch)


def storable(said: dict[str, Any]) -> dict[str, Any]:
    try:
        encode(said)
    except InvalidValue:
        return said | {"message": ascii(said["message"])[:4000], "details": ascii(said["details"])[:4000]}
    return said


def _failure(entry: Entry) -> Exception:
    error = entry.error or {}
    if ABORT in error:
        return Abort(error["message"], code=error["code"], details=error["details"])
    return StepFailed(_step(entry), entry.attempts, _told(entry))


def _told(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in (entry.error or {}).items() if name != ABORT}


def _step(entry: Entry) -> str:
    return undone_name(entry) if entry.kind == "undo" else entry.name
