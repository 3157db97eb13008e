"""What may be asked of schedules: of the clog in a session, or of one schedule's run."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from clogs.schedule.clog import TargetGone, arm, fire, schedule
from clogs.schedule.spec import TIMING, Spec, changed, read_spec
from clogs.schedule.state import ScheduleState, new_state
from clogs.targets import check_target
from ocean import DedupeKeyReused, InvalidValue, Refuse, RetryPolicy, Tick

FOR_EVER = RetryPolicy(max_attempts=None, backoff_max_ms=300_000)
MOST_SHOWN = 1_000


@schedule.method
async def add(tick: Tick, payload: Any) -> dict[str, Any]:
    """A new schedule in this session. The same name and words again answer the first one."""
    if not tick.session_id:
        raise InvalidValue("say in which session the schedule is to be: session_id")
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
            f"there is a schedule {spec.name!r} in this session, with other words; update or remove that one",
            code="schedule_exists",
            http_status=409,
        ) from None
    return {"run_id": run_id, "name": spec.name, "next_at": new_state(spec, tick.now).next_at}


@schedule.method
async def find(tick: Tick, payload: Any) -> str | None:
    """The run of the schedule with this name in this session."""
    name = payload if isinstance(payload, str) else _field(payload, "name")
    found = (await tick.read(keys=[name])).by_key[name]
    return None if found is None else found.run_id


@schedule.method
async def upcoming(tick: Tick, payload: Any) -> list[dict[str, Any]]:
    """The next `n` times: of a schedule, or, asked of the clog, of the one that the payload describes."""
    said = dict(payload) if isinstance(payload, dict) else {}
    n = said.pop("n", 5)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_SHOWN:
        raise InvalidValue(f"n is how many times to show, 1 to {MOST_SHOWN}")
    if tick.has_run:
        state = await _state(tick)
        n = n if state.left is None else min(n, state.left)
    else:
        state = new_state(read_spec({"target": {"clog_id": "none"}, **said}), tick.now)
    if tick.has_run and tick.run.is_ended:
        return []
    times = state.plan.after(max(state.last_at, tick.now))
    return _shown(islice(times, n), state.spec.zone)


@schedule.method
async def show(tick: Tick, payload: Any) -> dict[str, Any]:
    """A schedule: what it was told, and how far it has come."""
    state = await _state(tick)
    cron = state.plan.cron
    return {
        "run_id": tick.run_id,
        "status": tick.run.status,
        "paused": tick.run.paused,
        "spec": state.told,
        "says": cron.says() if cron else f"Every {state.spec.every_ms} ms",
        "next_at": None if tick.run.is_ended else state.next_at,
        "fired": state.fired,
        "fired_at": state.fired_at,
        "skipped": state.skipped,
        "queued": state.queue,
    }


@schedule.method
async def update(tick: Tick, payload: Any) -> dict[str, Any]:
    """Change what a schedule was told. A new timing counts from now: what is still due of the old one is let go."""
    state = await _state(tick)
    spec = changed(state.spec, payload)
    if "target" in payload:
        await check_target(tick, clog_id=spec.target.clog_id, run_id=spec.target.run_id)
    state.told = spec.given
    if TIMING & payload.keys():
        state.last_at = max(state.last_at, tick.now)
    if state.next_at is None:
        raise InvalidValue("so changed, the schedule has no time left; remove it instead")
    await tick.emit("schedule.updated", {"fields": sorted(payload)})
    await arm(tick, state)
    await tick.write(run=state)
    return {"run_id": tick.run_id, "next_at": state.next_at}


@schedule.method
async def trigger(tick: Tick, payload: Any) -> dict[str, Any]:
    """Fire once now, whatever its times, its pause, its limit and its other runs say. None of them is touched by it."""
    state = await _state(tick)
    try:
        run_id = await fire(tick, state, tick.now, by_hand=True)
    except TargetGone:
        raise Refuse("the run that it signals has ended", code="target_ended", http_status=409) from None
    return {"run_id": run_id}


async def _state(tick: Tick) -> ScheduleState:
    """What a schedule knows from its first tick on."""
    if not tick.has_run:
        raise InvalidValue("this is asked of a schedule's run, not of the clog")
    state: ScheduleState | None = (await tick.read(run=True)).run
    if state is None:
        raise Refuse("the schedule has not begun; poke, and ask again", code="not_begun", http_status=409)
    return state


def _check_has_times(spec: Spec, now: int) -> None:
    if new_state(spec, now).next_at is None:
        raise InvalidValue("the schedule would never fire: all its times are before now, or after its end")


def _shown(times: Iterable[int], zone: str) -> list[dict[str, Any]]:
    where = ZoneInfo(zone)
    return [{"at": at, "local": datetime.fromtimestamp(at / 1_000, where).isoformat()} for at in times]


def _field(payload: Any, name: str) -> str:
    value = payload.get(name) if isinstance(payload, dict) else None
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"the payload is a {name}, or an object with one")
    return value
