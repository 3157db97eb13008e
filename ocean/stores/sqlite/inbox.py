"""The inbox: how inputs arrive, are assigned to a tick, and are consumed by its commit."""

from operator import itemgetter
from typing import Any

from ocean.state.effects import NewSignal, SetTimer
from ocean.state.ends import refuse_if_ended
from ocean.state.errors import RunEnded
from ocean.state.records import Input, InputKind, Run, RunStatus, SignalReceipt, changed
from ocean.state.transitions import input_arrived
from ocean.stores.shared import refusals
from ocean.stores.shared.claim_plan import MOST_INPUTS
from ocean.stores.shared.rows import input_from
from ocean.stores.sqlite.engine.unit_of_work import Unit

CONTINUATION_AT = -1
"""A continuation is available before any other input."""


def append_input(u: Unit, run_id: str, kind: InputKind, body: str | None, *, available_at: int, **facts: Any) -> int:
    """Number and store one input; returns its number. The caller updates the run's status."""
    run = u.run(run_id)
    run = u.save(changed(run, inbox_count=run.inbox_count + 1, pending_count=run.pending_count + 1))
    store_input(u, run, kind, body, available_at=available_at, **facts)
    return run.inbox_count


def store_input(
    u: Unit,
    run: Run,
    kind: InputKind,
    body: str | None,
    *,
    available_at: int,
    body_hash: str | None = None,
    signal_id: str | None = None,
    timer: str | None = None,
    actor: str | None = None,
    caused_by: str | None = None,
    event_seq: int | None = None,
    status_then: RunStatus | None = None,
) -> None:
    """Store the input that is already counted in `run.inbox_count`."""
    u.put_input(
        run_id=run.run_id,
        number=run.inbox_count,
        kind=kind,
        body=body,
        body_hash=body_hash,
        signal_id=signal_id,
        timer=timer,
        actor=actor,
        caused_by=caused_by,
        available_at=available_at,
        created_at=u.now,
        event_seq=event_seq,
        status_then=status_then,
        assigned_tick=None,
        consumed_tick=None,
    )


def deliver(u: Unit, signal: NewSignal, caused_by: str | None = None) -> SignalReceipt:
    """Deliver a signal from a client or from a tick."""
    run = u.run(signal.run_id)
    if signal.signal_id is not None:
        first = u.one("get_signal", run_id=run.run_id, signal_id=signal.signal_id)
        if first is not None:
            if first["body_hash"] != signal.body_hash:
                raise refusals.signal_id_reused(run.run_id, signal.signal_id)
            return SignalReceipt(run.run_id, first["number"], RunStatus(first["status_then"]), first["event_seq"])
    refuse_if_ended(run)
    if signal.if_idle and run.status is not RunStatus.IDLE:
        raise refusals.run_busy(run.run_id, run.status, run.locked_by, run.lock_expires_at)
    available_at = max(signal.deliver_at or 0, u.now)
    run = u.save(input_arrived(run, available_at, u.now))
    payload = {
        "number": run.inbox_count + 1,
        "kind": "signal",
        "signal_id": signal.signal_id,
        "available_at": available_at,
        "status": run.status,
    }
    event, seq = u.event(run.run_id, "run.signalled", payload, actor=signal.actor, caused_by=caused_by)
    number = append_input(
        u,
        run.run_id,
        InputKind.SIGNAL,
        signal.body,
        available_at=available_at,
        body_hash=signal.body_hash,
        signal_id=signal.signal_id,
        actor=signal.actor,
        caused_by=event,
        event_seq=seq,
        status_then=run.status,
    )
    return SignalReceipt(run.run_id, number, run.status, seq)


def deliver_if_alive(u: Unit, signal: NewSignal, caused_by: str | None) -> bool:
    """Deliver a signal between runs; False if the receiver has ended or does not exist."""
    if u.find(signal.run_id) is None:
        return False
    try:
        deliver(u, signal, caused_by)
    except RunEnded:
        return False
    return True


def set_timer(u: Unit, run_id: str, timer: SetTimer, facts: dict[str, Any]) -> None:
    """Append a named input that becomes available at its time; it replaces an unfired timer of the same name."""
    cancel_timer(u, run_id, timer.name)
    at = max(timer.at, u.now)
    payload = {"timer": timer.name, "at": at, "number": u.run(run_id).inbox_count + 1}
    event, _ = u.event(run_id, "timer.set", payload, **facts)
    append_input(u, run_id, InputKind.TIMER, timer.body, available_at=at, timer=timer.name, caused_by=event)


def cancel_timer(u: Unit, run_id: str, name: str) -> bool:
    gone = len(u.all("cancel_timer", run_id=run_id, timer=name))
    run = u.run(run_id)
    u.save(changed(run, pending_count=run.pending_count - gone))
    return gone > 0


def next_input_at(u: Unit, run_id: str) -> int | None:
    run = u.run(run_id)
    if not run.pending_count:
        return None
    held = u.buffered_inputs(run)
    if held is not None:
        return min((each["available_at"] for each in held.values() if each["assigned_tick"] is None), default=None)
    row = u.one("next_input_at", run_id=run_id)
    return None if row is None else int(row["available_at"])


def due_inputs(u: Unit, run: Run, takes_all: bool) -> tuple[Input, ...]:
    """The inputs that a tick would get if it began now: the first due input, or all."""
    if not run.pending_count:
        return ()
    limit = MOST_INPUTS if takes_all else 1
    held = u.buffered_inputs(run)
    if held is None:
        return tuple(map(input_from, u.all("due_inputs", run_id=run.run_id, now=u.now, limit=limit)))
    due = [each for each in held.values() if each["assigned_tick"] is None and each["available_at"] <= u.now]
    return tuple(map(input_from, sorted(due, key=_INPUT_ORDER)[:limit]))


_INPUT_ORDER = itemgetter("available_at", "number")


def fix_inputs(u: Unit, run: Run, inputs: tuple[Input, ...]) -> None:
    """Assign inputs to the tick that begins. They stay its inputs over every retry."""
    held = u.buffered_inputs(run) or {}
    for each in inputs:
        if each.number in held:
            u.put_input(**{**held[each.number], "assigned_tick": run.tick})
        else:
            u.later("assign_input", run.run_id, run_id=run.run_id, number=each.number, tick=run.tick)


def fixed_inputs(u: Unit, run: Run) -> tuple[Input, ...]:
    return tuple(map(input_from, u.all("tick_inputs", run_id=run.run_id, tick=run.tick)))


def consume_inputs(u: Unit, run: Run) -> list[int]:
    if not run.pending_count:
        return []
    cached = u.open_tick(run.run_id)
    if cached is not None:
        numbers = cached.numbers
    else:
        numbers = [row["number"] for row in u.all("unconsumed", run_id=run.run_id, tick=run.tick)]
    for number in numbers:
        u.later("consume_input", run.run_id, run_id=run.run_id, number=number, tick=run.tick)
    run = u.run(run.run_id)
    u.save(changed(run, pending_count=run.pending_count - len(numbers)))
    return numbers


def drop_timers(u: Unit, run_id: str) -> None:
    if not u.run(run_id).pending_count:
        return
    gone = len(u.all("drop_timers", run_id=run_id))
    run = u.run(run_id)
    u.save(changed(run, pending_count=run.pending_count - gone))
