"""Retry as new: the run that repeats a failed one. Pure."""

from collections.abc import Mapping
from typing import Any

from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import NewRun
from ocean.state.errors import RunHasNoInput, RunNotFailed
from ocean.state.ids import derived_id
from ocean.state.records import Key, Run, RunStatus
from ocean.state.values import decode


def retry_id(run: Run) -> str:
    """Return the id of the repeat: one per life of a failed run, so that it is repeated once."""
    return derived_id("retry", run.run_id, run.life)


def refuse_unless_failed(run: Run) -> None:
    """Raise `RunNotFailed` unless the run has failed."""
    if run.status is not RunStatus.FAILED:
        raise RunNotFailed(
            f"run {run.run_id} must be failed to be retried as new, it is {run.status}",
            run_id=run.run_id,
            status=run.status,
        )


def _rate(text: str | None) -> Take | None:
    if text is None:
        return None
    key, limit, per_ms = decode(text)
    return Take(key, limit=limit, per_ms=per_ms)


def retried(
    run: Run,
    details: Mapping[str, Any],
    attributes: Mapping[str, Any],
    keys: tuple[Key, ...],
    input: str | None,
    actor: str | None,
    now: int,
) -> NewRun:
    """Return the new run: created as the failed one was, but without a parent and a dedupe key."""
    if input is None:
        raise RunHasNoInput(
            f"run {run.run_id} was created without input and cannot be retried as new; create a run instead",
            run_id=run.run_id,
        )
    return NewRun(
        run_id=retry_id(run),
        is_id_given=True,
        session_id=run.session_id,
        clog_id=run.clog_id,
        input=input,
        retry=RetryPolicy(**decode(details["retry"])),
        priority=run.priority,
        attributes=attributes,
        deadline_at=None if run.deadline_at is None else now + run.deadline_at - run.created_at,
        dedupe_key=None,
        dedupe_ms=None,
        body_hash=details["body_hash"],
        actor=actor,
        correlation_id=run.correlation_id,
        retry_of=run.run_id,
        rate=_rate(details["rate"]),
        concurrency_keys=keys,
        queue=run.queue,
    )
