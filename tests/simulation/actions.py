"""One call of a handler, in stages, which are awaited one after another or run by a thread.

What a tick does follows from its input, so that every call of it does the same; whether a call fails is drawn. Every
committed call emits `did`, so that the log contains what the rest of the tables must agree with.
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
"""The limit of each counter that ticks and clients take from."""
COUNTERS = tuple(f"cap-{number}" for number in range(6))
LONGEST_LIFE = 14
"""The number of ticks after which a run returns only `Done`."""


def row_from(stored: Any) -> dict[str, int]:
    return dict(stored) if stored else {"ticks": 0, "calls": 0}


def one_more(old: Any) -> Any:
    return (old or 0) + 1


async def delay(instance: "Instance", chance: Random) -> None:
    """Let time pass between two actions of a handler: for it alone, or for its whole process."""
    world, process = instance.world, instance.process
    await sleep(world.clock, chance.choice((0, 0, 5, 60)))
    if world.happens("block"):
        process.block(chance.randint(1, 3 * world.plan.lock_ms))
        await sleep(world.clock, 0)
    elif world.happens("pause"):
        process.pause(chance.randint(1, 5 * world.plan.lock_ms))
        await sleep(world.clock, 0)


class HandlerCall:
    """One call of a handler."""

    def __init__(self, instance: "Instance", tick: Tick) -> None:
        self._instance = instance
        self._world: World = instance.world
        self._tick = tick
        self._chance = Random(f"{self._world.seed} {tick.run_id} {tick.number} {tick.input}")
        self._deeds = [deed for deed, rate in self._world.plan.deeds.items() if self._chance.random() < rate]
        self._wants: dict[str, Any] = {}
        self._did: dict[str, Any] = {"deeds": self._deeds}

    async def run(self) -> Any:
        with self._instance.at_work.call(self._tick):
            for stage in self._stages():
                await stage
            return self._outcome()

    def run_in_a_thread(self) -> Any:
        self._world.count_event("handler in a thread")
        with self._instance.at_work.call(self._tick):
            for stage in self._stages():
                self._tick.block(stage)
            return self._outcome()

    def _stages(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._begin()
        for deed in self._deeds:
            yield self._do(deed)
        yield self._fail_perhaps()
        yield self._finish()

    async def _begin(self) -> None:
        tick, world = self._tick, self._world
        called = Called(tick.call_number, tick.reason, tuple(each.number for each in tick.inputs))
        if not tick._context.is_dry:
            world.history.calls[tick.run_id, tick.number].append(called)
            world.record(f"{self._instance.process.name} calls {tick.run_id} {tick.number}.{called.call} {tick.reason}")
        world.count_event(f"reason {tick.reason}")
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
        self._world.count_event(f"deed {deed}")
        self._be_cancelled_perhaps()
        if hasattr(self, f"_{deed}"):
            await getattr(self, f"_{deed}")()

    def _be_cancelled_perhaps(self) -> None:
        if self._tick.run.clog_id == "gatherer" and self._world.happens("cancelled_at_work"):
            self._world.cancel(self._tick.run_id)

    async def _finish(self) -> None:
        if "bump" in self._deeds:
            self._wants["global_"] = self._did["bumped"] = self._seen + 1
        await self._tick.write(run=self._row, **self._wants)
        await self._tick.emit("did", self._did)

    async def _fail_perhaps(self) -> None:
        """Raise or time out, if this seed has that fault."""
        world = self._world
        await delay(self._instance, world.chance)
        if world.happens("handler_raises") or (self._tick.run.ending and world.happens("end_raises")):
            raise ValueError("the handler raises")
        if world.happens("handler_times_out"):
            await sleep(world.clock, 10 * world.plan.tick_ms)

    def _outcome(self) -> Any:
        world = self._world
        if world.happens("handler_answers_nonsense"):
            return "nonsense"
        if world.happens("handler_retries"):
            return Retry("once more", after_ms=world.chance.choice((None, 0, 100)))
        ends = world.plan.ends
        end = self._chance.choices(list(ends), list(ends.values()))[0] if self._row["ticks"] < LONGEST_LIFE else "done"
        world.count_event(f"end {end}")
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
        # Runs with the same tick number take from the same counter, so that some find it empty.
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
            self._be_cancelled_perhaps()
            if world.happens("slow_step"):
                await sleep(world.clock, world.chance.randint(50, 2 * world.plan.grace_ms + 100))
            return world.history.token()

        got = await tick.step("it", effect, scope=scope)
        if not tick._context.is_dry:
            world.history.steps[place].append(got)
        self._did[f"step_{scope}"] = got

    async def _stream(self) -> None:
        for part in range(3):
            await self._tick.stream("part", {"part": part})
            await delay(self._instance, self._world.chance)

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
        if self._tick.number > 1 and not self._tick._context.is_dry:
            self._wants["delete_ticks"] = [self._tick.number - 1]

    async def _kin(self) -> None:
        """Create a run with a dedupe key: if there is one already, its id is returned."""
        kin: dict[str, Any] = {"clog_id": "actor", "session_id": "s1", "input": {"t": "kin"}, "dedupe_key": "kin"}
        self._did["kin"] = await self._tick.create_run(**kin)

    async def _send_later(self) -> None:
        others = self._world.history.runs
        if others:
            at = self._tick.now + self._chance.randint(-100, 2_000)
            await self._tick.signal(self._chance.choice(others), {"t": "later"}, deliver_at=at)

    async def _insist(self) -> None:
        """Signal a run with `required`: if it has ended, this call fails with all its effects."""
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
