"""Whoever changes something also moves things on: after its answer, for a short time, one at a time."""

import logging
from typing import Any, Protocol

import anyio

from ocean.kernel.poke_sources import PokeSource
from ocean.state.clock import Clock

logger = logging.getLogger("ocean.http")


class Advances(Protocol):
    """What a poke needs of an Ocean."""

    @property
    def clock(self) -> Clock: ...

    async def advance(self, *, budget_ms: int, source: PokeSource) -> Any: ...


class Poker:
    """Pokes that come while another claims are one further poke, when that one's turn is over.

    A poke has its turn for `budget_ms` at most: a handler that takes longer goes on without holding up the others.
    """

    def __init__(self, ocean: Advances, budget_ms: int) -> None:
        self._ocean = ocean
        self._budget_ms = budget_ms
        self._turn: object | None = None
        self._is_over = anyio.Event()
        self._is_wanted = False

    async def poke(self) -> None:
        if self._turn is not None:
            if self._is_wanted:
                return
            self._is_wanted = True
            try:
                while self._turn is not None:
                    await self._is_over.wait()
            finally:
                self._is_wanted = False
        turn = self._turn = object()
        self._is_over = anyio.Event()

        def leave() -> None:
            if self._turn is turn:
                self._turn = None
                self._is_over.set()

        cancel = self._ocean.clock.call_later(self._budget_ms, leave)
        try:
            await self._ocean.advance(budget_ms=self._budget_ms, source="request")
        except Exception:
            # The answer has been sent, and whoever pokes next meets the same error.
            logger.exception("the poke after a request failed")
        finally:
            cancel()
            leave()
