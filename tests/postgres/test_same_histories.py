"""Long random histories of all verbs: the same results and rows on both databases."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest

from ocean.kernel.arguments import UNSET
from ocean.kernel.new_runs import new_run
from ocean.kernel.store import Store
from ocean.kernel.store.claims import LeaseAsk, LeaseCompletion
from ocean.kernel.store.events import SweepAsk
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import CancelTimer, Effects, NewRun, RowWrite, SetTimer
from ocean.state.errors import OceanError
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import Claim, ClogRecord, Key
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, GLOBAL, OTHER_CLOG, SESSION, a_call, a_run, a_signal, an_ask, commit_of
from tests.invariants import check_tables
from tests.postgres.test_groups import Scene, by_column
from tests.stores.dump import dump

STEPS = 60
VERSION = re.compile(r"version[= ][1-9]\d*")
"""The version numbers of rows differ between the databases."""
OUTSIDE = "outside"
IDS = [f"r{number}" for number in range(8)]
CLOGS = [
    ClogRecord(CLOG, "1", False),
    ClogRecord(OTHER_CLOG, "1", True),
    ClogRecord(OUTSIDE, "1", True, external=True, takes_all_inputs=True),
]
Tell = Callable[[int], Awaitable[None]]


class History:
    """The same seed makes the same calls on any store, as long as its results are the same."""

    def __init__(self, store: Store, clock: ManualClock, tell: Tell, seed: int) -> None:
        self.store, self.clock, self.tell = store, clock, tell
        self.dice = Random(seed)
        self.claims: list[Claim] = []
        self.leases: list[str] = []
        self.results: list[str] = []

    async def play(self) -> list[object]:
        steps = [self.create, self.create, self.signal, self.claim, self.claim, self.commit, self.commit, self.commit]
        steps += [self.wait, self.wait, self.call, self.manage, self.manage, self.lease, self.end_lease, self.delay]
        for _ in range(STEPS):
            step = self.dice.choice(steps)
            try:
                found: object = await step()
            except OceanError as refusal:
                found = refusal
            self.results.append(VERSION.sub("version", f"{step.__name__}: {found!r}"))
        return list(self.results)

    def run_id(self) -> str:
        return self.dice.choice(IDS)

    def new(self) -> NewRun:
        dice = self.dice
        clog_id = dice.choice([CLOG, CLOG, OTHER_CLOG, OUTSIDE])
        return a_run(
            self.run_id(),
            clog_id=clog_id,
            session_id=dice.choice("st"),
            priority=dice.randint(0, 9),
            retry=RetryPolicy(max_attempts=dice.choice([None, 1, 2]), jitter=0.5),
            deadline_at=dice.choice([None, None, self.clock.now() + 3_000]),
            dedupe_key=dice.choice([None, None, "d"]),
            dedupe_ms=dice.choice([None, 2_000]),
            concurrency_keys=dice.choice([[], ["k"], [Key("k", "run"), Key("l")]]),
            parent_run_id=dice.choice([None, None, "r0", "r1"]),
            notify_parent=dice.random() < 0.5,
            on_parent_end=dice.choice(["live", "cancel"]),
            input=dice.choice([UNSET, 1, 1, 1]),
        )

    async def create(self) -> object:
        new = self.new()
        if new.parent_run_id is not None and await self.store.get_run(new.parent_run_id) is None:
            return None
        return await self.store.create_run(new, None)

    async def delay(self) -> object:
        """A run that is delayed by a rate, or debounced."""
        keys = self.dice.choice([[], ["k"], ["l"]])
        options: dict[str, Any] = {"rate_key": "rate", "rate_limit": 1, "rate_per_ms": 1_000}
        if self.dice.random() < 0.6:
            options = {"debounce_ms": 700, "debounce_max_ms": 1_500, "dedupe_key": "rest"}
        run_id = f"late-{len(self.results)}"
        words: dict[str, Any] = {
            "run_id": run_id,
            "is_id_given": False,
            "session_id": "s",
            "clog_id": CLOG,
            "actor": None,
        }
        words |= {"input": len(self.results), "retry": None, "priority": 5, "attributes": None, "deadline_at": None}
        return await self.store.create_run(new_run(**words, concurrency_keys=keys, **options), None)

    async def signal(self) -> object:
        later = self.dice.choice([None, None, self.clock.now() + 500])
        name = self.dice.choice([None, "same"])
        return await self.store.deliver_signal(a_signal(self.run_id(), 1, signal_id=name, deliver_at=later), None)

    async def claim(self) -> object:
        named = self.dice.choice([None, None, self.run_id()])
        ask = an_ask(limit=self.dice.randint(1, 3), run_id=named, slot=self.dice.randint(0, 8))
        found = await self.store.claim_due(ask)
        self.claims += found
        return found

    def effects(self) -> Effects:
        dice = self.dice
        effects = Effects()
        if dice.random() < 0.4:
            effects.writes += [RowWrite(dice.choice([GLOBAL, SESSION]), 0, "1")]
        if dice.random() < 0.3:
            effects.timers += [SetTimer("t", self.clock.now() + dice.choice([0, 800]), None), CancelTimer("u")]
        if dice.random() < 0.3:
            effects.signals += [a_signal(self.run_id(), 2)]
        if dice.random() < 0.2:
            effects.takes += [Take("cap", 1, limit=5)]
        return effects

    async def commit(self) -> object:
        if not self.claims:
            return None
        claim = self.dice.choice(self.claims)
        if self.dice.random() < 0.1:
            return await self.store.give_back(claim.lock, claim.tick)
        outcomes: list[Outcome] = [Ok(), Done(1), Failed("no"), Continue(2), Wait(for_ms=600), Retry("no"), Ok()]
        return await self.store.commit_tick(commit_of(claim, self.dice.choice(outcomes), self.effects()))

    async def call(self) -> object:
        return await self.store.commit_call(a_call(self.effects(), run_id=self.run_id()))

    async def lease(self) -> object:
        name = f"lease-{len(self.results)}"
        self.leases.append(name)
        return await self.store.lease_work(LeaseAsk(OUTSIDE, "w", 1_000, ("default",), (name,), 0))

    async def end_lease(self) -> object:
        if not self.leases:
            return None
        name = self.dice.choice(self.leases)
        match self.dice.randint(0, 3):
            case 0:
                return await self.store.renew_lease(name, None, [("said", "1")], None)
            case 1:
                return await self.store.release_lease(name, None)
        outcomes: list[Outcome] = [Ok(), Done(3), Retry("no")]
        outcome = self.dice.choice(outcomes)
        return await self.store.complete_lease(LeaseCompletion(name, outcome, (("said", "2"),), True, "5", None, "h"))

    async def manage(self) -> object:
        run_id, on = self.run_id(), self.dice.random() < 0.4
        match self.dice.randint(0, 7):
            case 0:
                return await self.store.cancel_run(run_id, "no more", None, None)
            case 1:
                return await self.store.set_run_paused(run_id, on, None, None)
            case 2:
                return await self.store.set_clog_paused(CLOG, on, None, None)
            case 3:
                return await self.store.set_limit("k", self.dice.randint(0, 3), None, None)
            case 4:
                return await self.store.retry_run(run_id, None, None)
            case 5:
                return await self.store.delete_run(run_id, None, None)
            case 6:
                return await self.store.agenda([CLOG, OTHER_CLOG])
        cut = self.clock.now() - 4_000
        return await self.store.sweep(SweepAsk(None, cut, cut, 3))

    async def wait(self) -> None:
        self.clock.advance(self.dice.choice([1, 300, 700, 1_500, 30_000]))
        await self.tell(self.clock.now())


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    async def register(store: Store, _: ManualClock) -> dict[str, Claim]:
        await store.register_clogs(CLOGS)
        return {}

    made = Scene()
    made.arrange(register)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_random_history_is_the_same_on_both_databases(scene: Scene, seed: int) -> None:
    async def here() -> tuple[list[object], Any]:
        clock = ManualClock(scene.clock.now())
        store = SqliteStore(":memory:", clock)
        await store.open()
        await store.register_clogs(CLOGS)
        results = await History(store, clock, _nobody, seed).play()
        tables = await store.database.read(dump)
        await store.database.read(lambda db: check_tables(db, clock.now()))
        await store.close()
        return results, tables

    async def there(store: Store) -> list[object]:
        async def tell(now: int) -> None:
            await scene.db.execute("UPDATE ocean_test_clock SET now = $1", now)

        return await History(store, ManualClock(scene.clock.now()), tell, seed).play()

    expected, tables = asyncio.run(here())
    results, rows = scene.runner.run(scene.visited(there))
    assert results == expected
    for name, found in by_column(tables, rows).items():
        assert found[1] == found[0], name


async def _nobody(_: int) -> None:
    """SQLite reads the clock itself."""
