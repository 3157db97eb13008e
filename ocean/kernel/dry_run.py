"""The dry run: the handler is called as `advance` would call it, and what it asks for is shown instead of committed.

It only reads. There is no lock and no claim: the tools buffer as always, streamed events are kept aside, and a step
without a stored result or a tool that acts outside ends it (`Scene.stop`).
"""

from collections.abc import Sequence

import anyio

from ocean.clog.clog import Clog
from ocean.kernel.call_context import DryRunOver, Scene
from ocean.kernel.store import ClaimAsk, NotClaimable, RowsAsk
from ocean.kernel.tick_run import Crew, outcome_of, scene_of
from ocean.state.dry_run_result import DryEvent, DryNewRun, DryRow, DryRun, DrySignal, DryStop, DryTimer
from ocean.state.effects import Effects, NewEvent, NewRun, RowWrite, SetTimer, StoredRow
from ocean.state.eligibility import Hold
from ocean.state.outcomes import Continue, Done, Outcome, Retry, error_info
from ocean.state.records import Claim
from ocean.state.values import decode

NOBODYS_EPOCH = 0
"""Below every epoch that a claim gives out: should a dry call write after all, the fence refuses it."""


async def rehearsed(crew: Crew, run_id: str, hard_ms: int | None) -> DryRun:
    """Rehearse the run's next tick, or say why there is none now."""
    found = await crew.store.preview_claim(ClaimAsk(crew.claimable(None), crew.instance_id, 1, run_id=run_id))
    if isinstance(found, NotClaimable):
        return DryRun(run_id, holds=found.holds or _no_worker(found), end=found.end)
    claim = found._replace(lock=found.lock._replace(epoch=NOBODYS_EPOCH))
    clog = crew.registry.get(claim.run.clog_id)
    scene = scene_of(crew, claim, claim.call, is_dry=True)
    outcome = await _called(scene, clog, hard_ms)
    effects = Effects() if isinstance(outcome, Retry) else scene.effects
    now = await _rows_now(scene, effects.writes)
    rows: tuple[DryRow, ...] = ()
    try:
        rows = tuple(_row(write, before) for write, before in zip(effects.writes, now, strict=True))
    except Exception as error:
        # A function that raises in the commit is a failed attempt.
        if outcome is not None:
            outcome, effects = Retry(error_info(error)), Effects()
    return _shown(claim, scene, outcome, effects, rows)


def _no_worker(found: NotClaimable) -> tuple[Hold, ...]:
    """Neither held nor ending: its lease has lapsed, and an `advance` that is not dry takes it back."""
    message = "its worker stopped renewing: the next advance takes the lease back, and another worker may have it"
    return () if found.end else (Hold("needs_worker", message),)


async def _called(scene: Scene, clog: Clog, hard_ms: int | None) -> Outcome | None:
    """The handler's outcome, or None if the dry run was stopped, whatever the handler made of that."""
    outcome = None
    with anyio.CancelScope() as hard:
        cancel = scene.clock.call_later(hard_ms, hard.cancel) if hard_ms is not None else None
        try:
            outcome = await outcome_of(scene, clog, anyio.CancelScope())
        except BaseException as error:
            if not _is_stop(error):
                raise
        finally:
            if cancel is not None:
                cancel()
    if hard.cancelled_caught and scene.stopped_at is None:
        scene.stopped_at = DryStop("limit", "hard_ms", clog.clog_id)
    return _with_value(outcome) if scene.stopped_at is None else None


def _with_value(outcome: Outcome | None) -> Outcome | None:
    match outcome:
        case Done(output):
            return Done(decode(output))
        case Continue(input):
            return Continue(decode(input))
    return outcome


def _is_stop(error: BaseException) -> bool:
    """Also out of a task group of the handler's."""
    is_among = isinstance(error, BaseExceptionGroup) and error.subgroup(DryRunOver) is not None
    return is_among or isinstance(error, DryRunOver)


async def _rows_now(scene: Scene, writes: Sequence[RowWrite]) -> list[StoredRow]:
    if not writes or scene.run is None:
        return []
    keys = tuple(write.key for write in writes)
    answer = await scene.store.read_rows(RowsAsk(scene.run.clog_id, scene.session_id, scene.run.run_id, keys))
    return [answer.rows[key] for key in keys]


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


def _shown(claim: Claim, scene: Scene, outcome: Outcome | None, effects: Effects, rows: tuple[DryRow, ...]) -> DryRun:
    return DryRun(
        run_id=claim.run.run_id,
        tick=claim.tick,
        call=claim.call,
        attempt=claim.run.attempt,
        reason=claim.reason,
        inputs=claim.inputs,
        outcome=outcome,
        events=tuple(_event(new, True) for new in scene.streamed) + tuple(_event(new, False) for new in effects.events),
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
        stopped_at=scene.stopped_at,
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
