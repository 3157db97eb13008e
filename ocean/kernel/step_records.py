"""What a flow stores and reads about its steps beside their results, and how a failed attempt of one is counted.

These are no tools of a handler: a flow can use them safely because its journal has the order of its steps.
"""

from ocean.kernel.steps import step_key
from ocean.kernel.tick import Tick
from ocean.state.outcomes import ErrorLike, error_info
from ocean.state.records import Input

PAGE = 1_000


async def store_begin(tick: Tick, name: str) -> None:
    """Store for the run that a step is about to have its effect. Repeating it changes nothing."""
    context, lock = tick._use("ocean.steps.run"), tick._lock("step")
    if context.is_dry:
        return
    await context.flush()
    context.check_alive()
    await context.store.store_step(lock, 0, step_key(tick.clog_id, f"{name}#begun"), "null")


async def has_begun(tick: Tick, name: str, run_id: str) -> bool:
    """Return whether `store_begin` was called for a step of this run or of another run of the clog."""
    return await stored_result(tick, f"{name}#begun", run_id) is not None


async def stored_result(tick: Tick, name: str, run_id: str) -> str | None:
    """Return the JSON text of the result that a run of this clog has stored for a step; None if it has none."""
    context = tick._use("ocean.steps.run")
    stored = await context.store.read_step(run_id, 0, step_key(tick.clog_id, name))
    context.check_alive()
    return stored


async def open_inputs(tick: Tick) -> list[Input]:
    """Return the inputs that are available and that no commit has consumed: in a last tick, those of the tick before.

    They are ordered by number.
    """
    context = tick._context
    found: list[Input] = []
    after, left = 0, tick.run.pending_count
    while left > 0 and (page := await context.store.list_inputs(tick.run_id, after, PAGE)):
        after = page[-1].number
        unread = [each for each in page if each.consumed_tick is None]
        left -= len(unread)
        found += [each for each in unread if each.available_at <= tick.now]
    context.check_alive()
    return found


def count_as_retry(tick: Tick, step: str, error: ErrorLike) -> None:
    """Count this tick as `retry` in metrics and log, with the name of the step that failed and the error's code.

    For a tick that commits a failed attempt, whose stored outcome is that it waits. The first call counts.
    """
    if tick._context.failed_step is None:
        tick._context.failed_step = step, error_info(error).code
