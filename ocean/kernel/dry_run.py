"""The dry run: call the handler as `advance` would, and return what it would commit instead of committing it.

A dry run only reads. There is no lock and no claim: the tools buffer as always, streamed events are collected, and a
step without a stored result or a tool with an effect outside ends it (`CallContext.stop`).
"""

from collections.abc import Sequence
from typing import assert_never

import anyio

from ocean.clog.clog import Clog
from ocean.kernel.call_context import CallContext, DryRunOver
from ocean.kernel.runtime import Runtime
from ocean.kernel.store.claims import ClaimAsk, NotClaimable, RowsAsk
from ocean.kernel.tick_run import context_of, outcome_of
from ocean.state.dry_run_result import DryEvent, DryNewRun, DryRow, DryRun, DrySignal, DryStop, DryTimer
from ocean.state.effects import Effects, NewEvent, NewRun, RowWrite, SetTimer, StoredRow
from ocean.state.eligibility import Hold
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait, error_info
from ocean.state.records import Claim
from ocean.state.values import decode

NO_EPOCH = 0
"""Lower than the epoch of every claim: if a dry run did write, the store would refuse it."""


async def dry_run_tick(runtime: Runtime, run_id: str, hard_ms: int | None) -> DryRun:
    """Show the run's next tick, or why it would not be called now."""
    found = await runtime.store.preview_claim(ClaimAsk(runtime.claimable(None), runtime.instance_id, 1, run_id=run_id))
    if isinstance(found, NotClaimable):
        return DryRun(run_id, holds=found.holds or _no_worker(found), end=found.end)
    claim = found._replace(lock=found.lock._replace(epoch=NO_EPOCH))
    clog = runtime.registry.get(claim.run.clog_id)
    context = context_of(runtime, claim, claim.call, is_dry=True)
    outcome = await _call(context, clog, hard_ms)
    effects = Effects() if isinstance(outcome, Retry) else context.effects
    now = await _rows_now(context, effects.writes)
    rows: tuple[DryRow, ...] = ()
    try:
        rows = tuple(_row(write, before) for write, before in zip(effects.writes, now, strict=True))
    except Exception as error:
        # A row function that raises in the commit makes the attempt fail.
        if outcome is not None:
            outcome, effects = Retry(error_info(error)), Effects()
    return _shown(claim, context, outcome, effects, rows)


def _no_worker(found: NotClaimable) -> tuple[Hold, ...]:
    """A run that is neither held nor ending has an expired lease, which a real `advance` takes back."""
    message = "the lease has expired: the next advance takes it back, then another worker can claim it"
    return () if found.end else (Hold("needs_worker", message),)


async def _call(context: CallContext, clog: Clog, hard_ms: int | None) -> Outcome | None:
    """Return the handler's outcome, or None if the dry run was stopped, even if the handler caught that."""
    outcome = None
    with anyio.CancelScope() as hard:
        cancel = context.clock.call_later(hard_ms, hard.cancel) if hard_ms is not None else None
        try:
            outcome = await outcome_of(context, clog, anyio.CancelScope())
        except BaseException as error:
            if not _is_stop(error):
                raise
        finally:
            if cancel is not None:
                cancel()
    if hard.cancelled_caught and context.stopped_at is None:
        context.stopped_at = DryStop("limit", "hard_ms", clog.clog_id)
    return _decoded(outcome) if context.stopped_at is None else None


def _decoded(outcome: Outcome | None) -> Outcome | None:
    match outcome:
        case Done(output):
            return Done(decode(output))
        case Continue(input):
            return Continue(decode(input))
        case Ok() | Wait() | Retry() | Failed() | None:
            return outcome
        case _:
            assert_never(outcome)


def _is_stop(error: BaseException) -> bool:
    """Return whether the error is the stop, also when a task group of the handler wraps it."""
    is_among = isinstance(error, BaseExceptionGroup) and error.subgroup(DryRunOver) is not None
    return is_among or isinstance(error, DryRunOver)


async def _rows_now(context: CallContext, writes: Sequence[RowWrite]) -> list[StoredRow]:
    if not writes or context.run is None:
        return []
    keys = tuple(write.key for write in writes)
    read = await context.store.read_rows(RowsAsk(context.run.clog_id, context.session_id, context.run.run_id, keys))
    return [read.rows[key] for key in keys]


def _row(write: RowWrite, before: StoredRow) -> DryRow:
    text = write.text if write.apply is None else write.apply(before.text)
    key = write.key
    return DryRow(
        scope=key.scope,
        clog_id=key.clog_id,
        before=decode(before.text),
        after=decode(text),
        is_new=before.version == 0,
        is_cleared=text is None,
        session_id=key.session_id,
        run_id=key.run_id,
        tick=key.tick,
        row_id=key.row_id,
    )


def _shown(
    claim: Claim, context: CallContext, outcome: Outcome | None, effects: Effects, rows: tuple[DryRow, ...]
) -> DryRun:
    return DryRun(
        run_id=claim.run.run_id,
        tick=claim.tick,
        call=claim.call,
        attempt=claim.run.attempt if claim.run.ending is None else claim.run.end_attempt,
        reason=claim.reason,
        inputs=claim.inputs,
        outcome=outcome,
        events=tuple(_event(new, True) for new in context.streamed)
        + tuple(_event(new, False) for new in effects.events),
        rows=rows,
        signals=tuple(
            DrySignal(new.run_id, decode(new.body), new.signal_id, new.deliver_at, new.required)
            for new in effects.signals
        ),
        runs=tuple(map(_new_run, effects.runs)),
        timers=tuple(
            DryTimer(timer.name, timer.at, decode(timer.body))
            if isinstance(timer, SetTimer)
            else DryTimer(timer.name, None)
            for timer in effects.timers
        ),
        attributes=dict(effects.attributes),
        takes=tuple(effects.takes),
        deleted_runs=tuple(run_id for _, run_id in effects.delete_runs),
        deleted_ticks=tuple(effects.delete_ticks),
        deletes_session=effects.delete_session_by is not None,
        releases_dedupe_key=effects.release_dedupe_key,
        stopped_at=context.stopped_at,
    )


def _event(new: NewEvent, is_streamed: bool) -> DryEvent:
    return DryEvent(new.type, decode(new.payload), new.clog_id, is_streamed)


def _new_run(new: NewRun) -> DryNewRun:
    return DryNewRun(
        run_id=new.run_id,
        clog_id=new.clog_id,
        session_id=new.session_id,
        input=decode(new.input),
        has_input=new.input is not None,
        priority=new.priority,
        attributes=new.attributes,
        deadline_at=new.deadline_at,
        dedupe_key=new.dedupe_key,
        concurrency_keys=new.concurrency_keys,
        queue=new.queue,
        rate=new.rate,
        notify_parent=new.notify_parent,
        on_parent_end=new.on_parent_end,
    )
