"""Streams on a real server: resumed exactly once, ended, refused, dropped; nothing is left behind."""

import asyncio
import json
import logging
import random
import socket
from typing import Any

import anyio
import pytest

from ocean import Done, Event, Ok, Outcome, RunStatus, Tick
from ocean.http.framework.responses import record
from ocean.http.streaming import frames as framing
from ocean.http.streaming import sse as streams
from ocean.http.streaming.frames import DirectWriteProtocol
from ocean.state.filters import FeedFilter
from tests.http import stream_client
from tests.http.stream_client import StreamServer, Watcher, stream_server
from tests.lifecycle.acting import Script, let_others_go_on, log, look
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True, params=[DirectWriteProtocol, "h11"], ids=["direct", "asgi"])
def _server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With direct writes, as in `ocean serve`, and without."""
    monkeypatch.setattr(stream_client, "PROTOCOL", request.param)


async def test_a_frame_has_the_cursor_the_type_and_the_event() -> None:
    async with stream_server() as s:
        run_id = await s.run()
        watcher = await s.open(f"/v1/runs/{run_id}/events")
        assert watcher.head["content-type"] == "text/event-stream; charset=utf-8"
        assert (watcher.head["cache-control"], watcher.head["x-accel-buffering"]) == ("no-store", "no")
        assert "x-request-id" in watcher.head
        (event,) = await log(s.w)
        frame = await watcher.next()
        assert (frame.id, frame.event) == (event.seq, "run.created")
        assert frame.data == json.loads(json.dumps(record(event))) | {"id": f"{run_id}:1"}
        assert (frame.data["runId"], frame.data["runSeq"]) == (run_id, 1)
        await watcher.close()


async def test_a_frame_is_encoded_once_and_not_reused_for_another_log() -> None:
    here, there, later = Event(1, 0, "x", {"a": 1}), Event(1, 0, "y", {"a": 1}), Event(2, 0, "x", None)
    cache = framing.FrameCache(most_bytes=len(framing.frame(here)) + len(framing.frame(later)))
    assert cache.of(here) is cache.of(here)
    assert cache.of(there) == framing.frame(there) != cache.of(here)
    first = cache.of(here)
    assert cache.of(later) is cache.of(later)
    assert cache.of(here) is first
    cache.of(Event(3, 0, "x", None))
    assert cache.of(here) == first
    assert cache.of(here) is not first
    assert sum(len(each) for _, each in cache._frames.values()) == cache._size <= cache._most


async def test_collected_events_are_sent_in_batches_of_bounded_size() -> None:
    events = [Event(seq, 0, "x", "y" * 1_000) for seq in range(1, 201)]
    huge = Event(201, 0, "x", "y" * (2 * framing.BATCH_BYTES))
    sent = list(framing.batches([*events, huge]))
    assert b"".join(sent) == b"".join(framing.frame(event) for event in [*events, huge])
    assert [len(each) <= framing.BATCH_BYTES for each in sent] == [True] * 4 + [False]
    assert sent[-1] == framing.frame(huge)


async def test_a_stream_is_resumed_by_the_last_id_exactly_once_and_continues_live() -> None:
    async with stream_server() as s:
        for _ in range(4):
            await s.run()
        for path, last, wanted in (
            ("/v1/events", None, [1, 2, 3, 4, 5]),
            ("/v1/events?after=2", None, [3, 4, 5]),
            ("/v1/events?after=2", 3, [4, 5]),
            ("/v1/events?after=latest", 4, [5]),
            ("/v1/events", 0, [1, 2, 3, 4, 5]),
        ):
            watcher = await s.open(path, last)
            frames = await watcher.take(len(wanted) - 1)
            await s.run() if wanted == [1, 2, 3, 4, 5] and last is None else None
            frames.append(await watcher.next())
            assert [frame.id for frame in frames] == wanted
            await watcher.close()


async def test_a_stream_begins_with_its_cursor() -> None:
    async with stream_server() as s:
        await s.run()
        watcher = await Watcher.open(s.port, last=1)
        assert (await watcher.next_of_any_kind()).data == "retry: 1000\nid: 1"
        await watcher.close()


async def test_a_stream_of_some_types_has_only_these() -> None:
    async with stream_server(Script(Done())) as s:
        watcher = await s.open("/v1/events?types=run.done&types=run.created")
        await s.run(input=1)
        await s.w.drain()
        assert [frame.event for frame in await watcher.take(2)] == ["run.created", "run.done"]
        await watcher.close()


async def test_a_cursor_before_retention_gets_a_reset_first() -> None:
    async with stream_server() as s:
        for _ in range(3):
            await s.run()
        s.w.clock.advance(1_000)
        await s.w.ocean.sweep(events_older_than_ms=500)
        await s.run()
        watcher = await s.open(last=1)
        reset, event = await watcher.take(2)
        assert (reset.id, reset.event, reset.data["payload"]) == (3, "reset", {"after": 1, "floor": 3})
        assert (event.id, event.event) == (4, "run.created")
        await watcher.close()


async def test_a_runs_stream_ends_after_its_last_event_and_then_returns_204() -> None:
    async with stream_server(Script(Done())) as s:
        run_id = await s.run()
        watcher = await s.open(f"/v1/runs/{run_id}/events")
        some = await s.open(f"/v1/runs/{run_id}/events?types=run.created")
        await s.w.ocean.cancel_run(run_id)
        frames = await watcher.rest()
        assert [frame.event for frame in frames] == ["run.created", "run.failed"]
        assert [frame.event for frame in await some.rest()] == ["run.created"]
        again = await Watcher.open(s.port, f"/v1/runs/{run_id}/events", frames[-1].id)
        assert (again.status, await again.body()) == (204, None)
        await s.until_left(0)


@pytest.mark.parametrize("cursor", ["x", "-1", "1.0", "1e3", "1,0", "%D9%A3", "9" * 19, "2"])
async def test_an_invalid_cursor_is_refused_before_the_stream_begins(cursor: str) -> None:
    async with stream_server() as s:
        await s.run()
        watchers = [await Watcher.open(s.port, f"/v1/events?after={cursor}"), await Watcher.open(s.port, last=cursor)]
        for watcher in watchers:
            error = (await watcher.body())["error"]
            code = "bad_cursor" if cursor == "2" else "invalid_query"
            assert (watcher.status, error["code"], error["httpStatus"]) == (400, code, 400)
        await s.until_left(0)


async def test_two_cursors_are_refused_and_an_unknown_run_is_not_found() -> None:
    async with stream_server() as s:
        await s.run()
        for path, status, code in (
            ("/v1/events?after=0&after=1", 400, "invalid_query"),
            ("/v1/runs/missing/events", 404, "run_not_found"),
        ):
            watcher = await Watcher.open(s.port, path)
            assert (watcher.status, (await watcher.body())["error"]["code"]) == (status, code)


async def test_head_returns_no_stream() -> None:
    async with stream_server() as s:
        run_id = await s.run()
        watcher = await Watcher.open(s.port, f"/v1/runs/{run_id}/events", method="HEAD")
        assert (watcher.status, await watcher.body()) == (200, None)
        await s.until_left(0)


async def test_an_idle_stream_gets_a_ping_every_fifteen_seconds() -> None:
    async with stream_server() as s:
        await s.run()
        watcher = await s.open()
        await watcher.next()
        for _ in range(2):
            await let_others_go_on(s.w)
            s.w.clock.advance(14_999)
            await let_others_go_on(s.w)
            s.w.clock.advance(1)
            assert (await watcher.next_of_any_kind()).data == ": ping"
        await s.run()
        assert (await watcher.next_of_any_kind()).id == 2
        await watcher.close()


async def test_a_type_with_line_ends_forges_no_frame() -> None:
    forged = "x\n\nid: 999\r\nevent: run.done"

    async def emit_forged(tick: Tick) -> Outcome:
        await tick.emit(forged, "a\u2028b\r\n\n")
        return Ok()

    async with stream_server(Script(emit_forged)) as s:
        run_id = await s.run(input=1)
        watcher = await s.open(f"/v1/runs/{run_id}/events")
        frames = await watcher.take(3)
        (event,) = [each for each in await log(s.w) if each.type == forged]
        (frame,) = [each for each in frames if each.data["type"] == forged]
        assert (frame.id, frame.event) == (event.seq, "x  id: 999  event: run.done")
        assert frame.data["payload"] == "a\u2028b\r\n\n"
        await watcher.close()


async def test_a_watched_run_is_advanced_by_its_watchers() -> None:
    async with stream_server(Script(Done())) as s:
        watched, other = await s.run(input=1), await s.run(input=1)
        watchers = [await s.open(f"/v1/runs/{watched}/events") for _ in range(2)]
        for watcher in watchers:
            assert (await watcher.rest())[-1].event == "run.done"
        assert (await look(s.w, other)).status is RunStatus.PENDING
        await s.until_left(0)
        await until(lambda: s.w.ocean._watches.pokers == 0)
        assert s.w.ocean._watches.watched_runs == 0


async def test_a_reader_that_disconnects_leaves_nothing_behind() -> None:
    async with stream_server() as s:
        run_id = await s.run()
        before = await _after_one_stream(s)
        for path in ("/v1/events", f"/v1/runs/{run_id}/events"):
            watchers = [await s.open(path) for _ in range(20)]
            for watcher in watchers[:10]:
                await watcher.next()
            for watcher in watchers:
                await watcher.close()
            await s.until_left(0)
            await until(lambda: len(asyncio.all_tasks()) == before)
        tail, watches = s.w.ocean._tail, s.w.ocean._watches
        assert (tail.followers, tail.is_running, watches.watched_runs, watches.pokers) == (0, False, 0, 0)


async def _after_one_stream(s: StreamServer) -> int:
    """Return the number of tasks, including the library's task that watches for the server's shutdown."""
    watcher = await s.open()
    await watcher.close()
    await s.until_left(0)
    await let_others_go_on(s.w)
    return len(asyncio.all_tasks())


async def test_a_reader_that_does_not_read_is_dropped_and_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    size, count = 200_000, 60

    async def emit_big(tick: Tick) -> Outcome:
        for number in range(count // 10):
            await tick.emit("big", f"{number}" + "x" * size)
        return Ok()

    async with stream_server(Script(emit_big)) as s:
        run_id = await s.run()
        with socket.create_connection(("127.0.0.1", s.port)) as stuck:
            stuck.sendall(b"GET /v1/events?types=big HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
            await s.until_left(1)
            watcher = await s.open("/v1/events?types=big")
            read = 0
            for _ in range(10):
                await s.w.ocean.signal(run_id)
                await s.w.drain()
                read += len(await watcher.take(count // 10))
            assert read == count
            await let_others_go_on(s.w)
            assert s.w.ocean._tail.followers == 2
            with caplog.at_level(logging.INFO, "ocean.http"):
                s.w.clock.advance(streams.SEND_TIMEOUT_MS)
                await s.until_left(1)
            assert "dropped a reader" in caplog.text
            assert s.w.ocean.observed.dropped_streams == 1
            assert "Traceback" not in caplog.text
            await s.w.ocean.signal(run_id)
            await s.w.drain()
            assert len(await watcher.take(count // 10)) == count // 10
            await watcher.close()


async def test_an_error_of_the_feed_ends_its_stream_and_is_not_revealed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stream_server() as s:
        await s.run()
        follow = s.w.ocean.follow_in_parts

        async def fail(*args: Any) -> Any:
            async for events in follow(*args):
                yield events
                raise ValueError("a secret")

        monkeypatch.setattr(s.w.ocean, "follow_in_parts", fail)
        watcher = await s.open()
        assert [frame.id for frame in await watcher.rest()] == [1]
        assert "a stream ended with an unexpected error" in caplog.text
        await s.until_left(0)


def plain_stream(s: StreamServer) -> streams.Stream:
    return streams.Stream(
        s.w.ocean, FeedFilter(), 0, streams.always, s.w.clock, streams.PING_MS, streams.SEND_TIMEOUT_MS
    )


async def nothing_more() -> Any:
    await anyio.sleep_forever()


async def test_a_ping_waits_until_the_current_message_is_sent() -> None:
    """A server need not accept two messages of one response at once."""
    proceed, in_flight, bodies = anyio.Event(), list[int](), list[bytes]()

    async def send(message: Any) -> None:
        in_flight.append(len(in_flight) - len(bodies))
        if b"run.created" in message.get("body", b""):
            await proceed.wait()
        bodies.append(message.get("body", b""))

    async with stream_server() as s, anyio.create_task_group() as tasks:
        await s.run()
        tasks.start_soon(plain_stream(s), {"type": "http", "method": "GET"}, nothing_more, send)
        with anyio.fail_after(20):
            while len(in_flight) < 3:
                await let_others_go_on(s.w)
        s.w.clock.advance(streams.PING_MS)
        await let_others_go_on(s.w)
        proceed.set()
        with anyio.fail_after(20):
            while len(bodies) < 4:
                await let_others_go_on(s.w)
        tasks.cancel_scope.cancel()
    assert bodies[3] == b": ping\n\n"
    assert set(in_flight) == {0}


async def test_a_servers_disconnect_error_is_raised_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise BrokenPipeError

    async with stream_server() as s:
        await s.run()
        with pytest.raises(BrokenPipeError):
            await plain_stream(s)({"type": "http", "method": "GET"}, nothing_more, send)
        await s.until_left(0)
    assert "unexpected error" not in caplog.text


async def test_streams_end_by_themselves_when_their_ocean_is_closed() -> None:
    async with stream_server() as s:
        await s.run()
        watcher = await s.open()
        await watcher.next()
        await s.w.ocean._tail.close()
        assert await watcher.rest() == []
        await s.until_left(0)


async def test_reconnecting_watchers_get_every_id_once() -> None:
    total, watchers, seed = 40, 50, 4
    async with stream_server() as s:
        joined: list[list[int]] = [[] for _ in range(watchers)]

        async def watch(number: int) -> None:
            rng, ids = random.Random(f"{seed}:{number}"), joined[number]
            while len(ids) < total:
                watcher = await s.open(last=ids[-1] if ids else 0)
                for _ in range(min(rng.randint(1, total), total - len(ids))):
                    frame = await watcher.next()
                    assert frame.id is not None
                    ids.append(frame.id)
                if rng.random() < 0.2:
                    # Also disconnects before the headers arrive.
                    half = await anyio.connect_tcp("127.0.0.1", s.port)
                    await half.send(b"GET /v1/events HTTP/1.0\r\n" + (b"\r\n" if rng.random() < 0.5 else b""))
                    await half.aclose()
                await watcher.close()

        async with anyio.create_task_group() as tasks:
            for number in range(watchers):
                tasks.start_soon(watch, number)
            for count in range(total):
                await s.run()
                await until(lambda count=count: len(joined[0]) >= count // 2)  # type: ignore[misc]
        assert all(ids == list(range(1, total + 1)) for ids in joined)
        await s.until_left(0)
        assert not s.w.ocean._tail.is_running
