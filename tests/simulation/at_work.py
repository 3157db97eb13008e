"""Which calls are in progress in a process: a suspect of a crash must not be called beside a run that is no suspect."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ocean import Tick
from ocean.kernel.call_context import CallContext
from ocean.state.suspects import most_together
from ocean.testing.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

Held = tuple[str, int]
"""A run and the epoch of its lock."""


class AtWork:
    """The calls in progress in one process. If it has crashed: those that were when it did."""

    def __init__(self, world: "World", process: Process) -> None:
        self._world = world
        self.process = process
        self._contexts: dict[Held, tuple[int | None, CallContext]] = {}

    @property
    def calls(self) -> dict[Held, int | None]:
        """For each, with how many runs it had crashed before; None if it is no suspect.

        A call that has lost its lock is void, however long its handler goes on; so is one whose run was claimed again.
        """
        newest = {run_id: 0 for run_id, _ in self._contexts}
        for run_id, epoch in (*self._contexts, *self._world.watcher.companies):
            if run_id in newest:
                newest[run_id] = max(epoch, newest[run_id])
        return {
            held: company
            for held, (company, context) in self._contexts.items()
            if not context.is_lost and newest[held[0]] == held[1]
        }

    @contextmanager
    def call(self, tick: Tick) -> Iterator[None]:
        lock = tick._context.lock
        if tick._context.is_dry or lock is None:
            yield
            return
        held = (lock.run_id, lock.epoch)
        company = self._world.watcher.companies.get(held)
        self._contexts[held] = company, tick._context
        self._check(company)
        try:
            yield
        finally:
            self._contexts.pop(held, None)

    def _check(self, company: int | None) -> None:
        suspects = [other for other in self.calls.values() if other is not None]
        if not suspects:
            return
        self._world.count_event("suspect called" if company is not None else "called beside a suspect")
        if len(suspects) < len(self.calls):
            self._world.fail("suspects are called apart", f"{self.process.name} calls together {self.calls}")
        if len(suspects) > min(map(most_together, suspects)):
            self._world.fail("suspects are called apart", f"{self.process.name} calls too many {self.calls}")
