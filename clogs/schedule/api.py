"""The methods of schedules. `add` and `find` are called on the clog, the others on a schedule's run."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from clogs.schedule.clog import TargetGone, arm, fire, schedule
from clogs.schedule.spec import TIMING, Spec, apply_changes, read_spec
from clogs.schedule.state import ScheduleState, new_state
from clogs.targets import check_target
from ocean import DedupeKeyReused, InvalidValue, Refuse, RetryPolicy, Tick

FOR_EVER = RetryPolicy(max_attempts=None, backoff_max_ms=300_000)
MOST_SHOWN = 1_000


@schedule.method
async def add(tick: Tick, payload: Any) -> dict[str, Any]:
    """Create a schedule in this session. A repeat with the same name and the same spec returns the first one."""
    if not tick.session_id:
        raise InvalidValue("session_id must be given: the session of the schedule")
    spec = read_spec(payload)
    await check_target(tick, clog_id=spec.target.clog_id, run_id=spec.target.run_id)
    _check_has_times(spec, tick.now)
    try:
        run_id = await tick.create_run(
            clog_id="schedule",
            input=spec.given,
            dedupe_key=spec.name,
            retry=FOR_EVER,
            attributes={"name": spec.name} if spec.name else {},
        )
    except DedupeKeyReused:
        raise Refuse(
            f"schedule {spec.name!r} exists in this session with a different spec; update or remove it",
            code="schedule_exists",
            http_status=409,
        ) from None
    return {"run_id": run_id, "name": spec.name, "next_at": new_state(spec, tick.now).next_at}


@schedule.method
async def find(tick: Tick, payload: Any) -> str | None:
    """Return the run id of the schedule with this name in this session, or None."""
    name = payload if isinstance(payload, str) else _field(payload, "name")
    found = (await tick.read(keys=[name])).by_key[name]
    return None if found is None else found.run_id


@schedule.method
async def upcoming(tick: Tick, payload: Any) -> list[dict[str, Any]]:
    """Return the next `n` times of a schedule or, called on the clog, of the schedule in the payload."""
    fields = dict(payload) if isinstance(payload, dict) else {}
    n = fields.pop("n", 5)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_SHOWN:
        raise InvalidValue(f"n must be between 1 and {MOST_SHOWN}, got {n!r}")
    if tick.has_run:
        state = await _state(tick)
        n = n if state.left is None else min(n, state.left)
    else:
        state = new_state(read_spec({"target": {"clog_id": "none"}, **fields}), tick.now)
    if tick.has_run and tick.run.is_ended:
        return []
    times = state.plan.after(max(state.last_at, tick.now))
    return _shown(islice(times, n), state.spec.zone)


@schedule.method
async def show(tick: Tick, payload: Any) -> dict[str, Any]:
    """Return a schedule's spec and progress."""
    state = await _state(tick)
    cron = state.plan.cron
    return {
        "run_id": tick.run_id,
        "status": tick.run.status,
        "paused": tick.run.paused,
        "spec": state.given,
        "says": cron.in_words() if cron else f"Every {state.spec.every_ms} ms",
        "next_at": None if tick.run.is_ended else state.next_at,
        "fired": state.fired,
        "fired_at": state.fired_at,
        "skipped": state.skipped,
        "queued": state.queue,
    }


@schedule.method
async def update(tick: Tick, payload: Any) -> dict[str, Any]:
    """Change a schedule's spec. A new timing applies from now on: due times of the old one do not fire."""
    state = await _state(tick)
    spec = apply_changes(state.spec, payload)
    if "target" in payload:
        await check_target(tick, clog_id=spec.target.clog_id, run_id=spec.target.run_id)
    state.given = spec.given
    if TIMING & payload.keys():
        state.last_at = max(state.last_at, tick.now)
    if state.next_at is None:
        raise InvalidValue("the changed schedule would never fire; remove it instead")
    await tick.emit("schedule.updated", {"fields": sorted(payload)})
    await arm(tick, state)
    await tick.write(run=state)
    return {"run_id": tick.run_id, "next_at": state.next_at}


@schedule.method
async def trigger(tick: Tick, payload: Any) -> dict[str, Any]:
    """Fire once now, regardless of times, pause, limit and running runs, and without changing any of them."""
    state = await _state(tick)
    try:
        run_id = await fire(tick, state, tick.now, by_hand=True)
    except TargetGone:
        raise Refuse(
            "the run that the schedule signals has ended; update the target, or remove the schedule",
            code="target_ended",
            http_status=409,
        ) from None
    return {"run_id": run_id}


async def _state(tick: Tick) -> ScheduleState:
    """Return the run's row, which exists after the first tick."""
    if not tick.has_run:
        raise InvalidValue("this method must be called on a schedule's run, not on the clog")
    state: ScheduleState | None = (await tick.read(run=True)).run
    if state is None:
        raise Refuse("the schedule has not had its first tick; poke, and retry", code="not_begun", http_status=409)
    return state


def _check_has_times(spec: Spec, now: int) -> None:
    if new_state(spec, now).next_at is None:
        raise InvalidValue("the schedule would never fire: it must have a time after now and before end_at")


def _shown(times: Iterable[int], zone: str) -> list[dict[str, Any]]:
    where = ZoneInfo(zone)
    return [{"at": at, "local": datetime.fromtimestamp(at / 1_000, where).isoformat()} for at in times]


def _field(payload: Any, name: str) -> str:
    value = payload.get(name) if isinstance(payload, dict) else None
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"the payload must be a {name}, or an object with a {name}")
    return value
