"""Direct writes: which events bypass the server, and when the server sends them after all."""

from collections.abc import Sequence

import pytest

from ocean import Event, Ok, Outcome, Tick
from ocean.http.streaming import frames as framing
from ocean.http.streaming.frames import LAST_CHUNK, DirectWriteProtocol, DirectWriter
from tests.http.stream_client import StreamServer, Watcher, stream_server
from tests.lifecycle.acting import Script, let_others_go_on
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The chunks that direct writers have written."""
    taken: list[bytes] = []
    write = DirectWriter.write

    def record_write(writer: DirectWriter, events: Sequence[Event]) -> bool:
        is_taken = write(writer, events)
        taken.extend([LAST_CHUNK.of(events) or b""] if is_taken else [])
        return is_taken

    monkeypatch.setattr(DirectWriter, "write", record_write)
    return taken


async def until_waiting(s: StreamServer, followers: int) -> None:
    """Wait until this many readers have every event and wait for more."""

    def all_wait() -> bool:
        joined = s.w.ocean._tail._all()
        return len(joined) == followers and all(each._taker is not None for each in joined)

    await until(all_wait)


async def test_events_for_waiting_readers_are_encoded_once_and_written_without_waking_them(
    written: list[bytes],
) -> None:
    async with stream_server() as s:
        await s.run()
        watchers = [await s.open() for _ in range(3)]
        assert [(await watcher.next()).id for watcher in watchers] == [1, 1, 1]
        await until_waiting(s, 3)
        assert written == []
        await s.run()
        assert [(await watcher.next()).id for watcher in watchers] == [2, 2, 2]
        assert len(written) == 3
        assert len({id(chunk) for chunk in written}) == 1
        assert not any(follower._woken.is_set() or follower._kept for follower in s.w.ocean._tail._all())
        for watcher in watchers:
            await watcher.close()


async def test_an_http_1_0_client_gets_events_without_chunks(written: list[bytes]) -> None:
    async with stream_server() as s:
        watcher = await Watcher.open(s.port, version="1.0")
        assert "transfer-encoding" not in watcher.head
        await s.run()
        assert (await watcher.next()).id == 1
        await let_others_go_on(s.w)
        await s.run()
        assert (await watcher.next()).id == 2
        assert written == []
        await watcher.close()


async def test_events_too_large_for_one_batch_are_sent_by_the_server(written: list[bytes]) -> None:
    async def emit_big(tick: Tick) -> Outcome:
        for _ in range(3):
            await tick.emit("big", "x" * (framing.BATCH_BYTES // 2))
        return Ok()

    async with stream_server(Script(emit_big)) as s:
        run_id = await s.run()
        watcher = await s.open("/v1/events?types=big")
        await until_waiting(s, 1)
        await s.w.ocean.signal(run_id)
        await s.w.drain()
        assert [frame.event for frame in await watcher.take(3)] == ["big"] * 3
        assert written == []
        await watcher.close()


async def test_a_chunk_is_built_again_for_other_events_and_is_none_if_they_are_too_many() -> None:
    last = framing.LastChunk()
    first: Sequence[Event] = [Event(1, 0, "x", None), Event(2, 0, "y", None)]
    body = b"".join(framing.frame(event) for event in first)
    assert last.of(first) == b"%x\r\n%b\r\n" % (len(body), body)
    assert last.of(first) is last.of(first)
    assert last.of([Event(1, 0, "x", "y" * framing.BATCH_BYTES), Event(2, 0, "y", None)]) is None
    assert last._events is first
    assert last.of([first[1]]) == b"%x\r\n%b\r\n" % (len(framing.frame(first[1])), framing.frame(first[1]))


async def test_a_reader_that_pauses_gets_every_event_once_and_in_order(
    written: list[bytes],
) -> None:
    """By direct writes, then, when the buffer is full, by the server, and by direct writes again."""
    size = 60_000

    async def emit_big(tick: Tick) -> Outcome:
        await tick.emit("big", "x" * size)
        return Ok()

    async with stream_server(Script(emit_big)) as s:
        run_id = await s.run()
        watcher = await s.open("/v1/events?types=big")
        await until_waiting(s, 1)
        count = 0

        async def signal_once() -> None:
            nonlocal count
            await s.w.ocean.signal(run_id)
            await s.w.drain()
            await let_others_go_on(s.w)
            count += 1

        while s.w.ocean._tail._all()[0]._taker is not None:
            await signal_once()
        direct = len(written)
        assert 0 < direct < count
        for _ in range(3):
            await signal_once()
        assert len(written) == direct
        ids = [(await watcher.next()).id for _ in range(count)]
        await until_waiting(s, 1)
        await signal_once()
        ids.append((await watcher.next()).id)
        assert len(written) == direct + 1
        assert ids == [event.seq for event in await s.w.ocean.read_events(types=["big"], limit=1_000)]
        await watcher.close()


async def test_a_direct_writer_whose_reader_has_gone_takes_nothing() -> None:
    async with stream_server() as s:
        watcher = await s.open()
        await until_waiting(s, 1)
        (connection,) = s.server.server_state.connections
        assert isinstance(connection, DirectWriteProtocol)
        connection.transport.close()
        assert not connection._writer.write([Event(1, 0, "x", None)])
        await s.until_left(0)
        await watcher.close()
