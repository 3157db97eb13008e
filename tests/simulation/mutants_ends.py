"""Kernels and SQLite stores with one fault each, in last ticks, stopped calls and what follows a crash."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ocean.kernel import probation
from ocean.kernel.tick_run import TickWork
from ocean.state import suspects, transitions
from ocean.state.records import Run, changed
from tests.simulation.patching import Change, put, put_everywhere

Wrap = Callable[[Callable[..., Any]], Any]


def _function(old: Callable[..., Any], wrap: Wrap) -> Change:
    return lambda undo: put_everywhere(undo, old, wrap(old))


def _may_commit(old: Callable[..., Any]) -> Any:
    return lambda run, epoch, run_id, **_: old(run, epoch, run_id, even_if_ending=True)


def _unless_ending(old: Callable[..., Any]) -> Any:
    return lambda run, *more: run if run.ending is not None else old(run, *more)


def _no_probation(undo: ExitStack) -> None:
    async def enter(self: probation.Probation, claim: Any) -> None: ...

    put(undo, probation.Probation, "enter", enter)
    put(undo, probation.Probation, "leave", lambda self, claim: None)


def _beside_others(undo: ExitStack) -> None:
    old = probation.Probation._enter_apart

    async def enter(self: probation.Probation, claim: Any) -> None:
        calls, self._calls = self._calls, set()
        try:
            await old(self, claim)
        finally:
            self._calls |= calls

    put(undo, probation.Probation, "_enter_apart", enter)


def _not_given_back(undo: ExitStack) -> None:
    old = TickWork.give_back

    async def give_back(self: TickWork) -> Any:
        return None if self._is_ending else await old(self)

    put(undo, TickWork, "give_back", give_back)


def _last_ticks_once(undo: ExitStack) -> None:
    failed = transitions.failed_once_more

    def failed_once_more(run: Run) -> Any:
        return transitions.EndNow(run.ending, run.end_attempt + 1) if run.ending else failed(run)

    put_everywhere(undo, failed, failed_once_more)


MUTANTS: dict[str, Change] = {
    "crashes beside others are attempts": _function(suspects.counts_as_attempt, lambda old: lambda run: True),
    "crashes alone are no attempts": _function(
        suspects.counts_as_attempt, lambda old: lambda run: old(run) and run.crash_epoch == run.lock_epoch
    ),
    "waiting behind a suspect is an attempt": _function(
        suspects.needs_note, lambda old: lambda run, now: old(run, now) and run.crash_epoch != run.lock_epoch
    ),
    "suspects called with all others": _no_probation,
    "suspects called beside others": _beside_others,
    "suspects called all together": _function(suspects.most_together, lambda old: lambda company: max(1, company)),
    "attempts of last ticks not counted": _function(transitions.with_attempts, _unless_ending),
    "a crash ends the last tick": _last_ticks_once,
    "stopped calls commit": _function(transitions.refuse_unless_held, _may_commit),
    "stop_by ignored": _function(transitions.next_call_at, lambda old: lambda run: old(changed(run, stop_by=None))),
    "stopped calls not given back": _not_given_back,
}
