"""Creating runs, and finding the run that the same id or dedupe key has created before."""

from functools import lru_cache
from typing import Any

from ocean.state.backoff import RetryPolicy
from ocean.state.effects import NewRun
from ocean.state.errors import OceanError
from ocean.state.records import DEFAULT_QUEUE, ClogRecord, InputKind, Run, RunInfo, RunStatus
from ocean.state.values import encode, encode_own
from ocean.stores.shared import refusals
from ocean.stores.shared.row_rules import holder_from, is_debounced
from ocean.stores.shared.rows import info_from
from ocean.stores.sqlite.delaying import debounce_again, delayed_at_creation
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.inbox import store_input
from ocean.stores.sqlite.keys import name_keys
from ocean.stores.sqlite.run_info import info, put_attribute


def create(u: Unit, new: NewRun, caused_by: str | None = None) -> Run:
    """Insert a run, or return the one that the same id or dedupe key has created from the same body."""
    clog = u.clog(new.clog_id)
    if clog is None:
        raise unknown_clog(u, new.clog_id)
    earlier = _earlier_run(u, new)
    is_again = earlier is not None and new.debounce is not None and is_debounced(earlier, u.now)
    if earlier is not None and not is_again:
        return earlier
    if new.deadline_at is not None and new.deadline_at <= u.now:
        raise refusals.deadline_passed(new.deadline_at, u.now)
    queue = _queue(new, clog)
    if earlier is not None:
        return debounce_again(u, earlier, new, queue)
    u.ensure_session(new.session_id)
    run = _insert(u, new, queue)
    event, seq = u.counted_event(run, "run.created", _created_payload(run, new), actor=new.actor, caused_by=caused_by)
    if new.input is not None:
        facts: dict[str, Any] = {"actor": new.actor, "caused_by": event, "event_seq": seq}
        store_input(u, run, InputKind.CREATED, new.input, available_at=u.now, **facts)
    if run.key_count:
        # The result states whether a full concurrency key has parked the run.
        u.save(run)
        u.flush()
    return u.run(run.run_id)


def _created_payload(run: Run, new: NewRun) -> str:
    if new.parent_run_id is None and run.delayed_by is None and new.retry_of is None:
        return _usual_payload(run.status, new.priority)
    payload = {"status": run.status, "parent_run_id": new.parent_run_id, "priority": new.priority}
    if run.delayed_by:
        payload |= {"delayed_by": run.delayed_by, "delay_key": run.delay_key, "wake_at": run.wake_at}
    if new.retry_of is not None:
        payload["retry_of"] = new.retry_of
    return encode_own(payload)


@lru_cache(maxsize=256)
def _usual_payload(status: RunStatus, priority: int) -> str:
    return encode_own({"status": status, "parent_run_id": None, "priority": priority})


def create_and_show(u: Unit, new: NewRun) -> RunInfo:
    """Create a run and return its public record. A new run needs no further read."""
    run = create(u, new)
    if run.run_id not in u.created:
        return info(u, run)
    details = {"output": None, "error": None, "dedupe_key": new.dedupe_key, "retry_of": new.retry_of}
    attributes = [(name, encode(value)) for name, value in sorted(new.attributes.items())]
    return info_from(run, details, attributes, new.concurrency_keys)


def holder_of_key(u: Unit, clog_id: str, session_id: str, dedupe_key: str) -> tuple[str, str] | None:
    """The run that holds a dedupe key now, and the hash of the body that created it."""
    row = u.one("get_dedupe", clog_id=clog_id, session_id=session_id, dedupe_key=dedupe_key)
    run = u.find(row["run_id"]) if row is not None and row["debounced"] else None
    return holder_from(row, run, u.now)


def release_key(u: Unit, run_id: str) -> None:
    u.do("release_dedupe", run_id=run_id)
    u.do("clear_dedupe_key", run_id=run_id)


