"""The clog itself: its ticks. What others may ask of a schedule is in `methods`."""

from clogs.schedule.firing import end, fire_what_is_due
from clogs.schedule.spec import read_spec
from clogs.schedule.state import State, new_state
from ocean import Clog, Failed, InvalidValue, Ok, Outcome, Tick

LONGEST_ID = 200
"""A schedule's id is part of the keys of what it fires, which have 256 bytes."""

schedule = Clog("schedule", run_state=State, generic=["call", "cancel", "pause", "delete"])


@schedule.on_advance
async def advance(tick: Tick) -> Outcome:
    state: State | None = (await tick.read(run=True)).run
    if state is None:
        try:
            if len(tick.run_id.encode()) > LONGEST_ID:
                raise InvalidValue(f"a schedule's run_id has at most {LONGEST_ID} bytes")
            state = new_state(read_spec(tick.input), tick.run.created_at)
        except InvalidValue as error:
            await tick.release_dedupe_key()
            return Failed({"code": error.code, "message": error.message})
    return await fire_what_is_due(tick, state)


@schedule.on_end
async def let_go(tick: Tick) -> Outcome:
    """A schedule that was cancelled gives its name back."""
    state: State | None = (await tick.read(run=True)).run
    if state is not None:
        await end(tick, state, "cancelled")
    else:
        await tick.release_dedupe_key()
    return Ok()
