"""A run id used again is another run: locks and idempotency keys of the first one are not valid for it."""

from functools import partial

import anyio
import pytest

from ocean import Clog, Done, Ok, Tick
from ocean.testing import World, world
from tests.invariants import check

pytestmark = pytest.mark.anyio


class Lives:
    """A clog whose handlers wait at a gate each, and record which life they belong to."""

    def __init__(self) -> None:
        self.clog = Clog("lives")
        self.entered = [anyio.Event() for _ in range(3)]
        self.may_go = [anyio.Event() for _ in range(3)]
        self.keys: list[str] = []

        @self.clog.on_advance
        async def advance(tick: Tick) -> Done:
            life = int(tick.input)
            self.keys.append(tick.idempotency_key)
            await tick.step("pay", self.keys.append, scope="run")
            self.entered[life].set()
            await self.may_go[life].wait()
            return Done(life)

    async def begin(self, w: World, life: int) -> None:
        await w.ocean.create_run(session_id="s", clog_id="lives", run_id="x", input=life)


@pytest.mark.parametrize("is_log_swept", [False, True])
async def test_a_holder_of_a_deleted_run_does_not_fit_the_next_use_of_its_id(is_log_swept: bool) -> None:
    """All three lives within one millisecond, and with their events swept."""
    lives = Lives()
    async with world([lives.clog]) as w:
        others = [w.ocean, await w.instance([lives.clog]), await w.instance([lives.clog])]
        async with anyio.create_task_group() as tasks:
            for life, ocean in enumerate(others):
                await lives.begin(w, life)
                tasks.start_soon(partial(ocean.advance, max_ticks=1))
                await lives.entered[life].wait()
                if life < 2:
                    await w.ocean.delete_run("x")
                    if is_log_swept:
                        w.clock.advance(1)
                        await w.ocean.sweep(events_older_than_ms=0)
            lives.may_go[0].set()
            lives.may_go[1].set()
            await anyio.wait_all_tasks_blocked()
            lives.may_go[2].set()
        info = await w.ocean.get_run("x")
        assert info is not None
        assert (info.status, info.output) == ("done", 2)
        assert len(set(lives.keys)) == len(lives.keys) == 6
        if not is_log_swept:
            await check(w)


async def test_an_id_that_was_never_used_starts_at_its_first_life() -> None:
    clog, keys = Clog("fresh"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        keys.append(tick.idempotency_key)
        return Ok()

    async with world([clog]) as w:
        await w.ocean.create_run(session_id="s", clog_id="fresh", run_id="x", input=1)
        await w.drain()
        [tick] = await w.ocean.list_ticks("x")
        assert (tick.tick, tick.epoch, keys) == (1, 1, ["x:1"])
