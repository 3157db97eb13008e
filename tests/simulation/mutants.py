"""Kernels and SQLite stores with one fault each. A simulation that does not detect one of them is too weak."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from ocean.kernel import locks, tick, tick_run
from ocean.state import backoff, eligibility, ends, transitions
from ocean.state.effects import Effects
from ocean.state.outcomes import Retry
from ocean.state.records import Delay, Ending, Run, RunStatus, SignalReceipt, changed
from ocean.stores.sqlite import (
    committing,
    counters,
    creating,
    effects,
    ending,
    event_log,
    inbox,
    keys,
    storage,
)
from ocean.stores.sqlite.engine import executor
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.engine.write_buffer import QUERIES
from ocean.stores.sqlite.store import SqliteStore
from tests.simulation.patching import Change, put, put_everywhere

MUTANTS: dict[str, Change] = {}


def _named(name: str) -> Callable[[Change], Change]:
    def keep(change: Change) -> Change:
        MUTANTS[name] = change
        return change

    return keep


def _function(name: str, old: Callable[..., Any], wrap: Callable[[Callable[..., Any]], Any]) -> None:
    MUTANTS[name] = lambda undo: put_everywhere(undo, old, wrap(old))


def _query(name: str, query: str, old: str, new: str) -> None:
    assert old in QUERIES[query], f"{query} no longer contains {old!r}"

    def change(undo: ExitStack) -> None:
        undo.callback(QUERIES.__setitem__, query, QUERIES[query])
        QUERIES[query] = QUERIES[query].replace(old, new)

    MUTANTS[name] = change


def _method(name: str, place: type, method: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    MUTANTS[name] = lambda undo: put(undo, place, method, wrap(getattr(place, method)))


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _held_or_not(run: Run | None, epoch: int, run_id: str, **more: bool) -> Run:
    return run if run is not None else transitions.refuse_unless_held(run, epoch, run_id, **more)


def _keeps(name: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a wrapper after which the run's field is unchanged, whatever else the transition changes."""

    def wrap(old: Callable[..., Any]) -> Any:
        def transition(run: Run, *args: Any, **more: Any) -> Any:
            following = old(run, *args, **more)
            return changed(following, **{name: getattr(run, name)}) if isinstance(following, Run) else following

        return transition

    return wrap


def _with(**values: Any) -> Callable[[Callable[..., Any]], Any]:
    def wrap(old: Callable[..., Any]) -> Any:
        def transition(*args: Any, **more: Any) -> Any:
            following = old(*args, **more)
            return changed(following, **values) if isinstance(following, Run) else following

        return transition

    return wrap


