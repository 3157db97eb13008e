"""New runs and signals: check what a caller passes and build the records that a store takes. For verbs and ticks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from ocean.kernel.arguments import UNSET, checked_choice, checked_count, checked_flag, optional_id
from ocean.state.attributes import checked_attributes
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take, checked_take
from ocean.state.effects import Debounce, NewRun, NewSignal
from ocean.state.errors import InvalidValue
from ocean.state.records import Key
from ocean.state.values import body_hash, checked_id, checked_time, encode_to_hash, shown

DEFAULT_PRIORITY = 5
MOST_KEYS = 3


class RunOptions(TypedDict, total=False):
    """The options of a new run, in addition to its clog, session and input."""

    retry: RetryPolicy | None
    priority: int
    """From 0, the most urgent, to 9."""
    attributes: Mapping[str, Any] | None
    deadline_at: int | None
    dedupe_key: str | None
    dedupe_ms: int | None
    concurrency_keys: Sequence[str | Key]
    """At most three names, shared by the runs of all clogs; `set_limit` sets how many may work under one at once."""
    queue: str | None
    """Where workers find a run of an external clog; by default "default"."""
    rate_key: str | None
    """Start when a token of this rate is free: `rate_limit` at once, then as many in every `rate_per_ms`."""
    rate_limit: int | None
    rate_per_ms: int | None
    debounce_ms: int | None
    """Start when no creation under the `dedupe_key` has come for so long; each creation replaces the one before."""
    debounce_max_ms: int | None


_DEFAULT_RETRY = RetryPolicy()
_DEFAULT_RETRY_JSON = _DEFAULT_RETRY.as_json()


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
    """Check the options of a new run; its `body_hash` identifies what it was created with."""
    _check_options(retry, priority, deadline_at, dedupe_key, dedupe_ms, queue, notify_parent, on_parent_end)
    text, hashed_input = _input(input)
    checked = checked_attributes({} if attributes is None else attributes)
    keys = checked_keys(concurrency_keys)
    rate, debounce = _rate(rate_key, rate_limit, rate_per_ms), _debounce(debounce_ms, debounce_max_ms)
    if rate is not None or debounce is not None:
        _refuse_undelayable(text, rate, debounce, dedupe_key, dedupe_ms, is_id_given)
    plain = (hashed_input, retry, priority, checked, deadline_at, notify_parent, on_parent_end)
    return NewRun(
        run_id=checked_id(run_id, "run_id"),
        is_id_given=is_id_given,
        session_id=checked_id(session_id, "session_id"),
        clog_id=checked_id(clog_id, "clog_id"),
        input=text,
        retry=retry or _DEFAULT_RETRY,
        priority=priority,
        attributes=checked,
        deadline_at=deadline_at,
        dedupe_key=optional_id(dedupe_key, "dedupe_key"),
        dedupe_ms=dedupe_ms,
        body_hash=_hash(session_id, clog_id, plain, keys, queue, rate, debounce),
        parent_run_id=parent_run_id,
        notify_parent=notify_parent,
        on_parent_end=on_parent_end,
        actor=optional_id(actor, "actor"),
        concurrency_keys=keys,
        queue=queue,
        rate=rate,
        debounce=debounce,
    )


def _check_options(
    retry: RetryPolicy | None,
    priority: int,
    deadline_at: int | None,
    dedupe_key: str | None,
    dedupe_ms: int | None,
    queue: str | None,
    notify_parent: bool,
    on_parent_end: str,
) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise InvalidValue(f"priority must be an integer from 0 (most urgent) to 9, got {shown(priority)}")
    if dedupe_ms is not None:
        checked_count(dedupe_ms, "dedupe_ms", least=1)
        if dedupe_key is None:
            raise InvalidValue("dedupe_ms needs a dedupe_key")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidValue(f"retry must be a RetryPolicy, got {shown(retry)}")
    if deadline_at is not None:
        checked_time(deadline_at, "deadline_at")
    optional_id(queue, "queue")
    checked_flag(notify_parent, "notify_parent")
    checked_choice(on_parent_end, "on_parent_end", ("live", "cancel"))


def _hash(
    session_id: str,
    clog_id: str,
    plain: tuple[list[Any], RetryPolicy | None, int, dict[str, Any], int | None, bool, str],
    keys: tuple[Key, ...],
    queue: str | None,
    rate: Take | None,
    debounce: Debounce | None,
) -> str:
    hashed_input, retry, priority, attributes, deadline_at, notify_parent, on_parent_end = plain
    body: dict[str, Any] = {
        "session_id": session_id,
        "clog_id": clog_id,
        "input": hashed_input,
        "retry": _DEFAULT_RETRY_JSON if retry is None else retry.as_json(),
        "priority": priority,
        "attributes": attributes,
        "deadline_at": deadline_at,
        "notify_parent": notify_parent,
        "on_parent_end": on_parent_end,
    }
    # Options that are not given are left out: bodies hashed before there were such options still compare equal.
    if keys:
        body["concurrency_keys"] = [[key.name, key.hold] for key in keys]
    if queue is not None:
        body["queue"] = queue
    if rate is not None:
        body["rate"] = [rate.key, rate.limit, rate.per_ms]
    if debounce is not None:
        body["debounce"] = [debounce.ms, debounce.max_ms]
    return body_hash(body)


def _input(input: Any) -> tuple[str | None, list[Any]]:
    """Return the text of an input, and what is hashed of it: its value, distinct from no input."""
    if input is UNSET:
        return None, []
    text, value = encode_to_hash(input, "input")
    return text, [value]


def _rate(key: str | None, limit: int | None, per_ms: int | None) -> Take | None:
    if key is None and limit is None and per_ms is None:
        return None
    if key is None or limit is None or per_ms is None:
        raise InvalidValue("rate_key, rate_limit and rate_per_ms must be given together or not at all")
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
        raise InvalidValue(f"debounce_max_ms must be at least debounce_ms, got {max_ms} and {ms}")
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
        raise InvalidValue(f"{what} needs an input: a run without one does not start, it waits for a signal")
    if debounce is None:
        return
    if dedupe_key is None:
        raise InvalidValue("debounce_ms needs a dedupe_key: creations under the same key become one run")
    if rate is not None:
        raise InvalidValue("debounce_ms must not be combined with rate_key: a run starts by one of them")
    if dedupe_ms is not None:
        raise InvalidValue("dedupe_ms must be left out with debounce_ms: the first claim frees the dedupe_key")
    if is_id_given:
        raise InvalidValue("run_id must be left out with debounce_ms: the run is found by its dedupe_key")


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
    """Check a signal; its `body_hash` identifies its input and delivery time."""
    text, hashed_input = _input(input)
    checked_flag(if_idle, "if_idle")
    checked_flag(required, "required")
    if deliver_at is not None:
        checked_time(deliver_at, "deliver_at")
    if if_idle and deliver_at is not None:
        raise InvalidValue("if_idle must not be combined with deliver_at: it compares the status now")
    return NewSignal(
        run_id=checked_id(run_id, "run_id"),
        body=text,
        body_hash=body_hash([hashed_input, deliver_at]),
        signal_id=optional_id(signal_id, "signal_id"),
        deliver_at=deliver_at,
        if_idle=if_idle,
        actor=optional_id(actor, "actor"),
        required=required,
    )


def checked_keys(keys: Sequence[str | Key]) -> tuple[Key, ...]:
    """Check the concurrency keys of a run: at most three, each once."""
    if isinstance(keys, tuple) and not keys:
        return ()
    if isinstance(keys, str | Key) or not isinstance(keys, Iterable):
        raise InvalidValue(f"concurrency_keys must be a list of names or Key(name, hold=…), got {shown(keys)}")
    checked = tuple(key if isinstance(key, Key) else Key(key) for key in keys)
    for key in checked:
        checked_id(key.name, "a concurrency key")
        checked_choice(key.hold, "hold", ("tick", "run"))
    names = [key.name for key in checked]
    if len(names) > MOST_KEYS:
        raise InvalidValue(f"concurrency_keys must have at most {MOST_KEYS} keys, got {shown(names)}")
    if len(set(names)) < len(names):
        raise InvalidValue(f"concurrency_keys must not name a key twice, got {shown(names)}")
    return checked
