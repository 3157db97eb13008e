"""Verbs for a group: any verb of a store, all on the same few runs, so that they conflict."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from ocean.kernel.store import Store
from ocean.kernel.store.events import StepStreamed
from ocean.kernel.store.runs import Request
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import CancelTimer, Effects, NewEvent, RowKey, RowWrite, SetTimer
from ocean.state.errors import OceanError
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import Claim, ClogRecord
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    GLOBAL,
    LOCK_MS,
    OTHER_CLOG,
    SESSION,
    a_call,
    a_run,
    a_signal,
    claim,
    commit_of,
    ended_run,
    pending,
    run_row,
)

RUNS = ["idle", "held-a", "held-b", "held-c", "ended", "child", "keyed", "nobody"]
BUFFERED = ["held-a", "held-b", "held-c"]

Claims = dict[str, Claim]
Item = Callable[[Store, Claims], Awaitable[Any]]
Functions = Sequence[Callable[[str | None], str] | None]


async def arrange(store: Store, clock: ManualClock) -> Claims:
    """Runs in several states, and the claims that a test may commit, stale ones among them."""
    await store.register_clogs([ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", True)])
    await store.create_run(a_run("idle", dedupe_key="taken"), None)
    await ended_run(store, "ended", Done())
    claims = {}
    for run_id in BUFFERED:
        clog_id = OTHER_CLOG if run_id == "held-c" else CLOG
        keys = ["k"] if run_id == "held-b" else []
        await pending(store, run_id, clog_id=clog_id, retry=RetryPolicy(max_attempts=2), concurrency_keys=keys)
        claims[f"stale {run_id}"] = await claim(store, run_id)
    clock.advance(LOCK_MS)
    for run_id in BUFFERED:
        claims[run_id] = await claim(store, run_id)
    await pending(store, "child", parent_run_id="held-a", notify_parent=True, on_parent_end="cancel")
    await pending(store, "keyed", concurrency_keys=["k"])
    return claims


async def answer(item: Item, store: Store, claims: Claims) -> object:
    """What the caller gets: the result, or the refusal as text."""
    try:
        return await item(store, claims)
    except (OceanError, ZeroDivisionError) as refusal:
        return repr(refusal)


def _creations() -> st.SearchStrategy[Item]:
    def item(run_id: str, dedupe_key: str | None, body: int, request: str | None, keys: list[str]) -> Item:
        new = a_run(run_id, input=body, dedupe_key=dedupe_key, concurrency_keys=keys)
        return lambda store, _: store.create_run(new, Request(request, str(body)) if request else None)

    ids = st.sampled_from(["new-1", "new-2", "idle", "ended"])
    return st.builds(
        item,
        ids,
        st.sampled_from([None, "free", "taken"]),
        st.integers(0, 1),
        st.sampled_from([None, "key"]),
        st.sampled_from([[], ["k"], ["k", "l"]]),
    )


def _signals() -> st.SearchStrategy[Item]:
    def item(run_id: str, signal_id: str | None, body: int, if_idle: bool) -> Item:
        signal = a_signal(run_id, body, signal_id=signal_id, if_idle=if_idle)
        return lambda store, _: store.deliver_signal(signal, None)

    return st.builds(
        item,
        st.sampled_from([*RUNS, "new-1"]),
        st.sampled_from([None, "x", "y"]),
        st.integers(0, 1),
        st.booleans(),
    )


OUTCOMES: list[Outcome] = [Ok(), Done(1), Continue(2), Wait(for_ms=50), Retry("no"), Failed("no")]


def add_one(old: str | None) -> str:
    return str(int(old or "0") + 1)


def broken(old: str | None) -> str:
    raise ZeroDivisionError


def _writes(functions: Functions) -> st.SearchStrategy[RowWrite]:
    """Version 0 is right for the first writer of a row only; a function always fits, and one of them raises."""
    keys: st.SearchStrategy[RowKey] = st.sampled_from([GLOBAL, SESSION, run_row("idle"), run_row("held-a")])
    return st.builds(
        lambda key, apply: RowWrite(key, 0, None if apply else "7", apply),
        keys,
        st.sampled_from([None, *functions]),
    )


def _effects(functions: Functions) -> st.SearchStrategy[Effects]:
    some = st.booleans()

    def build(
        writes: list[RowWrite],
        emits: bool,
        signals: list[str],
        requires: bool,
        births: bool,
        deletes: list[str],
        takes: list[int],
    ) -> Effects:
        effects = Effects(writes=writes, takes=[Take("cap", n, limit=4) for n in takes])
        if emits:
            effects.events.append(NewEvent("said", '{"n":1}', CLOG))
            effects.timers += [SetTimer("t", 1_900_000_000_000, None), CancelTimer("u")]
            effects.attributes["a"] = "b"
        effects.signals += [a_signal(to, 1, signal_id="x", required=requires) for to in signals]
        if births:
            effects.runs.append(a_run("born", input=1, dedupe_key="free"))
        effects.delete_runs += [(CLOG, run_id) for run_id in deletes]
        return effects

    distinct = st.lists(_writes(functions), max_size=3, unique_by=lambda write: write.key)
    return st.builds(
        build,
        distinct,
        some,
        st.lists(st.sampled_from(RUNS), max_size=2),
        some,
        some,
        st.lists(st.sampled_from(["child", "held-c", "ended"]), max_size=1),
        st.lists(st.integers(0, 2), max_size=2),
    )


def _copied(effects: Effects) -> Effects:
    """A fresh copy of the effects for each store: neither may see what the other did to them."""
    return replace(
        effects, **{name: type(getattr(effects, name))(getattr(effects, name)) for name in ("writes", "events")}
    )


def _commits(functions: Functions) -> st.SearchStrategy[Item]:
    def item(run_id: str, is_stale: bool, outcome: Outcome, effects: Effects) -> Item:
        name = f"stale {run_id}" if is_stale else run_id
        return lambda store, claims: store.commit_tick(commit_of(claims[name], outcome, _copied(effects)))

    is_stale = st.sampled_from([False, False, False, True])
    return st.builds(item, st.sampled_from(BUFFERED), is_stale, st.sampled_from(OUTCOMES), _effects(functions))


def _calls(functions: Functions) -> st.SearchStrategy[Item]:
    def item(run_id: str | None, effects: Effects, request: str | None) -> Item:
        repeatable = Request(request, "h") if request else None
        return lambda store, _: store.commit_call(a_call(_copied(effects), run_id=run_id, request=repeatable))

    where = st.sampled_from([None, "idle", "held-b", "ended"])
    return st.builds(item, where, _effects(functions).filter(lambda e: not e.timers), st.sampled_from([None, "call"]))


def _others() -> st.SearchStrategy[Item]:
    held = st.sampled_from([*BUFFERED, *(f"stale {run_id}" for run_id in BUFFERED)])
    streamed = [NewEvent("token", '"t"', CLOG)]
    step_streamed = StepStreamed(1, 2, NewEvent("tick.step_stored", '{"step":"say"}', CLOG, "1:counter/say"))
    return st.one_of(
        st.builds(lambda run_id: lambda s, _: s.cancel_run(run_id, None, None, None), st.sampled_from(RUNS)),
        st.builds(lambda run_id: lambda s, _: s.delete_run(run_id, None, None), st.sampled_from(RUNS)),
        st.builds(lambda run_id, on: lambda s, _: s.set_run_paused(run_id, on, None, None), *_pause()),
        st.builds(lambda name: lambda s, c: s.append_streamed(c[name].lock, 1, 2, streamed), held),
        st.builds(lambda name: lambda s, c: s.store_step(c[name].lock, 1, "pay", f'"{name}"'), held),
        st.builds(lambda name: lambda s, c: s.store_step(c[name].lock, 1, "say", f'"{name}"', step_streamed), held),
        st.builds(lambda name: lambda s, c: s.take_turn(c[name].lock, [SESSION]), held),
        st.builds(lambda name: lambda s, c: s.give_back(c[name].lock, 1), held),
        st.just(lambda s, _: s.delete_session("s", None, None)),
        st.builds(lambda slots: lambda s, _: s.set_limit("k", slots, None, None), st.integers(0, 3)),
        st.builds(lambda n: lambda s, _: s.take(Take("cap", n, limit=4), None), st.integers(0, 3)),
    )


def _pause() -> tuple[st.SearchStrategy[str], st.SearchStrategy[bool]]:
    return st.sampled_from(RUNS), st.booleans()


def items_of(*functions: Callable[[str | None], str] | None) -> st.SearchStrategy[list[Item]]:
    """Effects that write rows, by values and by these functions."""
    commits = _commits(functions)
    return st.lists(
        st.one_of(_creations(), _signals(), commits, commits, commits, _calls(functions), _others()),
        min_size=1,
        max_size=14,
    )


ITEMS = items_of(None, None, add_one, add_one, broken)