_function("no fence", transitions.refuse_unless_held, lambda old: _held_or_not)
_function(
    "no version check",
    storage.have_changed,
    lambda old: lambda u, writes, guards, made: old(u, (), guards, made),
)
_function(
    "guard not checked",
    storage.have_changed,
    lambda old: lambda u, writes, guards, made: old(u, writes, (), made),
)
_query("consume at claim", "assign_input", "assigned_tick = :tick", "assigned_tick = :tick, consumed_tick = :tick")
_function("lost wake-up", transitions.input_arrived, lambda old: lambda run, available_at, now: run)
_function("attempt not counted on crash", transitions.claimed, _keeps("attempt"))
_function("epoch not raised", transitions.claimed, _keeps("lock_epoch"))
_method("event before commit", tick.Tick, "emit", lambda old: tick.Tick.stream)
_function("key limit ignored", keys.full_key, lambda old: _nothing)
_function(
    "key slot leaked",
    keys._take_and_free,
    lambda old: lambda u, run, rows: set() if run.is_ended else old(u, run, rows),
)
_function("parked runs not woken", keys.wake, lambda old: _nothing)
_function("timers not dropped at the end", inbox.drop_timers, lambda old: _nothing)
_function("parent notified twice", ending._notify_parent, lambda old: lambda u, *args: old(u, *args) and old(u, *args))
_function("parent not notified", ending._notify_parent, lambda old: lambda *args: True)
_function("dedupe not checked", creating.holder_of_key, lambda old: _nothing)
_function("request key not stored", executor.keep_answer, lambda old: _nothing)
_query("signal id not checked", "get_signal", "signal_id = :signal_id", "signal_id = :signal_id AND 0")
_function(
    "deliver_at ignored",
    inbox.deliver,
    lambda old: lambda u, signal, *more: old(u, replace(signal, deliver_at=None), *more),
)
_query("inputs by number only", "due_inputs", "ORDER BY available_at, number", "ORDER BY number")
_query("inputs before their time", "due_inputs", "available_at <= :now", "available_at <= :now + 500")
_function(
    "give-backs always count", transitions.given_back, lambda old: lambda run, count, now: old(run, count + 9, now)
)
_function("give-backs never count", transitions.given_back, lambda old: lambda run, count, now: old(run, 0, now))
_function(
    "back-off ignored",
    transitions.retried,
    lambda old: lambda run, outcome, *more: old(run, replace(outcome, after_ms=0), *more),
)
_function("retry opens a new tick", transitions.retried, _with(tick_open=False))
_function("attempts never end", backoff.is_spent, lambda old: lambda attempt, most: False)
_function("signals to the ended", ends.refuse_if_ended, lambda old: _nothing)
_function("children outlive", ending._end_children, lambda old: _nothing)
_function("undelivered not named", ending._name_undelivered, lambda old: _nothing)
_function("counters unguarded", counters.refused, lambda old: lambda u, takes: {})
_method("locks not renewed", locks.LockKeeper, "renew", lambda old: _nothing)
_method("steps not looked up", SqliteStore, "read_step", lambda old: _returning_none)
_query("completion not remembered", "complete_lease", "answer = :answer", "answer = NULL")


async def _returning_none(*_: Any) -> None:
    return None


@_named("cursor skips")
def _cursor_skips(undo: ExitStack) -> None:
    old = event_log.read_events
    put(undo, event_log, "read_events", lambda u, where, after, limit: old(u, where, after + 1 if after else 0, limit))


@_named("streamed without fence")
def _streamed_without_fence(undo: ExitStack) -> None:
    async def append(self: SqliteStore, lock: Any, number: int, call: int, events: Any) -> None:
        def act(u: Unit) -> None:
            for event in events:
                u.event(lock.run_id, event.type, None, text=event.payload, tick=number, call=call)

        await self._write(act)

    put(undo, SqliteStore, "append_streamed", append)


@_named("step replaced")
def _step_replaced(undo: ExitStack) -> None:
    async def store(self: SqliteStore, lock: Any, number: int, name: str, result: str, streamed: Any = None) -> str:
        def act(u: Unit) -> str:
            values = {"run_id": lock.run_id, "tick": number, "name": name, "result": result, "now": u.now}
            u._transaction.execute(QUERIES["insert_step"].replace("INSERT", "INSERT OR REPLACE"), values)
            return result

        return await self._write(act)

    put(undo, SqliteStore, "store_step", store)
    put(undo, SqliteStore, "read_step", _returning_none)


@_named("retry commits its effects")
def _retry_commits(undo: ExitStack) -> None:
    old = committing._commit_retry

    def commit_retry(u: Unit, run: Run, c: Any, outcome: Retry, row: Any) -> Any:
        effects.apply_effects(u, c.effects, effects.Origin(c.clog_id, run.session_id, run.run_id, c.tick, c.call))
        return old(u, u.run(run.run_id), c, outcome, row)

    async def call(self: tick_run.TickWork, number: int) -> tuple[Any, Effects]:
        scene = self._context = tick_run.context_of(self._runtime, self.claim, number)
        scene.refused = self._refused
        return await tick_run.outcome_of(scene, self._clog, anyio.CancelScope()), scene.effects

    put(undo, committing, "_commit_retry", commit_retry)
    put(undo, tick_run.TickWork, "_call", call)


