"""What callers say, checked and made into what a store takes. Used by the kernel's verbs and by ticks alike."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, TypedDict

from ocean.kernel.store import Request
from ocean.state.attributes import checked_attributes
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take, checked_take
from ocean.state.effects import Debounce, NewRun, NewSignal
from ocean.state.errors import InvalidValue
from ocean.state.filters import FeedFilter
from ocean.state.records import Caller, Key
from ocean.state.values import body_hash, checked_id, checked_time, encode_to_hash, shown


class Sentinel(Enum):
    UNSET = "unset"
    CLEAR = "clear"


UNSET: Final = Sentinel.UNSET
"""Not given: `create_run` without `input` makes an idle run, while `input=None` is an input."""
CLEAR: Final = Sentinel.CLEAR
"""Written to a row, removes it; `None` would store JSON null."""

DEFAULT_PRIORITY = 5
MOST_KEYS = 3
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
    concurrency_keys: Sequence[str | Key]
    """At most three names, shared by the runs of all clogs; `set_limit` says how many may work under one at once."""
    queue: str | None
    """Where workers find a run of an external clog; "default" unless said."""
    rate_key: str | None
    """Start when a token of this rate is free: `rate_limit` at once, then as many in every `rate_per_ms`."""
    rate_limit: int | None
    rate_per_ms: int | None
    debounce_ms: int | None
    """Start when nobody has created under the `dedupe_key` for so long; each creation replaces what the last said."""
    debounce_max_ms: int | None


_USUAL_RETRY = RetryPolicy()
_USUAL_RETRY_SAID = _USUAL_RETRY.as_json()


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
    concurrency_keys: Sequence[str | Key] = (),
    queue: str | None = None,
    rate_key: str | None = None,
    rate_limit: int | None = None,
    rate_per_ms: int | None = None,
    debounce_ms: int | None = None,
    debounce_max_ms: int | None = None,
    actor: str | None,
    parent_run_id: str | None = None,
    notify_parent: bool = False,
    on_parent_end: Literal["live", "cancel"] = "live",
) -> NewRun:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidValue(f"priority is 0 (most urgent) to 9, got {shown(priority)}")
    if dedupe_ms is not None:
        checked_count(dedupe_ms, "dedupe_ms", least=1)
        if dedupe_key is None:
            raise InvalidValue("dedupe_ms needs a dedupe_key")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidValue(f"retry is a RetryPolicy, got {shown(retry)}")
    checked_choice(on_parent_end, "on_parent_end", ("live", "cancel"))
    if deadline_at is not None:
        checked_time(deadline_at, "deadline_at")
    retry = retry or _USUAL_RETRY
    text, said = _said(input)
    checked = checked_attributes({} if attributes is None else attributes)
    checked_flag(notify_parent, "notify_parent")
    keys = checked_keys(concurrency_keys)
    optional_id(queue, "queue")
    rate = _rate(rate_key, rate_limit, rate_per_ms)
    debounce = _debounce(debounce_ms, debounce_max_ms)
    if rate is not None or debounce is not None:
        _refuse_undelayable(text, rate, debounce, dedupe_key, dedupe_ms, is_id_given)
    body: dict[str, Any] = {
        "session_id": checked_id(session_id, "session_id"),
        "clog_id": checked_id(clog_id, "clog_id"),
        "input": said,
        "retry": _USUAL_RETRY_SAID if retry is _USUAL_RETRY else retry.as_json(),
        "priority": priority,
        "attributes": checked,
        "deadline_at": deadline_at,
        "notify_parent": notify_parent,
        "on_parent_end": on_parent_end,
    }
    # Left out of the hash when not given: bodies hashed before there were such options still compare equal.
    if keys:
        body["concurrency_keys"] = [[key.name, key.hold] for key in keys]
    if queue is not None:
        body["queue"] = queue
    if rate is not None:
        body["rate"] = [rate.key, rate.limit, rate.per_ms]
    if debounce is not None:
        body["debounce"] = [debounce.ms, debounce.max_ms]
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
        concurrency_keys=keys,
        queue=queue,
        rate=rate,
        debounce=debounce,
    )


def _rate(key: str | None, limit: int | None, per_ms: int | None) -> Take | None:
    if key is None and limit is None and per_ms is None:
        return None
    if key is None or limit is None or per_ms is None:
        raise InvalidValue("rate_key, rate_limit and rate_per_ms go together: give all three or none")
    checked_id(key, "rate_key")
    checked_count(limit, "rate_limit", least=1)
    checked_count(per_ms, "rate_per_ms", least=1)
    return checked_take(key, limit=limit, per_ms=per_ms)


def _debounce(ms: int | None, max_ms: int | None) -> Debounce | None:
    if ms is None:
        if max_ms is not None:
            raise InvalidValue("debounce_max_ms needs debounce_ms")
        return None
    checked_count(ms, "debounce_ms", least=1)
    if max_ms is not None and checked_count(max_ms, "debounce_max_ms", least=1) < ms:
        raise InvalidValue(f"debounce_max_ms is at least debounce_ms, got {max_ms} and {ms}")
    return Debounce(ms, max_ms)


def _refuse_undelayable(
    input: str | None,
    rate: Take | None,
    debounce: Debounce | None,
    dedupe_key: str | None,
    dedupe_ms: int | None,
    is_id_given: bool,
) -> None:
    what = "rate_key" if debounce is None else "debounce_ms"
    if input is None:
        raise InvalidValue(f"{what} needs an input: a run without one does not start, but waits for a signal")
    if debounce is None:
        return
    if dedupe_key is None:
        raise InvalidValue("debounce_ms needs a dedupe_key: the creations that are one")
    if rate is not None:
        raise InvalidValue("debounce_ms and rate_key cannot be combined: a run starts by the one or by the other")
    if dedupe_ms is not None:
        raise InvalidValue("debounce_ms frees its dedupe_key at the first claim; leave dedupe_ms out")
    if is_id_given:
        raise InvalidValue("debounce_ms finds its run by the dedupe_key; leave run_id out")


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
    text, said = _said(input)
    checked_flag(if_idle, "if_idle")
    checked_flag(required, "required")
    if deliver_at is not None:
        checked_time(deliver_at, "deliver_at")
    if if_idle and deliver_at is not None:
        raise InvalidValue("if_idle speaks of now; it cannot be combined with deliver_at")
    return NewSignal(
        run_id=checked_id(run_id, "run_id"),
        body=text,
        body_hash=body_hash([said, deliver_at]),
        signal_id=optional_id(signal_id, "signal_id"),
        deliver_at=deliver_at,
        if_idle=if_idle,
        actor=optional_id(actor, "actor"),
        required=required,
    )


def _said(input: Any) -> tuple[str | None, list[Any]]:
    """An input's text, and what is hashed of it: its value, whatever the order of keys, apart from one left out."""
    if input is UNSET:
        return None, []
    text, value = encode_to_hash(input, "input")
    return text, [value]


