"""One call of a handler, in stages: awaited one after another, or each asked for by a thread.

What a tick is to do follows from its input, so that every call of it means the same; whether a call fails, from chance.
Every committed call says `did` in its own log, so that the log tells what must have become of everything else.
"""

from collections.abc import Coroutine, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from ocean import Abort, Continue, Done, Failed, Ok, Outcome, Retry, Tick, Wait
from ocean.state.clock import sleep
from tests.simulation.history import Called

if TYPE_CHECKING:
    from tests.simulation.instances import Instance
    from tests.simulation.world import World

CAP = 2
"""Of each counter that ticks and others take from."""
COUNTERS = tuple(f"cap-{number}" for number in range(6))
LONGEST_LIFE = 14
"""Ticks after which a run answers nothing but done."""


def row_from(stored: Any) -> dict[str, int]:
    return dict(stored) if stored else {"ticks": 0, "calls": 0}


def one_more(old: Any) -> Any:
    return (old or 0) + 1


async def hiccup(instance: "Instance", chance: Random) -> None:
    """Time passes between two things that a handler does, for it or for its whole process."""
    world, process = instance.world, instance.process
    await sleep(world.clock, chance.choice((0, 0, 5, 60)))
    if world.strikes("block"):
        process.block(chance.randint(1, 3 * world.plan.lock_ms))
        await sleep(world.clock, 0)
    elif world.strikes("pause"):
        process.pause(chance.randint(1, 5 * world.plan.lock_ms))
        await sleep(world.clock, 0)