@_named("wake_at not cleared")
def _wake_at_kept(undo: ExitStack) -> None:
    old = transitions.input_arrived

    def arrived(run: Run, available_at: int, now: int) -> Run:
        following = old(run, available_at, now)
        is_woken = following.status is RunStatus.PENDING and run.status is RunStatus.WAITING
        return changed(following, wake_at=run.wake_at, ready_at=None) if is_woken else following

    put_everywhere(undo, old, arrived)


@_named("deadline ignored")
def _deadline_ignored(undo: ExitStack) -> None:
    old = eligibility.kernel_end

    def kernel_end(run: Run, now: int) -> Ending | None:
        return old(changed(run, deadline_at=None), now)

    put_everywhere(undo, old, kernel_end)


@_named("urgent runs only")
def _no_fairness(undo: ExitStack) -> None:
    old = eligibility.pick
    put_everywhere(undo, old, lambda due, limit, slot: old(due, limit, 0) if limit == 1 else old(due, limit, slot))


@_named("priority ignored")
def _no_priority(undo: ExitStack) -> None:
    old = eligibility.pick
    put_everywhere(undo, old, lambda due, limit, slot: old([changed(run, priority=5) for run in due], limit, slot))


@_named("locks ignored")
def _locks_ignored(undo: ExitStack) -> None:
    starts_at, holds = transitions.next_call_at, eligibility._status_holds
    held = RunStatus.ACTIVE
    put_everywhere(undo, starts_at, lambda run: run.updated_at if run.status is held else starts_at(run))
    put_everywhere(undo, holds, lambda run, now: [] if run.status is held else holds(run, now))


@_named("paused runs go on")
def _paused_go_on(undo: ExitStack) -> None:
    starts_at, holds = transitions.next_call_at, eligibility.holds
    put_everywhere(undo, starts_at, lambda run: starts_at(changed(run, paused=False)))
    put_everywhere(undo, holds, lambda run, around, now: holds(changed(run, paused=False), around, now))


@_named("debounce ignored")
def _no_debounce(undo: ExitStack) -> None:
    old = transitions.delayed

    def delayed(run: Run, by: Delay, key: str, until: int, now: int) -> Run:
        return old(run, by, key, now if by is Delay.DEBOUNCE else until, now)

    put_everywhere(undo, old, delayed)


@_named("continuation behind the inbox")
def _continuation_last(undo: ExitStack) -> None:
    old = inbox.append_input

    def append(u: Unit, run_id: str, kind: Any, body: Any, *, available_at: int, **more: Any) -> int:
        return old(u, run_id, kind, body, available_at=max(available_at, u.now), **more)

    put(undo, committing, "append_input", append)


@_named("commit not repeatable")
def _commit_not_repeatable(undo: ExitStack) -> None:
    old = committing.commit_tick

    def commit(u: Unit, c: Any) -> Any:
        transitions.refuse_unless_held(u.find(c.lock.run_id), c.lock.epoch, c.lock.run_id)
        return old(u, c)

    put_everywhere(undo, old, commit)


@_named("acknowledged before the commit")
def _signal_forgotten(undo: ExitStack) -> None:
    old = SqliteStore.deliver_signal

    async def deliver(self: SqliteStore, signal: Any, request: Any) -> Any:
        receipt = await old(self, signal, request)
        if receipt.number % 5 == 0:
            await self._write(partial(_forget, receipt=receipt))
        return receipt

    def _forget(u: Unit, receipt: SignalReceipt) -> None:
        where = (receipt.run_id, receipt.number)
        u._transaction.execute(
            "DELETE FROM ocean_inbox WHERE run_id = ? AND number = ? AND assigned_tick IS NULL", where
        )

    put(undo, SqliteStore, "deliver_signal", deliver)
