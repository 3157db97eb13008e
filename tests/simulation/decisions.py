"""Clients that compete for decisions: direct calls on a few runs, through several instances, with all faults.

Their requests are drawn separately, so that the other clients of a seed send the same requests as without them.
"""

from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ocean import Clog, Ocean, Tick
from ocean.state.clock import sleep
from tests.linearizability.clients import History, drawn, random_person
from tests.linearizability.decisions import decision
from tests.simulation.actions import delay
from tests.simulation.clients import Request, ask
from tests.simulation.history import SentRequest

if TYPE_CHECKING:
    from tests.simulation.instances import Instance
    from tests.simulation.world import World

SHARE = 0.25
"""The share of seeds with decisions."""


class Contest:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = chance = Random(f"{world.seed}-decisions")
        self.is_held = chance.random() < SHARE
        self.runs = [f"decision-{number}" for number in range(chance.randint(2, 4))]
        self._deciders, self._calls = chance.randint(2, 4), chance.randint(3, 7)
        self.history = History()

    def clogs(self, instance: "Instance") -> list[Clog]:
        async def dawdle(tick: Tick) -> None:
            await delay(instance, self._chance)

        return [decision(dawdle)] if self.is_held else []

    def deciders(self) -> list[Coroutine[Any, Any, None]]:
        return [self._decider(number) for number in range(self._deciders)] if self.is_held else []

    async def _decider(self, number: int) -> None:
        """Create the decisions, if no other client has (the same id makes the same run), and decide them."""
        world, chance = self._world, self._chance
        for run_id in self.runs:
            open_it = partial(Ocean.create_run, session_id="decisions", clog_id="decision", run_id=run_id)
            sent = SentRequest("open_decision", None, run_id)
            while not sent.results and not sent.refusals:
                await ask(world, f"d{number}", Request(sent, open_it, is_repeatable=True))
        for call in range(self._calls):
            await sleep(world.clock, chance.choice((0, 0, 0, 3, 30)))
            # All clients work on the same one or two decisions, and then on the next.
            place = call * len(self.runs) // self._calls + chance.randrange(2)
            await self._decide(f"d{number}", self.runs[place % len(self.runs)], drawn(chance, random_person(chance)))

    async def _decide(self, who: str, run_id: str, what: tuple[str, ...]) -> None:
        world, (name, *payload) = self._world, what
        token = world.history.token()
        key = f"key-{token}" if self._chance.random() < 0.5 else None
        sent = SentRequest(f"decide_{name}", key, run_id, token)
        options: dict[str, Any] = {"run_id": run_id, "method": name, "payload": payload[0] if payload else None}
        place = self.history.record_request(run_id, what)
        await ask(world, who, Request(sent, partial(Ocean.call_clog, **options, request_key=key), key is not None))
        if sent.results:
            self.history.record_response(run_id, place, sent.results[0])
            world.count_event(f"decision {sent.results[0][0]} {name}")
        elif sent.refusals and key is None:
            # Nothing was done. With a key this is not certain: the request may have been sent twice.
            self.history.record_undone(run_id, place)
        else:
            world.count_event("decision unanswered")
