"""Applying the effects of a tick or a direct call, inside its commit."""

from typing import Any, NamedTuple, assert_never

from ocean.state.attributes import MOST
from ocean.state.effects import CancelTimer, Effects, NewEvent, NewSignal, SetTimer
from ocean.state.transitions import inbox_changed
from ocean.state.values import encode
from ocean.stores.shared import refusals
from ocean.stores.sqlite.counters import take
from ocean.stores.sqlite.creating import create, holder_of_key, release_key
from ocean.stores.sqlite.deleting import delete_run, delete_session
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.inbox import cancel_timer, deliver_if_alive, next_input_at, set_timer
from ocean.stores.sqlite.run_info import put_attribute
from ocean.stores.sqlite.storage import have_changed, write_rows


class Origin(NamedTuple):
    """Where effects come from: a tick of a run, or a direct call on a run or a clog."""

    clog_id: str
    session_id: str | None
    run_id: str | None
    tick: int | None = None
    call: int | None = None
    actor: str | None = None
    caused_by: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of this origin that each of its events records."""
        return {"tick": self.tick, "call": self.call, "actor": self.actor, "caused_by": self.caused_by}


def is_outdated(u: Unit, effects: Effects, origin: Origin) -> bool:
    """Whether the call has read something that has changed since: a row's version, or the holder of a dedupe key."""
    created_here = {new.run_id for new in effects.runs}
    if have_changed(u, effects.writes, effects.guards, created_here):
        return True
    freed = origin.run_id if effects.release_dedupe_key else None
    for new in effects.runs:
        if new.dedupe_key is not None:
            holder = holder_of_key(u, new.clog_id, new.session_id, new.dedupe_key)
            if holder is not None and holder[0] != freed:
                return True
    return False


def apply_effects(u: Unit, effects: Effects, origin: Origin) -> None:
    """Apply all effects but deletions, which come last. If it raises, the whole unit is undone."""
    if effects.release_dedupe_key and origin.run_id is not None:
        release_key(u, origin.run_id)
    for each in effects.takes:
        take(u, each)
    for new in effects.runs:
        create(u, new, origin.caused_by)
    write_rows(u, effects.writes, origin.run_id)
    for event in effects.events:
        log(u, event, origin)
    for signal in effects.signals:
        _signal(u, signal, origin)
    for timer in effects.timers:
        _timer(u, timer, origin)
    if effects.attributes:
        _set_attributes(u, effects, origin)


def apply_deletions(u: Unit, effects: Effects, origin: Origin) -> None:
    for tick in effects.delete_ticks:
        _delete_tick(u, origin.run_id or "", tick)
    u.flush()
    for clog_id, run_id in effects.delete_runs:
        run = u.find(run_id)
        if run is not None and run.clog_id != clog_id:
            raise refusals.run_of_another(run_id, run.clog_id, clog_id)
        if run is not None:
            delete_run(u, run_id, origin.actor)
    if effects.delete_session_by is not None and origin.session_id is not None:
        clog_id = effects.delete_session_by
        foreign = u.one("session_foreign_run", session_id=origin.session_id, clog_id=clog_id)
        if foreign is not None:
            raise refusals.session_of_others(origin.session_id, foreign["run_id"], foreign["clog_id"], clog_id)
        delete_session(u, origin.session_id, origin.actor)


def _delete_tick(u: Unit, run_id: str, tick: int) -> None:
    run = u.run(run_id)
    if run.tick_open and tick == run.tick:
        raise refusals.tick_is_open(run_id, tick)
    u.do("delete_tick", run_id=run_id, tick=tick)


def log(u: Unit, event: NewEvent, origin: Origin) -> None:
    if origin.run_id is not None:
        u.event(
            origin.run_id,
            event.type,
            None,
            text=event.payload,
            tick=origin.tick,
            call=origin.call,
            actor=origin.actor,
            caused_by=origin.caused_by,
            clog_id=event.clog_id,
        )
    else:
        u.event_without_run(
            type=event.type,
            payload=event.payload,
            session_id=origin.session_id,
            clog_id=event.clog_id,
            actor=origin.actor,
        )


def _signal(u: Unit, signal: NewSignal, origin: Origin) -> None:
    if deliver_if_alive(u, signal, origin.caused_by):
        return
    if signal.required:
        raise refusals.signal_refused(signal.run_id)
    payload = encode({"to": signal.run_id, "kind": "signal", "signal_id": signal.signal_id})
    log(u, NewEvent("signal.undelivered", payload, origin.clog_id), origin)


def _timer(u: Unit, timer: SetTimer | CancelTimer, origin: Origin) -> None:
    if origin.run_id is None:
        raise refusals.timers_need_a_run()
    match timer:
        case SetTimer():
            set_timer(u, origin.run_id, timer, origin.facts)
        case CancelTimer():
            if cancel_timer(u, origin.run_id, timer.name):
                u.event(origin.run_id, "timer.cancelled", {"timer": timer.name}, **origin.facts)
        case _:
            assert_never(timer)
    if origin.tick is None:
        u.save(inbox_changed(u.run(origin.run_id), next_input_at(u, origin.run_id), u.now))


def _set_attributes(u: Unit, effects: Effects, origin: Origin) -> None:
    if origin.run_id is None:
        raise refusals.attributes_need_a_run()
    run = u.run(origin.run_id)
    for name, value in effects.attributes.items():
        if value is None:
            u.do("clear_attribute", run_id=run.run_id, name=name)
        else:
            put_attribute(u, run, name, value)
    if len(u.all("get_attributes", run_id=run.run_id)) > MOST:
        raise refusals.too_many_attributes()
    payload = dict(effects.attributes)
    u.event(run.run_id, "run.attributes_set", payload, **origin.facts)
