"""`flow.again`: what is dropped, what is kept, and that resuming costs the same after any number of generations."""

from typing import Any

import pytest

from ocean import Flow, RunStatus
from ocean.flows.journal import MOST_ENTRIES
from ocean.testing import World
from tests.flows.kit import Effects, events_of, flow_clog, journal, look, stage, start

pytestmark = pytest.mark.anyio


class Meter:
    """Counts what a world reads: the calls of the store, and the bytes of the rows."""

    def __init__(self, w: World) -> None:
        self.rows: list[int] = []
        self.steps = 0
        read_rows, read_step = w.store.read_rows, w.store.read_step

        async def metered_rows(ask: Any) -> Any:
            answer = await read_rows(ask)
            self.rows.append(sum(len(row.text or "") for row in answer.rows.values()))
            return answer

        async def metered_step(*arguments: Any) -> Any:
            self.steps += 1
            return await read_step(*arguments)

        w.store.read_rows = metered_rows  # type: ignore[method-assign]
        w.store.read_step = metered_step  # type: ignore[method-assign, assignment]


async def poll(flow: Flow, page: int) -> Any:
    for _ in range(10):
        page = await flow.step("fetch", next_page, page)
    await flow.sleep(1_000)
    return flow.again(page)


async def next_page(key: str, page: int) -> int:
    return page + 1


@pytest.mark.sqlite
async def test_resuming_reads_the_same_at_step_10_and_at_step_1000() -> None:
    async with stage(poll) as w:
        run_id = await start(w, 1_000)
        meter, costs = Meter(w), []
        for _ in range(100):
            await w.drain()
            w.clock.advance(1_000)
            meter.rows, meter.steps = [], 0
            await w.ocean.advance(max_ticks=1)
            assert (len(meter.rows), meter.steps) == (1, 0)
            costs += meter.rows
        # All that grows is the number of the generation.
        assert max(costs) - min(costs) == len("99") - len("0")
        assert (await journal(w, run_id))["generation"] == 100
        assert (await journal(w, run_id))["input"] == 2_000


async def test_an_ordinary_resumption_is_one_read_however_many_steps_are_stored() -> None:
    async def long(flow: Flow, input: Any) -> Any:
        for n in range(200):
            await flow.step("n", Effects().do, n)
        await flow.sleep(1_000)
        return "done"

    async with stage(long) as w:
        run_id = await start(w)
        await w.drain()
        meter = Meter(w)
        await w.wait(1_000)
        assert (await look(w, run_id)).output == "done"
        assert (len(meter.rows), meter.steps) == (1, 0)


async def test_a_new_step_is_stored_without_a_lookup_and_a_repeated_call_looks_it_up() -> None:
    breaks = [True]

    async def order(flow: Flow, input: Any) -> Any:
        for n in range(5):
            await flow.step("n", Effects().do, n)
        if breaks and breaks.pop():
            raise RuntimeError("a bug")
        return "done"

    async with stage(order) as w:
        run_id = await start(w)
        meter = Meter(w)
        await w.drain()
        assert meter.steps == 0
        await w.wait(1_000)
        assert meter.steps == 5
        assert (await look(w, run_id)).output == "done"


async def test_a_new_generation_has_new_keys_and_keeps_inputs_not_taken() -> None:
    effects = Effects()

    async def desk(flow: Flow, state: Any) -> Any:
        done, child = state
        child = child or await flow.start("k", 9)
        await flow.step("work", effects.do, done)
        await flow.sleep(1_000)
        if done < 2:
            return flow.again([done + 1, child])
        return [(await flow.wait_for_signal()).body, await flow.join(child)]

    async def kid(flow: Flow, n: int) -> int:
        return n * n

    async with stage(desk, flow_clog(kid, "k")) as w:
        run_id = await start(w, [0, None])
        await w.ocean.signal(run_id, "kept")
        await w.wait(3_000)
        assert (await look(w, run_id)).output == ["kept", 81]
        assert len(set(effects.keys)) == len(effects.keys) == 3
        generations = [found["generation"] for _, found in await events_of(w, run_id, "flow.again")]
        assert generations == [1, 2]


async def test_a_journal_that_grows_too_long_is_held_with_advice() -> None:
    async def endless(flow: Flow, input: Any) -> Any:
        while True:
            await flow.random()
            if len(seen) > MOST_ENTRIES:
                return "past it"
            seen.append(1)

    seen: list[int] = []
    async with stage(endless) as w:
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.attempt) == (RunStatus.WAITING, 0)
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert f"a journal must have at most {MOST_ENTRIES} operations" in hold.message
        assert "return flow.again(state)" in hold.message
        ((_, held),) = await events_of(w, run_id, "flow.held")
        assert (held["code"], held["details"]["operations"]) == ("flow_too_long", MOST_ENTRIES)


async def test_a_state_that_is_not_json_is_refused_and_nothing_is_lost() -> None:
    async def odd(flow: Flow, input: Any) -> Any:
        await flow.step("work", Effects().do, 1)
        await flow.sleep(10)
        return flow.again({1, 2})

    async with stage(odd) as w:
        run_id = await start(w)
        await w.wait(10)
        error = (await look(w, run_id)).error
        assert error is not None
        assert "the state of flow.again must be JSON, got a value of type set" in error["message"]
        assert (await journal(w, run_id))["entries"]["0"]["value"] == 1
