"""Runs that start later than they are created: because of a rate, or debounced under a dedupe key."""

from typing import Any

from ocean.state.effects import Debounce, NewRun
from ocean.state.records import Delay, Run, changed
from ocean.state.transitions import delayed
from ocean.state.values import encode
from ocean.stores.sqlite.counters import reserve_tokens
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.keys import keys_of, name_keys
from ocean.stores.sqlite.run_info import put_attribute


def delayed_at_creation(u: Unit, run: Run, new: NewRun) -> Run:
    """Return the run as it is inserted. If its token is free now, it starts at once."""
    if new.rate is not None:
        free_at = reserve_tokens(u, new.rate)
        return delayed(run, Delay.RATE, new.rate.key, free_at, u.now) if free_at > u.now else run
    if new.debounce is not None and new.dedupe_key is not None:
        return delayed(run, Delay.DEBOUNCE, new.dedupe_key, _rest_at(new.debounce, run, u.now), u.now)
    return run


def debounce_again(u: Unit, run: Run, new: NewRun, queue: str | None) -> Run:
    """Apply a further creation of a debounced run: it replaces everything but the id, and moves the start."""
    assert new.debounce is not None
    assert new.dedupe_key is not None
    facts: dict[str, Any] = {"priority": new.priority, "max_attempts": new.retry.max_attempts}
    facts |= {"deadline_at": new.deadline_at, "queue": queue, "key_count": len(new.concurrency_keys)}
    if keys_of(u, run) != new.concurrency_keys:
        run = _with_new_keys(u, run, new)
    u.do("redefine_run", run_id=run.run_id, **facts)
    u.do("redefine_details", run_id=run.run_id, body_hash=new.body_hash, retry=encode(new.retry.as_json()))
    u.do("clear_attributes", run_id=run.run_id)
    for name, value in new.attributes.items():
        put_attribute(u, run, name, value)
    run = changed(run, **facts)
    run = u.save(delayed(run, Delay.DEBOUNCE, new.dedupe_key, _rest_at(new.debounce, run, u.now), u.now))
    payload = {"status": run.status, "wake_at": run.wake_at}
    event, seq = u.event(run.run_id, "run.debounced", payload, actor=new.actor)
    input = {"body": new.input, "actor": new.actor, "caused_by": event, "event_seq": seq}
    u.do("replace_created_input", run_id=run.run_id, **input)
    if run.key_count:
        # The result states whether a full concurrency key has parked the run.
        u.flush()
    return u.run(run.run_id)


def _with_new_keys(u: Unit, run: Run, new: NewRun) -> Run:
    """Replace the run's concurrency keys. It holds no slot, but must leave the lines of its old keys first."""
    u.save(delayed(run, Delay.DEBOUNCE, new.dedupe_key or "", u.now + 1, u.now))
    u.flush()
    u.do("forget_run_keys", run_id=run.run_id)
    name_keys(u, run.run_id, new.concurrency_keys)
    return u.run(run.run_id)


def _rest_at(debounce: Debounce, run: Run, now: int) -> int:
    # A faster clock may have created it in this clock's future; before that its input is not available.
    rest_at = max(now + debounce.ms, run.created_at)
    return rest_at if debounce.max_ms is None else min(rest_at, run.created_at + debounce.max_ms)
