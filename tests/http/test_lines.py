"""Lines: what a waiting reader is told past its server, and when it is the server's to send after all."""

from collections.abc import Sequence

import pytest

from ocean import Event, Ok, Outcome, Tick
from ocean.http.streaming import frames as framing
from ocean.http.streaming.direct_write import LAST_CHUNK, DirectWriteProtocol, DirectWriter
from tests.http.watchers import Served, Watcher, served
from tests.lifecycle.acting import Script, let_others_go_on
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What lines have taken."""
    taken: list[bytes] = []
    write = DirectWriter.write

    def seen(writer: DirectWriter, events: Sequence[Event]) -> bool:
        is_taken = write(writer, events)
        taken.extend([LAST_CHUNK.of(events) or b""] if is_taken else [])
        return is_taken

    monkeypatch.setattr(DirectWriter, "write", seen)
    return taken


async def waiting(s: Served, followers: int) -> None:
    """Until so many readers have all that there was, and wait for more."""

    def all_wait() -> bool:
        joined = s.w.ocean._tail._all()
        return len(joined) == followers and all(each._taker is not None for each in joined)

    await until(all_wait)


async def test_what_comes_while_readers_wait_is_put_together_once_and_written_without_waking_them(
    written: list[bytes],
) -> None:
    async with served() as s:
        await s.run()
        watchers = [await s.open() for _ in range(3)]
        assert [(await watcher.next()).id for watcher in watchers] == [1, 1, 1]
        await waiting(s, 3)
        assert written == []
        await s.run()
        assert [(await watcher.next()).id for watcher in watchers] == [2, 2, 2]
        assert len(written) == 3
        assert len({id(chunk) for chunk in written}) == 1
        assert not any(follower._woken.is_set() or follower._kept for follower in s.w.ocean._tail._all())
        for watcher in watchers:
            await watcher.close()


async def test_who_speaks_an_older_http_is_told_without_chunks(written: list[bytes]) -> None:
    async with served() as s:
        watcher = await Watcher.open(s.port, version="1.0")
        assert "transfer-encoding" not in watcher.head
        await s.run()
        assert (await watcher.next()).id == 1
        await let_others_go_on(s.w)
        await s.run()
        assert (await watcher.next()).id == 2
        assert written == []
        await watcher.close()


async def test_what_is_too_much_for_one_sending_is_left_to_the_server(written: list[bytes]) -> None:
    async def tell(tick: Tick) -> Outcome:
        for _ in range(3):
            await tick.emit("big", "x" * (framing.BATCH_BYTES // 2))
        return Ok()

    async with served(Script(tell)) as s:
        run_id = await s.run()
        watcher = await s.open("/v1/events?types=big")
        await waiting(s, 1)
        await s.w.ocean.signal(run_id)
        await s.w.drain()
        assert [frame.event for frame in await watcher.take(3)] == ["big"] * 3
        assert written == []
        await watcher.close()


async def test_a_chunk_is_made_anew_for_other_events_and_is_none_if_they_are_too_many() -> None:
    last = framing.LastChunk()
    first: Sequence[Event] = [Event(1, 0, "x", None), Event(2, 0, "y", None)]
    body = b"".join(framing.frame(event) for event in first)
    assert last.of(first) == b"%x\r\n%b\r\n" % (len(body), body)
    assert last.of(first) is last.of(first)
    assert last.of([Event(1, 0, "x", "y" * framing.BATCH_BYTES), Event(2, 0, "y", None)]) is None
    assert last._events is first
    assert last.of([first[1]]) == b"%x\r\n%b\r\n" % (len(framing.frame(first[1])), framing.frame(first[1]))


async def test_a_reader_that_stops_reading_for_a_while_is_told_everything_once_and_in_order(
    written: list[bytes],
) -> None:
    """By its line, then, when that is full, by the server, and by its line again."""
    size = 60_000

    async def tell(tick: Tick) -> Outcome:
        await tick.emit("big", "x" * size)
        return Ok()

    async with served(Script(tell)) as s:
        run_id = await s.run()
        watcher = await s.open("/v1/events?types=big")
        await waiting(s, 1)
        said = 0

        async def say() -> None:
            nonlocal said
            await s.w.ocean.signal(run_id)
            await s.w.drain()
            await let_others_go_on(s.w)
            said += 1

        while s.w.ocean._tail._all()[0]._taker is not None:
            await say()
        by_line = len(written)
        assert 0 < by_line < said
        for _ in range(3):
            await say()
        assert len(written) == by_line
        ids = [(await watcher.next()).id for _ in range(said)]
        await waiting(s, 1)
        await say()
        ids.append((await watcher.next()).id)
        assert len(written) == by_line + 1
        assert ids == [event.seq for event in await s.w.ocean.read_events(types=["big"], limit=1_000)]
        await watcher.close()


async def test_a_line_whose_reader_is_gone_takes_nothing() -> None:
    async with served() as s:
        watcher = await s.open()
        await waiting(s, 1)
        (connection,) = s.server.server_state.connections
        assert isinstance(connection, DirectWriteProtocol)
        connection.transport.close()
        assert not connection._writer.write([Event(1, 0, "x", None)])
        await s.until_left(0)
        await watcher.close()
