"""The `Ocean` of a world: `result` and `settle` let virtual time pass instead of waiting for it."""

from typing import Any

import anyio

from ocean.compose import Ocean
from ocean.kernel.arguments import checked_count
from ocean.kernel.verbs.advance import with_last_error
from ocean.state.errors import ResultTimeout
from ocean.state.outcomes import place_text
from ocean.state.records import RunInfo
from ocean.testing.manual_clock import ManualClock

MOST_TICKS = 20_000
WAIT_MS = 30_000
LOOK_S = 0.05


class RunStuck(ResultTimeout):
    """Time does not make the run end: it needs a signal, a resume, a worker or another instance. Details: run_id."""

    code = "run_stuck"
    retryable = False


class WorldOcean(Ocean):
    """An Ocean whose `result` and `settle` do what is due and move the clock to the next time that matters."""

    _virtual: ManualClock | None = None
    _instances: "list[WorldOcean]"

    def let_time_pass(self, clock: ManualClock, instances: "list[WorldOcean]") -> None:
        """From now on `result` and `settle` move this clock. `instances` are those of the same world."""
        self._virtual = clock
        self._instances = instances
        instances.append(self)

    async def result(self, run_id: str, *, timeout_ms: int | None = None) -> Any:
        """Return the run's output once it is done. Without `timeout_ms` as much virtual time passes as is needed.

        A run that no time can move raises `RunStuck` at once.
        """
        if self._virtual is None:
            return await super().result(run_id, timeout_ms=WAIT_MS if timeout_ms is None else timeout_ms)
        until = None if timeout_ms is None else self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        ticks = 0
        while not (run := await self._require(run_id)).is_ended:
            if until is not None and until <= self._clock.now():
                why = f"run {run_id} is {run.status} after {timeout_ms} ms; it goes on"
                raise with_last_error(ResultTimeout(why + _last_error(run), run_id=run_id), run.error)
            if (done := await self._pass_time(self._virtual, run, until)) is None:
                raise await self._stuck(run)
            ticks += done
            if ticks >= MOST_TICKS:
                raise AssertionError(f"run {run_id} is {run.status} after {MOST_TICKS} ticks: does it ever end?")
        return await super().result(run_id, timeout_ms=0)

    async def settle(self, run_id: str, *, timeout_ms: int = 1_000) -> RunInfo:
        """Let virtual time pass until the run `is_settled`, at most `timeout_ms`; return it."""
        if self._virtual is None:
            return await super().settle(run_id, timeout_ms=timeout_ms)
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            run = await self._require(run_id)
            if run.is_settled(self._clock.now()) or until <= self._clock.now():
                return run
            if await self._pass_time(self._virtual, run, until) is None:
                self._virtual.advance(until - self._clock.now())

    async def _pass_time(self, clock: ManualClock, run: RunInfo, until: int | None) -> int | None:
        """Do what is due and return how many ticks that were; else move the clock. None if there is nothing to move to.

        A handler that another task of the test is running is waited for: its end may be what the run needs.
        """
        seen, now = self._store.commits_seen(), clock.now()
        due = run.due_at
        if due is not None and due <= now:
            moved = await self.advance(run_id=run.run_id, budget_ms=WAIT_MS, max_ticks=1_000, source="wait")
            if moved.outcomes:
                return len(moved.outcomes)
        # This run may wait for another one, as a parent or behind a key.
        poked = await self.advance(budget_ms=WAIT_MS, max_ticks=1_000, source="wait")
        if poked.outcomes or self._store.commits_seen() != seen or clock.now() != now:
            return len(poked.outcomes)
        if any(instance.at_work for instance in self._instances):
            with anyio.move_on_after(LOOK_S):
                await self._store.next_commit(seen, 10)
            return 0
        later = [at for at in (due, poked.next_wake_at) if at is not None and at > now]
        if not later:
            return None
        clock.advance(min([*later, until or min(later)]) - now)
        return 0

    async def _stuck(self, run: RunInfo) -> ResultTimeout:
        holds = (await self.explain(run.run_id)).holds
        why = "; ".join(hold.message for hold in holds) or "nothing holds it, but no poke takes it"
        message = f"run {run.run_id} is {run.status}, and no time makes it end: {why}"
        return with_last_error(RunStuck(message + _last_error(run), run_id=run.run_id), run.error)


def _last_error(run: RunInfo) -> str:
    if run.error is None:
        return ""
    place = place_text(run.error)
    return f"; its last error is {run.error.get('code')}: {run.error.get('message')}{f', at {place}' if place else ''}"
