"""The clog and its tick: due times fire, and the next time becomes the timer, in one commit. Methods are in `api`."""

from typing import Any

from clogs.schedule.spec import Spec, read_spec
from clogs.schedule.state import ScheduleState, new_state
from clogs.schedule.times import admit, due
from clogs.targets import can_be_signalled
from ocean import Clog, DedupeKeyReused, Done, Failed, InvalidValue, Ok, Outcome, RetryPolicy, Tick

LONGEST_ID = 200
"""A schedule's id is part of the dedupe keys of its runs, which have at most 256 bytes."""

schedule = Clog("schedule", run_state=ScheduleState, generic=["call", "cancel", "pause", "delete"])
TIMER = "next"
NOT_ENDED = ("idle", "pending", "active", "waiting")


@schedule.on_advance
async def advance(tick: Tick) -> Outcome:
    state: ScheduleState | None = (await tick.read(run=True)).run
    if state is None:
        try:
            if len(tick.run_id.encode()) > LONGEST_ID:
                raise InvalidValue(f"the run_id of a schedule must have at most {LONGEST_ID} bytes")
            state = new_state(read_spec(tick.input), tick.run.created_at)
        except InvalidValue as error:
            await tick.release_dedupe_key()
            return Failed({"code": error.code, "message": error.message})
    return await fire_what_is_due(tick, state)


@schedule.on_end
async def end_cancelled(tick: Tick) -> Outcome:
    """Release the name of a schedule that was cancelled."""
    state: ScheduleState | None = (await tick.read(run=True)).run
    if state is not None:
        await end(tick, state, "cancelled")
    else:
        await tick.release_dedupe_key()
    return Ok()


class TargetGone(Exception):
    """The run to be signalled has ended, or does not exist any more."""


async def fire_what_is_due(tick: Tick, state: ScheduleState) -> Outcome:
    """Fire, queue or skip every time up to now. The run row must have been read; this writes it."""
    spec = state.spec
    due_now = due(state.plan, spec.missed, spec.grace_ms, spec.catch_up, after=state.last_at, now=tick.now)
    times = due_now.times if state.left is None else due_now.times[: state.left]
    is_busy = spec.overlap != "allow" and await _is_busy(tick)
    admitted = admit(spec.overlap, is_busy=is_busy, queue=tuple(state.queue), times=times)
    try:
        for at in admitted.starts:
            if await fire(tick, state, at) is not None:
                state.fired += 1
                state.fired_at = at
    except TargetGone:
        return await end(tick, state, "target_ended")
    await _emit_skipped(tick, "missed", due_now.missed, due_now.until, due_now.or_more)
    if admitted.dropped:
        await _emit_skipped(tick, "overlap", len(admitted.dropped), admitted.dropped[-1])
    state.last_at = due_now.until
    state.queue = list(admitted.queue)
    state.skipped += due_now.missed + len(admitted.dropped)
    return await wait_for_next(tick, state)


async def wait_for_next(tick: Tick, state: ScheduleState) -> Outcome:
    """Wait for the next time; end the schedule if there is none and no time is queued."""
    next_at = state.next_at
    if next_at is None and not state.queue:
        return await end(tick, state, "limit" if state.left == 0 else "no_more_times")
    await arm(tick, state)
    await tick.write(run=state)
    return Ok()


async def arm(tick: Tick, state: ScheduleState) -> None:
    """Set the timer and the attributes by which schedules are listed."""
    next_at = state.next_at
    if next_at is None:
        await tick.cancel_timer(TIMER)
    else:
        await tick.set_timer(TIMER, at=next_at, input={"intended_at": next_at})
    await tick.set_attributes(**attributes_of(state.spec), next_at=next_at, fired=state.fired)


def attributes_of(spec: Spec) -> dict[str, str | None]:
    target = spec.target
    shown = target.clog_id if target.clog_id is not None else f"run {target.run_id}"
    return {"name": spec.name, "plan": _cut(spec.summary), "target": _cut(shown or "")}


async def end(tick: Tick, state: ScheduleState, reason: str) -> Outcome:
    await tick.cancel_timer(TIMER)
    await tick.set_attributes(next_at=None, fired=state.fired)
    await tick.release_dedupe_key()
    await tick.write(run=state)
    return Done({"reason": reason, "fired": state.fired, "fired_at": state.fired_at, "skipped": state.skipped})


async def fire(tick: Tick, state: ScheduleState, at: int, *, by_hand: bool = False) -> str | None:
    """Create the run, or send the signal, of this time. Return the run's id; None if another run has its key."""
    times = {"schedule_id": tick.run_id, "intended_at": at, "previous_at": state.fired_at}
    target = state.spec.target
    run_id = target.run_id
    if run_id is not None:
        if not await can_be_signalled(tick, run_id):
            raise TargetGone(run_id)
        await tick.signal(run_id, target.input_with(times), signal_id=None if by_hand else _key(tick, at))
    else:
        run_id = await _create(tick, state.spec, target.input_with(times), at, by_hand)
    if run_id is None:
        await _emit_skipped(tick, "key_taken", 1, at)
        return None
    await tick.emit("schedule.fired", {"intended_at": at, "run_id": run_id, "by_hand": by_hand})
    return run_id


async def _create(tick: Tick, spec: Spec, input: Any, at: int, by_hand: bool) -> str | None:
    target = spec.target
    assert target.clog_id is not None
    retry = None if target.max_attempts is None else RetryPolicy(max_attempts=target.max_attempts)
    try:
        return await tick.create_run(
            clog_id=target.clog_id,
            input=input,
            notify_parent=spec.overlap != "allow",
            attributes={**target.attributes, "schedule": spec.name or tick.run_id, "intended_at": at},
            priority=target.priority,
            queue=target.queue,
            retry=retry,
            deadline_at=None if target.deadline_ms is None else tick.now + target.deadline_ms,
            dedupe_key=None if by_hand else _key(tick, at),
        )
    except DedupeKeyReused:
        return None


def _key(tick: Tick, at: int) -> str:
    """Return the dedupe key of this schedule and this time."""
    return f"schedule/{tick.run_id}/{at}"


async def _is_busy(tick: Tick) -> bool:
    return bool((await tick.list_runs(parent_run_id=tick.run_id, status=NOT_ENDED, limit=1)).runs)


async def _emit_skipped(tick: Tick, reason: str, count: int, until: int, or_more: bool = False) -> None:
    if count:
        await tick.emit("schedule.skipped", {"reason": reason, "count": count, "or_more": or_more, "until": until})


def _cut(text: str) -> str:
    return text.encode()[:256].decode(errors="ignore")