class Act:
    """One call."""

    def __init__(self, instance: "Instance", tick: Tick) -> None:
        self._instance = instance
        self._world: World = instance.world
        self._tick = tick
        self._chance = Random(f"{self._world.seed} {tick.run_id} {tick.number} {tick.input}")
        self._deeds = [deed for deed, rate in self._world.plan.deeds.items() if self._chance.random() < rate]
        self._wants: dict[str, Any] = {}
        self._did: dict[str, Any] = {"deeds": self._deeds}

    async def perform(self) -> Any:
        for stage in self._stages():
            await stage
        return self._outcome()

    def perform_in_a_thread(self) -> Any:
        self._world.saw("handler in a thread")
        for stage in self._stages():
            self._tick.block(stage)
        return self._outcome()

    def _stages(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._begin()
        for deed in self._deeds:
            yield self._do(deed)
        yield self._suffer()
        yield self._finish()

    async def _begin(self) -> None:
        tick, world = self._tick, self._world
        called = Called(tick.call_number, tick.reason, tuple(each.number for each in tick.inputs))
        if not tick._scene.is_dry:
            world.history.calls[tick.run_id, tick.number].append(called)
            world.say(f"{self._instance.process.name} calls {tick.run_id} {tick.number}.{called.call} {tick.reason}")
        world.saw(f"reason {tick.reason}")
        does_bump, does_look = "bump" in self._deeds, "look" in self._deeds
        rows = await tick.read(
            run=True,
            session="add" in self._deeds,
            global_=does_bump or does_look,
            tick=["row"] if "tick_row" in self._deeds else [],
            guard=does_look,
        )
        self._seen = rows.global_ or 0
        self._row = row_from(rows.run)
        self._row["ticks"] += 1
        self._did["ticks"] = self._row["ticks"]
        self._did |= {"seen": self._seen} if does_look else {}

    async def _do(self, deed: str) -> None:
        self._world.saw(f"deed {deed}")
        if hasattr(self, f"_{deed}"):
            await getattr(self, f"_{deed}")()

    async def _finish(self) -> None:
        if "bump" in self._deeds:
            self._wants["global_"] = self._did["bumped"] = self._seen + 1
        await self._tick.write(run=self._row, **self._wants)
        await self._tick.emit("did", self._did)

    async def _suffer(self) -> None:
        """What may go wrong in the middle of a call."""
        world = self._world
        await hiccup(self._instance, world.chance)
        if world.strikes("handler_raises"):
            raise ValueError("the handler raises")
        if world.strikes("handler_times_out"):
            await sleep(world.clock, 10 * world.plan.tick_ms)

    def _outcome(self) -> Any:
        world = self._world
        if world.strikes("handler_answers_nonsense"):
            return "nonsense"
        if world.strikes("handler_retries"):
            return Retry("once more", after_ms=world.chance.choice((None, 0, 100)))
        ends = world.plan.ends
        end = self._chance.choices(list(ends), list(ends.values()))[0] if self._row["ticks"] < LONGEST_LIFE else "done"
        world.saw(f"end {end}")
        outcomes: dict[str, Outcome] = {
            "ok": Ok(),
            "wait": Wait(for_ms=self._chance.randint(0, 3_000)),
            "continue": Continue({"t": f"{self._tick.run_id}:{self._tick.number}"}),
            "done": Done(self._row["ticks"]),
            "failed": Failed("on purpose"),
        }
        if end == "abort":
            raise Abort("on purpose")
        return outcomes[end]

    async def _add(self) -> None:
        self._wants["session"] = one_more
        self._did["added"] = True

    async def _take(self) -> None:
        # Runs of one age want the same: whoever comes when it is empty learns little.
        key = COUNTERS[self._tick.number % len(COUNTERS)]
        taken = await self._tick.take(key, limit=CAP)
        self._did["took"] = [key, taken.ok, taken.used]

    async def _step(self) -> None:
        await self._a_step("tick")

    async def _run_step(self) -> None:
        await self._a_step("run")

    async def _a_step(self, scope: Any) -> None:
        tick, world = self._tick, self._world
        place = (tick.run_id, tick.number if scope == "tick" else 0, scope)

        async def effect(key: str) -> str:
            sql = "SELECT result FROM ocean_steps WHERE run_id = ? AND tick = ?"
            if world.db.execute(sql, place[:2]).fetchone():
                world.fail("steps are taken once", f"{place} is stored, and its effect is repeated")
            await sleep(world.clock, world.chance.choice((0, 5)))
            return world.history.token()

        got = await tick.step("it", effect, scope=scope)
        if not tick._scene.is_dry:
            world.history.steps[place].append(got)
        self._did[f"step_{scope}"] = got

    async def _stream(self) -> None:
        for part in range(3):
            await self._tick.stream("part", {"part": part})
            await hiccup(self._instance, self._world.chance)

    async def _timer(self) -> None:
        await self._tick.set_timer(self._chance.choice("xy"), after_ms=self._chance.randint(0, 4_000), input={"t": "!"})

    async def _cancel_timer(self) -> None:
        await self._tick.cancel_timer(self._chance.choice("xy"))

    async def _child(self) -> None:
        if self._tick.run.parent_run_id is not None and self._chance.random() < 0.7:
            return
        notify = self._chance.random() < 0.7
        self._did |= {"notify": notify, "fate": self._chance.choice(("live", "cancel"))}
        self._did["child"] = await self._tick.create_run(
            clog_id=self._chance.choice(("actor", "gatherer", "errand")),
            input={"t": f"{self._tick.run_id}/{self._tick.number}"},
            notify_parent=notify,
            on_parent_end=self._did["fate"],
            concurrency_keys=self._chance.choice(((), (), ("k1",))),
        )

    async def _signal(self) -> None:
        others = self._world.history.runs
        if others:
            to = others[self._chance.randrange(len(others))]
            signal_id = self._chance.choice((None, f"{self._tick.run_id}:{self._tick.number}"))
            await self._tick.signal(to, {"t": f"from {self._tick.run_id}"}, signal_id=signal_id)

    async def _release(self) -> None:
        await self._tick.release_dedupe_key()

    async def _tick_row(self) -> None:
        self._wants["tick"] = {"row": self._tick.number}

    async def _forget(self) -> None:
        if self._tick.number > 1 and not self._tick._scene.is_dry:
            self._wants["delete_ticks"] = [self._tick.number - 1]

    async def _kin(self) -> None:
        """Another run of the same name is answered, whoever has made it."""
        kin: dict[str, Any] = {"clog_id": "actor", "session_id": "s1", "input": {"t": "kin"}, "dedupe_key": "kin"}
        self._did["kin"] = await self._tick.create_run(**kin)

    async def _send_later(self) -> None:
        others = self._world.history.runs
        if others:
            at = self._tick.now + self._chance.randint(-100, 2_000)
            await self._tick.signal(self._chance.choice(others), {"t": "later"}, deliver_at=at)

    async def _insist(self) -> None:
        """If the other one has ended, this call fails with all that it did."""
        others = self._world.history.runs
        if others and self._chance.random() < 0.3:
            await self._tick.signal(self._chance.choice(others), {"t": "insist"}, required=True)

    async def _sleep(self) -> None:
        await sleep(self._world.clock, self._chance.choice((0, 10, 200, self._world.plan.lock_ms * 2)))

    async def _call(self) -> None:
        method = "nested_in_a_thread" if self._world.has_threads else "nested"
        self._did["answer"] = await self._tick.call("actor", method, {"t": "n"})

    async def _attribute(self) -> None:
        await self._tick.set_attributes(n=self._tick.number)
