"""What callers say, checked and made into what a store takes. Used by the kernel's verbs and by ticks alike."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal

from ocean.kernel.attributes import checked_attributes
from ocean.kernel.backoff import RetryPolicy
from ocean.kernel.errors import InvalidValue
from ocean.kernel.store import NewRun, NewSignal, Request
from ocean.kernel.values import body_hash, checked_id, checked_time, decode, encode


class Sentinel(Enum):
    UNSET = "unset"
    CLEAR = "clear"


UNSET: Final = Sentinel.UNSET
"""Not given: `create_run` without `input` makes an idle run, while `input=None` is an input."""
CLEAR: Final = Sentinel.CLEAR
"""Written to a row, removes it; `None` would store JSON null."""

DEFAULT_PRIORITY = 5


def new_run(
    *,
    run_id: str,
    is_id_given: bool,
    session_id: str,
    clog_id: str,
    input: Any,
    retry: RetryPolicy | None,
    priority: int,
    attributes: Mapping[str, Any] | None,
    deadline_at: int | None,
    dedupe_key: str | None,
    dedupe_ms: int | None,
    actor: str | None,
    parent_run_id: str | None = None,
    notify_parent: bool = False,
    on_parent_end: Literal["live", "cancel"] = "live",
) -> NewRun:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidValue(f"priority is 0 (most urgent) to 9, got {priority!r}")
    if dedupe_ms is not None and (dedupe_key is None or dedupe_ms <= 0):
        raise InvalidValue("dedupe_ms is a positive time and needs a dedupe_key")
    if on_parent_end not in ("live", "cancel"):
        raise InvalidValue(f"on_parent_end is 'live' or 'cancel', got {on_parent_end!r}")
    if deadline_at is not None:
        checked_time(deadline_at, "deadline_at")
    retry = retry or RetryPolicy()
    text = None if input is UNSET else encode(input, "input")
    checked = checked_attributes(attributes or {})
    body = {
        "session_id": checked_id(session_id, "session_id"),
        "clog_id": checked_id(clog_id, "clog_id"),
        "input": _said(text),
        "retry": retry.as_json(),
        "priority": priority,
        "attributes": checked,
        "deadline_at": deadline_at,
        "parent_run_id": parent_run_id,
        "notify_parent": notify_parent,
        "on_parent_end": on_parent_end,
    }
    return NewRun(
        run_id=checked_id(run_id, "run_id"),
        is_id_given=is_id_given,
        session_id=session_id,
        clog_id=clog_id,
        input=text,
        retry=retry,
        priority=priority,
        attributes=checked,
        deadline_at=deadline_at,
        dedupe_key=None if dedupe_key is None else checked_id(dedupe_key, "dedupe_key"),
        dedupe_ms=dedupe_ms,
        body_hash=body_hash(body),
        parent_run_id=parent_run_id,
        notify_parent=notify_parent,
        on_parent_end=on_parent_end,
        actor=None if actor is None else checked_id(actor, "actor"),
    )


def new_signal(
    run_id: str,
    input: Any,
    *,
    signal_id: str | None,
    deliver_at: int | None,
    actor: str | None,
    if_idle: bool = False,
    required: bool = False,
) -> NewSignal:
    text = None if input is UNSET else encode(input, "input")
    if deliver_at is not None:
        checked_time(deliver_at, "deliver_at")
    if if_idle and deliver_at is not None:
        raise InvalidValue("if_idle speaks of now; it cannot be combined with deliver_at")
    return NewSignal(
        run_id=checked_id(run_id, "run_id"),
        body=text,
        body_hash=body_hash([_said(text), deliver_at]),
        signal_id=None if signal_id is None else checked_id(signal_id, "signal_id"),
        deliver_at=deliver_at,
        if_idle=if_idle,
        actor=None if actor is None else checked_id(actor, "actor"),
        required=required,
    )


def _said(text: str | None) -> list[Any]:
    """What is hashed of an input: its value, whatever the order of keys, and apart from one that was left out."""
    return [] if text is None else [decode(text)]


def request_of(key: str | None, verb: str, body: Any) -> Request | None:
    """A request key with the hash of what was asked under it."""
    return None if key is None else Request(checked_id(key, "request_key"), body_hash([verb, body]))


def checked_limit(limit: int, most: int = 1_000) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidValue(f"limit is 1 to {most}, got {limit!r}")
    return limit