def _earlier_run(u: Unit, new: NewRun) -> Run | None:
    same_id = u.find(new.run_id) if new.is_id_given else None
    if same_id is not None:
        details = u.one("get_details", run_id=new.run_id)
        if details is None or details["body_hash"] != new.body_hash:
            raise refusals.run_exists(new.run_id)
        return same_id
    if new.dedupe_key is None:
        return None
    holder = holder_of_key(u, new.clog_id, new.session_id, new.dedupe_key)
    if holder is None:
        return None
    run_id, body_hash = holder
    if body_hash != new.body_hash and not (new.debounce is not None and is_debounced(u.find(run_id), u.now)):
        raise refusals.dedupe_key_reused(new.dedupe_key, run_id)
    return u.run(run_id)


def _insert(u: Unit, new: NewRun, queue: str | None) -> Run:
    parent = u.find(new.parent_run_id) if new.parent_run_id else None
    has_input = new.input is not None
    earlier = u.one("earlier_life", run_id=new.run_id) if new.is_id_given else None
    life = u.next_version() if new.is_id_given and (earlier or _is_log_cut(u)) else 0
    run = Run(
        run_id=new.run_id,
        session_id=new.session_id,
        clog_id=new.clog_id,
        parent_run_id=new.parent_run_id,
        correlation_id=new.correlation_id or (parent.correlation_id if parent else new.run_id),
        priority=new.priority,
        status=RunStatus.PENDING if has_input else RunStatus.IDLE,
        attempt=0,
        max_attempts=new.retry.max_attempts,
        ready_at=u.now if has_input else None,
        wake_at=None,
        deadline_at=new.deadline_at,
        locked_by=None,
        lock_expires_at=None,
        # A process may still hold a lock of a deleted run with this id: none of its epochs may be valid again. The
        # log's cursor has risen at least as often as any epoch. The keys that its ticks have passed to other systems
        # must not be repeated either.
        lock_epoch=life,
        life=life,
        tick=earlier["tick"] if earlier else 0,
        tick_open=False,
        paused=False,
        ending=None,
        # Already counts the event and the input of the creation, so that the row is written once.
        event_count=(earlier["run_seq"] if earlier else 0) + 1,
        inbox_count=int(has_input),
        pending_count=int(has_input),
        created_at=u.now,
        updated_at=u.now,
        ended_at=None,
        key_count=len(new.concurrency_keys),
        queue=queue,
    )
    run = delayed_at_creation(u, run, new)
    u.insert(run)
    u.put_details(
        run_id=run.run_id,
        body_hash=new.body_hash,
        retry=_policy_text(new.retry),
        notify_parent=new.notify_parent,
        on_parent_end=new.on_parent_end,
        dedupe_key=new.dedupe_key,
        retry_of=new.retry_of,
        rate=None if new.rate is None else encode([new.rate.key, new.rate.limit, new.rate.per_ms]),
    )
    name_keys(u, run.run_id, new.concurrency_keys)
    for name, value in new.attributes.items():
        put_attribute(u, run, name, value)
    if new.dedupe_key is not None:
        _hold_key(u, new)
    return run


@lru_cache(maxsize=256)
def _policy_text(policy: RetryPolicy) -> str:
    """Cached: most runs have the same policy."""
    return encode(policy.as_json())


def _queue(new: NewRun, clog: ClogRecord) -> str | None:
    if clog.external:
        return new.queue or DEFAULT_QUEUE
    if new.queue is not None and new.retry_of is None:
        raise refusals.not_external(new.clog_id)
    return None


def _is_log_cut(u: Unit) -> bool:
    """Whether retention has removed events. If so, the log does not show whether an id was used before."""
    floor = u.one("log_floor")
    return floor is not None and floor["seq"] > 0


def _hold_key(u: Unit, new: NewRun) -> None:
    key = {"clog_id": new.clog_id, "session_id": new.session_id, "dedupe_key": new.dedupe_key}
    lapsed = u.one("get_dedupe", **key)
    if lapsed is not None:
        release_key(u, lapsed["run_id"])
    expires_at = None if new.dedupe_ms is None else u.now + new.dedupe_ms
    debounced = new.debounce is not None
    u.do("insert_dedupe", **key, run_id=new.run_id, expires_at=expires_at, debounced=debounced)


def unknown_clog(u: Unit, clog_id: str) -> OceanError:
    return refusals.unknown_clog(clog_id, [row["clog_id"] for row in u.all("list_clogs")])