def checked_keys(keys: Sequence[str | Key]) -> tuple[Key, ...]:
    if isinstance(keys, tuple) and not keys:
        return ()
    if isinstance(keys, str | Key) or not isinstance(keys, Iterable):
        raise InvalidValue(f"concurrency_keys are a list of names or Key(name, hold=…), got {shown(keys)}")
    checked = tuple(key if isinstance(key, Key) else Key(key) for key in keys)
    for key in checked:
        checked_id(key.name, "a concurrency key")
        checked_choice(key.hold, "hold", ("tick", "run"))
    names = [key.name for key in checked]
    if len(names) > MOST_KEYS:
        raise InvalidValue(f"a run has at most {MOST_KEYS} concurrency keys, got {shown(names)}")
    if len(set(names)) < len(names):
        raise InvalidValue(f"a run has each of its concurrency keys once, got {shown(names)}")
    return checked


LONGEST_REQUEST_KEY: Final = 600
"""For a key of 256 bytes behind the name of the actor whose it is."""


def request_of(key: str | None, verb: str, body: Any) -> Request | None:
    """A request key with the hash of what was asked under it."""
    return (
        None if key is None else Request(checked_id(key, "request_key", LONGEST_REQUEST_KEY), body_hash([verb, body]))
    )


def optional_id(value: str | None, what: str) -> str | None:
    return None if value is None else checked_id(value, what)


KERNEL_EVENTS: Final = frozenset({"run", "tick", "signal", "timer", "clog", "session", "call", "key", "tool"})
"""The first words of the kernel's own event types."""


def checked_event(type: str) -> str:
    checked_id(type, "an event's type", 128)
    if type.split(".")[0] in KERNEL_EVENTS:
        raise InvalidValue(f"event type {type!r} is the kernel's; clogs cannot write {sorted(KERNEL_EVENTS)}.*")
    return type


def checked_flag(value: bool, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{what} is True or False, got {shown(value)}")
    return value


def checked_choice(value: str, what: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidValue(f"{what} is {' or '.join(map(repr, choices))}, got {shown(value)}")
    return value


def checked_caller(caller: Caller | None) -> Caller:
    if caller is None:
        return Caller()
    if not isinstance(caller, Caller):
        raise InvalidValue(f"caller is a Caller(actor, roles), got {shown(caller)}")
    optional_id(caller.actor, "actor")
    return Caller(caller.actor, checked_names(caller.roles, "roles"))


def checked_count(value: int, what: str, *, least: int = 0, most: int = MOST_COUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        span = f"from {least} to {most}" if most < MOST_COUNT else f"of at least {least}"
        raise InvalidValue(f"{what} is an integer {span}, got {shown(value)}")
    return value


def checked_limit(limit: int) -> int:
    return checked_count(limit, "limit", least=1, most=1_000)


def checked_names(names: Iterable[str] | None, what: str) -> tuple[str, ...]:
    """Several ids, each once; a lone text would be taken for its letters."""
    if names is None or (isinstance(names, tuple) and not names):
        return ()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidValue(f"{what} are a list of strings, got {shown(names)}")
    return tuple(dict.fromkeys(checked_id(name, f"each of {what}") for name in names))


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
