"""The log: one event for every transition, without gaps per run, read in pages or followed to its end."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from ocean import BadCursor, Continue, Done, Event, Failed, Ok, Outcome, Retry, Tick, Wait
from tests.lifecycle.acting import Script, die_holding, let_others_go_on, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio


async def collect(feed: AsyncIterator[Event], most: int | None = None) -> list[Event]:
    events: list[Event] = []
    async for event in feed:
        events.append(event)
        if len(events) == most:
            break
    return events


async def test_every_transition_of_a_run_is_in_the_log() -> None:
    """O2: the kernel writes the audit log, not only the clogs."""
    script = Script(Continue(), Retry("no"), Wait(for_ms=5), Ok(), Done("end"))
    async with stage(script) as w:
        run_id = await start(w, actor="ada")
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        w.clock.advance(5)
        await w.drain()
        await w.ocean.pause_run(run_id)
        await w.ocean.resume_run(run_id)
        await w.ocean.signal(run_id, "x", signal_id="i", actor="bob")
        await w.drain()
        events = await log(w, run_id)
        assert [event.type for event in events] == [
            "run.created",
            "tick.committed",
            "run.retrying",
            "tick.restarted",
            "tick.committed",
            "run.waiting",
            "tick.committed",
            "run.paused",
            "run.resumed",
            "run.signalled",
            "tick.committed",
            "run.done",
        ]
        assert [event.run_seq for event in events] == list(range(1, len(events) + 1))
        assert {(event.session_id, event.clog_id, event.correlation_id) for event in events} == {("s", "c", run_id)}
        by_type = {event.type: event for event in events}
        assert (by_type["run.created"].actor, by_type["run.signalled"].actor) == ("ada", "bob")
        assert by_type["run.signalled"].payload == {
            "number": 3,
            "kind": "signal",
            "signal_id": "i",
            "available_at": w.clock.now(),
            "status": "pending",
        }


async def test_a_committed_tick_records_its_instance_and_claim() -> None:
    async with stage(Script(Done(), version="v7")) as w:
        run_id = await start(w)
        await w.drain()
        (event,) = await log(w, run_id, "tick.committed")
        assert event.payload == {
            "outcome": "done",
            "status": "done",
            "reason": "created",
            "attempt": 0,
            "inputs": [1],
            "claimed_at": w.clock.now(),
            "epoch": 1,
            "instance": w.ocean.instance_id,
            "version": "v7",
        }
        assert (event.tick, event.call, event.causation_id) == (1, 1, f"{run_id}:1")


async def test_a_chain_of_runs_shares_its_correlation_and_names_its_causes() -> None:
    async def create_child(tick: Tick) -> Outcome:
        await tick.create_run(clog_id="child", input=None)
        return Done()

    async with stage(Script(create_child), Script(Done(), clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        chain = await w.ocean.read_events(correlation_id=run_id)
        assert {event.run_id for event in chain} == {
            run_id,
            *[run.run_id for run in (await w.ocean.list_runs(parent_run_id=run_id)).runs],
        }


async def test_a_feed_covers_a_run_a_session_a_clog_or_everything() -> None:
    async with stage(Script(Done()), Script(Done(), clog_id="d")) as w:
        one = await start(w, session_id="s1")
        two = await start(w, session_id="s2", clog_id="d")
        await w.drain()
        everything = await w.ocean.read_events()
        assert [event.seq for event in everything] == sorted(event.seq for event in everything)
        for feed, wanted in (
            ({"run_id": one}, one),
            ({"session_id": "s2"}, two),
            ({"clog_id": "d"}, two),
            ({"session_id": "s1", "clog_id": "c"}, one),
        ):
            found = await w.ocean.read_events(**feed)  # type: ignore[arg-type]
            assert found == [event for event in everything if event.run_id == wanted]
        created = await w.ocean.read_events(types=["run.created", "run.done"])
        assert [event.type for event in created] == ["run.created", "run.created", "run.done", "run.done"]


async def test_pages_of_the_feed_join_to_the_whole_log() -> None:
    async with stage(Script(Continue(), Continue(), Done())) as w:
        for _ in range(3):
            await start(w)
        await w.drain()
        whole, joined, after = await w.ocean.read_events(), [], 0
        while page := await w.ocean.read_events(after=after, limit=4):
            joined += page
            after = page[-1].seq
        assert joined == whole


@pytest.mark.parametrize("after", [-1, 10**6, 2**70, "1", True, None, 1.0])
async def test_a_cursor_that_is_not_in_the_log_is_refused(after: Any) -> None:
    async with stage(Script()) as w:
        await start(w)
        with pytest.raises(BadCursor):
            await w.ocean.read_events(after=after)
        with pytest.raises(BadCursor):
            await collect(w.ocean.follow(after=after))


@pytest.mark.parametrize("end", ["done", "failed", "cancelled", "deleted"])
async def test_following_a_run_ends_after_its_last_event(end: str) -> None:
    script = Script(Failed("no") if end == "failed" else Done() if end == "done" else Ok())
    followed: list[Event] = []

    async with stage(script) as w:
        run_id = await start(w)

        async def follow() -> None:
            followed.extend(await collect(w.ocean.follow(run_id)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await let_others_go_on(w)
            await w.drain()
            match end:
                case "cancelled":
                    await w.ocean.cancel_run(run_id)
                case "deleted":
                    await w.ocean.delete_run(run_id)
        assert followed == await log(w, run_id)
        assert followed[-1].type == {"done": "run.done", "deleted": "run.deleted"}.get(end, "run.failed")


async def test_following_resumes_after_a_cursor_exactly_once() -> None:
    async with stage(Script(Continue(), Done())) as w:
        run_id = await start(w)
        await w.drain()
        whole = await collect(w.ocean.follow(run_id))
        for cut in range(len(whole)):
            assert await collect(w.ocean.follow(run_id, after=whole[cut].seq)) == whole[cut + 1 :]


async def test_following_some_types_of_a_run_ends_with_the_run() -> None:
    async with stage(Script(Continue(), Done())) as w:
        run_id = await start(w)
        await w.drain()
        with anyio.fail_after(5):
            followed = await collect(w.ocean.follow(run_id, types=["run.created"]))
        assert [event.type for event in followed] == ["run.created"]


async def test_following_everything_sees_each_event_as_it_is_committed() -> None:
    async with stage(Script(Done())) as w:
        feed = w.ocean.follow()
        first = await start_idle(w)
        assert [(event.type, event.run_id) for event in await collect(feed, 1)] == [("run.created", first)]
        following = w.ocean.follow(after=1, session_id="s2")
        await start_idle(w)
        second = await start_idle(w, session_id="s2")
        assert [event.run_id for event in await collect(following, 1)] == [second]


async def test_a_tick_restarted_after_a_crash_comes_between_the_two_calls() -> None:
    script = Script(Done())
    async with stage(script) as w:
        run_id = await start(w)
        await die_holding(w, script)
        w.clock.advance(30_000)
        await w.drain()
        assert await types(w, run_id) == ["run.created", "tick.restarted", "tick.committed", "run.done"]
        assert (await look(w, run_id)).attempt == 0
