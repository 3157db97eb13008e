"""What a step has streamed counts once the step is stored, whatever happens to its tick later."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

import anyio
import anyio.from_thread
import pytest

from ocean import Clog, Done, Event, Flow, Ok, Outcome, Retry, RetryPolicy, StreamReader, Tick, kept_events
from ocean.testing import World
from tests.lifecycle.acting import LOCK_MS, Script, log, stage, start

pytestmark = pytest.mark.anyio

WORDS = ["one", "two", "three"]


async def shown(w: World, run_id: str, type: str = "token") -> list[Any]:
    """Return the payloads that a reader keeps, and check that a reader of a live feed keeps the same."""
    events = await log(w, run_id)
    kept = [event for event in kept_events(events) if event.type == type]
    assert [event for event in live(events) if event.type == type] == kept
    return [event.payload for event in kept]


def live(events: list[Event]) -> list[Event]:
    reader, screen = StreamReader(), list[Event]()
    for event in events:
        obsolete = reader.take(event)
        screen = [each for each in screen if reader.streamed_by(each) not in obsolete] + [event]
    return screen


async def markers(w: World, run_id: str) -> list[tuple[Any, ...]]:
    return [(each.tick, each.call, each.step, each.payload) for each in await log(w, run_id, "tick.step_stored")]


async def taken_over(w: World, clog: Clog) -> None:
    """Let the process be dead for the others: its lock lapses, and another instance ends the run."""
    w.clock.jump(LOCK_MS)
    other = await w.instance([clog])
    await w.drain(other)


def handler(body: Callable[[Tick, int], Awaitable[Outcome]]) -> Clog:
    return Script(lambda tick: body(tick, tick.call_number))


@pytest.mark.parametrize("scope", ["tick", "run"])
async def test_a_reader_shows_the_tokens_of_a_stored_step_once_when_its_tick_is_called_again(scope: Any) -> None:
    calls: list[int] = []

    async def body(tick: Tick, call: int) -> Outcome:
        async def write(key: str) -> str:
            calls.append(call)
            for word in WORDS:
                await tick.stream("token", word)
            return "stored"

        await tick.stream("note", call)
        await tick.step("write", write, scope=scope)
        if call == 1:
            await taken_over(w, clog)
        return Done()

    clog = handler(body)
    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        assert calls == [1]
        assert await shown(w, run_id) == WORDS
        assert await shown(w, run_id, "note") == [2]
        id = "1:c/write" if scope == "tick" else "c/write"
        assert {event.step for event in await log(w, run_id, "token")} == {id}
        assert {event.step for event in await log(w, run_id, "note")} == {None}
        assert await markers(w, run_id) == [(1, 1, id, {"step": "write"})]


async def test_a_reader_shows_the_tokens_of_a_flow_s_stored_step_once_when_its_tick_is_called_again() -> None:
    calls: list[str] = []
    clog = Clog("c")

    @clog.flow
    async def flow(flow: Flow, input: Any) -> str:
        async def write(key: str) -> str:
            calls.append("write")
            for word in WORDS:
                await flow.stream("token", word)
            return "stored"

        async def check(key: str) -> str:
            calls.append("check")
            if len(calls) == 2:
                await asyncio.create_task(taken_over(w, clog), context=Context())
            await flow.stream("token", "checked")
            return "checked"

        await flow.stream("note", "begun")
        return await flow.step("write", write) + await flow.step("check", check)

    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        assert calls == ["write", "check", "check"]
        assert await shown(w, run_id) == [*WORDS, "checked"]
        assert await shown(w, run_id, "note") == ["begun"]
        assert [(tick, call, step) for tick, call, step, _ in await markers(w, run_id)] == [
            (1, 1, "c/write"),
            (1, 2, "c/check"),
        ]


async def test_of_a_step_that_crashed_half_way_only_the_second_attempt_counts() -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        async def write(key: str) -> int:
            for word in WORDS:
                await tick.stream("token", f"{word} {call}")
                if call == 1 and word == "two":
                    await tick.stream("token", "lost")
                    async for event in w.ocean.follow(tick.run_id, types=["token"]):
                        if event.payload == "lost":
                            break
                    await taken_over(w, clog)
            return call

        await tick.step("write", write)
        return Done()

    clog = handler(body)
    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        assert [event.payload for event in await log(w, run_id, "token")][:3] == ["one 1", "two 1", "lost"]
        assert await shown(w, run_id) == ["one 2", "two 2", "three 2"]


@pytest.mark.parametrize("second", ["streams", "is silent", "is gone"])
async def test_a_failed_attempt_does_not_count_whatever_the_next_one_streams(second: str) -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        async def write(key: str) -> None:
            if call == 1 or second == "streams":
                await tick.stream("token", call)
            if call == 1:
                raise OSError("cut")

        if call == 1 or second != "is gone":
            await tick.step("write", write, scope="run")
        return Done()

    async with stage(handler(body)) as w:
        run_id = await start(w)
        await w.drain()
        assert await shown(w, run_id) == [1], "the attempt was the newest call until now"
        w.clock.advance(10_000)
        await w.drain()
        assert await shown(w, run_id) == ([2] if second == "streams" else [])


@pytest.mark.parametrize("attempts", [1, 2])
async def test_of_a_flow_s_step_only_what_the_successful_attempt_streamed_counts(attempts: int) -> None:
    tried: list[int] = []
    clog = Clog("c")

    @clog.flow
    async def flow(flow: Flow, input: Any) -> str:
        async def write(key: str) -> str:
            tried.append(1)
            await flow.stream("token", len(tried))
            if len(tried) <= attempts:
                raise OSError("cut")
            return "done"

        try:
            return await flow.step("write", write, retry=RetryPolicy(max_attempts=2))
        except Exception:
            return "failed"

    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        assert await shown(w, run_id) == [], "the attempt has failed, and its tick is committed"
        await w.wait(60_000)
        assert len(tried) == 2
        assert await shown(w, run_id) == ([2] if attempts == 1 else [])


async def test_two_steps_of_a_tick_are_kept_apart() -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        async def write(name: str) -> None:
            for word in ("a", "b"):
                await tick.stream("token", f"{name} {word} {call}")
            if name == "second" and call == 1:
                raise OSError("cut")

        await tick.step("first", lambda key: write("first"))
        await tick.stream("token", f"between {call}")
        await tick.step("second", lambda key: write("second"))
        return Done()

    async with stage(handler(body)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(10_000)
        await w.drain()
        expected = ["first a 1", "first b 1", "between 2", "second a 2", "second b 2"]
        assert await shown(w, run_id) == expected


async def test_a_step_in_a_step_is_a_step_of_its_own() -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        async def outer(key: str) -> None:
            await tick.stream("token", f"before {call}")
            await tick.step("inner", lambda key: tick.stream("token", f"inner {call}"))
            await tick.stream("token", f"after {call}")
            if call == 1:
                raise OSError("cut")

        await tick.step("outer", outer)
        return Done()

    async with stage(handler(body)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(10_000)
        await w.drain()
        assert await shown(w, run_id) == ["inner 1", "before 2", "after 2"]


async def test_branches_that_stream_at_the_same_time_are_kept_apart() -> None:
    clog, rounds = Clog("c"), [0, 0]

    @clog.flow
    async def flow(flow: Flow, input: Any) -> Any:
        async def write(key: str, branch: int) -> int:
            rounds[branch] += 1
            for word in WORDS:
                await flow.stream("token", [branch, rounds[branch], word])
            if branch == 1 and rounds[branch] == 1:
                raise OSError("cut")
            return branch

        return await flow.gather(flow.step("left", write, 0), flow.step("right", write, 1))

    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        await w.wait(60_000)
        assert rounds == [1, 2]
        tokens = await shown(w, run_id)
        assert [each for each in tokens if each[0] == 0] == [[0, 1, word] for word in WORDS]
        assert [each for each in tokens if each[0] == 1] == [[1, 2, word] for word in WORDS]


async def test_tasks_and_threads_that_a_step_starts_stream_for_it_and_other_runs_do_not() -> None:
    async def quiet(tick: Tick) -> Outcome:
        await tick.stream("token", "of another run")
        return Done()

    async def body(tick: Tick, call: int) -> Outcome:
        def from_a_thread() -> None:
            anyio.from_thread.run(tick.stream, "token", "thread")

        async def write(key: str) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick.stream, "token", "task")
            await anyio.to_thread.run_sync(from_a_thread)
            made = await start(w, clog_id="quiet")
            other = await w.instance([Script(quiet, clog_id="quiet")])
            await w.drain(other)
            (event,) = await log(w, made, "token")
            assert event.step is None

        await tick.step("write", write)
        return Done()

    async with stage(handler(body), Script(quiet, clog_id="quiet")) as w:
        run_id = await start(w)
        await w.drain()
        assert [(each.payload, each.step) for each in await log(w, run_id, "token")] == [
            ("task", "1:c/write"),
            ("thread", "1:c/write"),
        ]


async def test_a_step_that_streams_nothing_writes_no_event() -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        await tick.step("write", lambda key: 1)
        await tick.stream("token", "after")
        return Ok()

    async with stage(handler(body)) as w:
        run_id = await start(w)
        await w.drain()
        assert await markers(w, run_id) == []
        assert [each.step for each in await log(w, run_id, "token")] == [None]


async def test_events_without_a_step_are_kept_of_the_highest_call_and_emitted_ones_always() -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        await tick.stream("token", call)
        await tick.emit("token", f"emitted {call}")
        return Retry("again") if call < 3 else Done()

    async with stage(handler(body)) as w:
        run_id = await start(w)
        for _ in range(3):
            await w.drain()
            w.clock.advance(60_000)
        events = await log(w, run_id)
        assert await shown(w, run_id) == [3, "emitted 3"]
        kinds = [event.type for event in kept_events(events)]
        assert [each for each in kinds if each != "token"] == [e.type for e in events if e.type != "token"]


async def test_a_reader_that_resumes_in_the_middle_needs_only_what_it_has_of_the_feed() -> None:
    async def body(tick: Tick, call: int) -> Outcome:
        async def write(key: str) -> None:
            for word in WORDS:
                await tick.stream("token", word)

        await tick.step("write", write)
        return Retry("again") if call == 1 else Done()

    async with stage(handler(body)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(10_000)
        await w.drain()
        events = await log(w, run_id)
        for place, event in enumerate(events):
            rest = await w.ocean.read_events(run_id, after=event.seq, limit=100)
            assert kept_events(rest) == events[place + 1 :], "nothing is obsolete, wherever the reader begins"
            reader = StreamReader()
            assert [each for part in (events[: place + 1], rest) for seen in part for each in reader.take(seen)] == []
        assert reader._undecided == {}, "an ended run takes no memory"
