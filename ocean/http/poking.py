"""Whoever changes something also moves things on: after its answer, for a short time, one at a time."""

import logging
from typing import Any, Protocol

from ocean.kernel.clock import Clock
from ocean.kernel.poke_sources import PokeSource

logger = logging.getLogger("ocean.http")


class Advances(Protocol):
    """What a poke needs of an Ocean."""

    @property
    def clock(self) -> Clock: ...

    async def advance(self, *, budget_ms: int, source: PokeSource) -> Any: ...


class Poker:
    """Pokes that come while another claims are one further poke.

    A poke has its turn for `budget_ms` at most: a handler that takes longer goes on without holding up the others.
    """

    def __init__(self, ocean: Advances, budget_ms: int) -> None:
        self._ocean = ocean
        self._budget_ms = budget_ms
        self._turn: object | None = None
        self._is_wanted = False

    async def poke(self) -> None:
        self._is_wanted = True
        while self._is_wanted and self._turn is None:
            self._is_wanted = False
            turn = self._turn = object()

            def leave(turn: object = turn) -> None:
                if self._turn is turn:
                    self._turn = None

            cancel = self._ocean.clock.call_later(self._budget_ms, leave)
            try:
                await self._ocean.advance(budget_ms=self._budget_ms, source="request")
            except Exception:
                # The answer has been sent, and whoever pokes next meets the same error.
                logger.exception("the poke after a request failed")
            finally:
                cancel()
                leave()
