"""What callers say, checked and made into what a store takes. Used by the kernel's verbs and by ticks alike."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypedDict

from ocean.kernel.attributes import checked_attributes
from ocean.kernel.backoff import RetryPolicy
from ocean.kernel.effects import NewRun, NewSignal
from ocean.kernel.errors import InvalidValue
from ocean.kernel.records import Caller, FeedFilter
from ocean.kernel.store import Request
from ocean.kernel.values import body_hash, checked_id, checked_time, decode, encode


class Sentinel(Enum):
    UNSET = "unset"
    CLEAR = "clear"


UNSET: Final = Sentinel.UNSET
"""Not given: `create_run` without `input` makes an idle run, while `input=None` is an input."""
CLEAR: Final = Sentinel.CLEAR
"""Written to a row, removes it; `None` would store JSON null."""

DEFAULT_PRIORITY = 5
MOST_COUNT = 2**53


class RunOptions(TypedDict, total=False):
    """What may be said of a new run beside its clog, session and input, by whoever creates it."""

    retry: RetryPolicy | None
    priority: int
    """0 is the most urgent, 9 the most patient."""
    attributes: Mapping[str, Any] | None
    deadline_at: int | None
    dedupe_key: str | None
    dedupe_ms: int | None


def new_run(
    *,
    run_id: str,
    is_id_given: bool,
    session_id: str,
    clog_id: str,
    input: Any,
    retry: RetryPolicy | None = None,
    priority: int = DEFAULT_PRIORITY,
    attributes: Mapping[str, Any] | None = None,
    deadline_at: int | None = None,
    dedupe_key: str | None = None,
    dedupe_ms: int | None = None,
    actor: str | None,
    parent_run_id: str | None = None,
    notify_parent: bool = False,
    on_parent_end: Literal["live", "cancel"] = "live",
) -> NewRun:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidValue(f"priority is 0 (most urgent) to 9, got {priority!r}")
    if dedupe_ms is not None:
        checked_count(dedupe_ms, "dedupe_ms", least=1)
        if dedupe_key is None:
            raise InvalidValue("dedupe_ms needs a dedupe_key")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidValue(f"retry is a RetryPolicy, got {retry!r}")
    checked_choice(on_parent_end, "on_parent_end", ("live", "cancel"))
    if deadline_at is not None:
        checked_time(deadline_at, "deadline_at")
    retry = retry or RetryPolicy()
    text = None if input is UNSET else encode(input, "input")
    checked = checked_attributes({} if attributes is None else attributes)
    checked_flag(notify_parent, "notify_parent")
    body = {
        "session_id": checked_id(session_id, "session_id"),
        "clog_id": checked_id(clog_id, "clog_id"),
        "input": _said(text),
        "retry": retry.as_json(),
        "priority": priority,
        "attributes": checked,
        "deadline_at": deadline_at,
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
        dedupe_key=optional_id(dedupe_key, "dedupe_key"),
        dedupe_ms=dedupe_ms,
        body_hash=body_hash(body),
        parent_run_id=parent_run_id,
        notify_parent=notify_parent,
        on_parent_end=on_parent_end,
        actor=optional_id(actor, "actor"),
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
    checked_flag(if_idle, "if_idle")
    checked_flag(required, "required")
    if deliver_at is not None:
        checked_time(deliver_at, "deliver_at")
    if if_idle and deliver_at is not None:
        raise InvalidValue("if_idle speaks of now; it cannot be combined with deliver_at")
    return NewSignal(
        run_id=checked_id(run_id, "run_id"),
        body=text,
        body_hash=body_hash([_said(text), deliver_at]),
        signal_id=optional_id(signal_id, "signal_id"),
        deliver_at=deliver_at,
        if_idle=if_idle,
        actor=optional_id(actor, "actor"),
        required=required,
    )


def _said(text: str | None) -> list[Any]:
    """What is hashed of an input: its value, whatever the order of keys, and apart from one that was left out."""
    return [] if text is None else [decode(text)]


def request_of(key: str | None, verb: str, body: Any) -> Request | None:
    """A request key with the hash of what was asked under it."""
    return None if key is None else Request(checked_id(key, "request_key"), body_hash([verb, body]))


def optional_id(value: str | None, what: str) -> str | None:
    return None if value is None else checked_id(value, what)


def checked_flag(value: bool, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{what} is True or False, got {value!r}")
    return value


def checked_choice(value: str, what: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidValue(f"{what} is {' or '.join(map(repr, choices))}, got {value!r}")
    return value


def checked_caller(caller: Caller | None) -> Caller:
    if caller is None:
        return Caller()
    if not isinstance(caller, Caller):
        raise InvalidValue(f"caller is a Caller(actor, roles), got {caller!r}")
    optional_id(caller.actor, "actor")
    return Caller(caller.actor, checked_names(caller.roles, "roles"))


def checked_count(value: int, what: str, *, least: int = 0, most: int = MOST_COUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        span = f"from {least} to {most}" if most < MOST_COUNT else f"of at least {least}"
        raise InvalidValue(f"{what} is an integer {span}, got {value!r}")
    return value


def checked_limit(limit: int) -> int:
    return checked_count(limit, "limit", least=1, most=1_000)


def checked_names(names: Iterable[str] | None, what: str) -> tuple[str, ...]:
    """Several ids; a lone text would be taken for its letters."""
    if names is None:
        return ()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidValue(f"{what} are a list of strings, got {names!r}")
    return tuple(checked_id(name, f"each of {what}") for name in names)


def feed_filter(
    run_id: str | None,
    session_id: str | None,
    clog_id: str | None,
    types: Iterable[str],
    correlation_id: str | None,
) -> FeedFilter:
    return FeedFilter(
        optional_id(run_id, "run_id"),
        optional_id(session_id, "session_id"),
        optional_id(clog_id, "clog_id"),
        checked_names(types, "types"),
        optional_id(correlation_id, "correlation_id"),
    )
