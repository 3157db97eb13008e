"""Builders for tests of a `Store`: the calls that the kernel would make, in one line each."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from ocean.kernel.arguments import UNSET
from ocean.kernel.new_runs import new_run, new_signal
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk, Committed, RowsAsk, TickAnswer, TickCommit
from ocean.kernel.store.runs import CallCommit, Request
from ocean.state.backoff import RetryPolicy
from ocean.state.effects import Effects, NewRun, NewSignal, RowKey, RowWrite, StoredRow
from ocean.state.filters import FeedFilter
from ocean.state.outcomes import Ok, Outcome
from ocean.state.records import Claim, Event, Key, Run, RunInfo, RunStatus
from tests.stores.dump import Tables

TablesOf = Callable[[], Awaitable[Tables]]

CLOG = "counter"
OTHER_CLOG = "other"
LOCK_MS = 30_000


def a_run(
    run_id: str = "r",
    *,
    input: Any = UNSET,
    session_id: str = "s",
    clog_id: str = CLOG,
    retry: RetryPolicy | None = None,
    priority: int = 5,
    attributes: Mapping[str, Any] | None = None,
    deadline_at: int | None = None,
    dedupe_key: str | None = None,
    dedupe_ms: int | None = None,
    concurrency_keys: Sequence[str | Key] = (),
    queue: str | None = None,
    parent_run_id: str | None = None,
    notify_parent: bool = False,
    on_parent_end: Literal["live", "cancel"] = "live",
    **options: Any,
) -> NewRun:
    return new_run(
        run_id=run_id,
        is_id_given=True,
        session_id=session_id,
        clog_id=clog_id,
        input=input,
        retry=retry,
        priority=priority,
        attributes=attributes,
        deadline_at=deadline_at,
        dedupe_key=dedupe_key,
        dedupe_ms=dedupe_ms,
        concurrency_keys=concurrency_keys,
        queue=queue,
        actor=None,
        parent_run_id=parent_run_id,
        notify_parent=notify_parent,
        on_parent_end=on_parent_end,
        **options,
    )


def a_signal(
    run_id: str = "r",
    input: Any = UNSET,
    *,
    signal_id: str | None = None,
    deliver_at: int | None = None,
    if_idle: bool = False,
    required: bool = False,
) -> NewSignal:
    return new_signal(
        run_id,
        input,
        signal_id=signal_id,
        deliver_at=deliver_at,
        actor=None,
        if_idle=if_idle,
        required=required,
    )


def an_ask(
    *clog_ids: str,
    limit: int = 10,
    slot: int = 0,
    run_id: str | None = None,
    instance_id: str = "i-a",
    takes_all_inputs: bool = False,
) -> ClaimAsk:
    """Return a claim request, by default for both clogs; `an_ask("")` is that of an instance without clogs."""
    wanted = [clog_id for clog_id in clog_ids or (CLOG, OTHER_CLOG) if clog_id]
    clogs = {clog_id: ClaimableClog(clog_id, LOCK_MS, "1", takes_all_inputs) for clog_id in wanted}
    return ClaimAsk(clogs, instance_id, limit, slot, run_id)


NO_CLOGS = an_ask("")


async def pending(store: Store, run_id: str = "r", **given: Any) -> RunInfo:
    """Create a run that is due now."""
    return await store.create_run(a_run(run_id, **({"input": {}} | given)), None)


async def claim(store: Store, run_id: str | None = None, *, instance_id: str = "i-a") -> Claim:
    """Claim the one run that is due, or the one named, and begin its call."""
    claims = await store.claim_due(an_ask(run_id=run_id, limit=1, instance_id=instance_id))
    assert len(claims) == 1
    if claims[0].crash_company is not None:
        assert await store.call_apart([claims[0].lock]) == set()
    return claims[0]


async def claimed_run(store: Store, run_id: str = "r", *, instance_id: str = "i-a", **given: Any) -> Claim:
    """Create a run and claim it for its first tick."""
    await pending(store, run_id, **given)
    return await claim(store, run_id, instance_id=instance_id)


def commit_of(
    claim: Claim, outcome: Outcome | None = None, effects: Effects | None = None, call: int | None = None
) -> TickCommit:
    return TickCommit(
        lock=claim.lock,
        clog_id=claim.run.clog_id,
        tick=claim.tick,
        call=call or claim.call,
        outcome=outcome or Ok(),
        effects=effects or Effects(),
        instance_id="i-a",
        version="1",
        claimed_at=claim.claimed_at,
    )


async def commit(
    store: Store, claim: Claim, outcome: Outcome | None = None, effects: Effects | None = None
) -> TickAnswer:
    return await store.commit_tick(commit_of(claim, outcome, effects))


async def run_tick(
    store: Store, run_id: str, outcome: Outcome | None = None, effects: Effects | None = None
) -> RunStatus | None:
    """Claim a due run and commit an outcome for its handler."""
    result = await commit(store, await claim(store, run_id), outcome, effects)
    assert isinstance(result, Committed), result
    return result.status


async def ended_run(store: Store, run_id: str, outcome: Outcome, **given: Any) -> None:
    await pending(store, run_id, **given)
    await run_tick(store, run_id, outcome)


def a_call(
    effects: Effects,
    *,
    run_id: str | None = "r",
    answer: str = '"yes"',
    request: Request | None = None,
    clog_id: str = CLOG,
    session_id: str = "s",
) -> CallCommit:
    return CallCommit(clog_id, session_id, run_id, "poke", effects, answer, "someone", request)


GLOBAL = RowKey("global", CLOG)
SESSION = RowKey("session", CLOG, session_id="s")


def run_row(run_id: str = "r") -> RowKey:
    return RowKey("run", CLOG, run_id=run_id)


def tick_row(tick: int, row_id: str, run_id: str = "r") -> RowKey:
    return RowKey("tick", CLOG, run_id=run_id, tick=tick, row_id=row_id)


async def row(store: Store, key: RowKey) -> StoredRow:
    found = await store.read_rows(RowsAsk(CLOG, "s", "r", keys=(key,)))
    return found.rows[key]


def writes(*changes: tuple[RowKey, int, str | None]) -> Effects:
    """Return row writes from tuples of key, version that was read and new text."""
    return Effects(writes=[RowWrite(key, version, text) for key, version, text in changes])


async def events(store: Store, run_id: str | None = None) -> list[Event]:
    return await store.read_events(FeedFilter(run_id=run_id), 0, 10_000)


async def types(store: Store, run_id: str | None = None) -> list[str]:
    return [event.type for event in await events(store, run_id)]


async def the_run(store: Store, run_id: str = "r") -> Run:
    found = await store.survey(run_id, ())
    assert found is not None
    return found[0]


async def statuses(store: Store, run_ids: Sequence[str]) -> list[str]:
    return [str((await the_run(store, run_id)).status) for run_id in run_ids]
