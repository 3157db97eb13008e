"""Feeds: pages of the log, and following it live, exactly once and in order."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from ocean.events.follower import TakeAtOnce
from ocean.events.tail import PAGE, Tail
from ocean.kernel.store import Store
from ocean.state.errors import BadCursor, RunNotFound
from ocean.state.filters import FeedFilter
from ocean.state.records import Event

RESET = "reset"


async def read_page(store: Store, where: FeedFilter, after: int, limit: int) -> list[Event]:
    """Events after a cursor, oldest first. If retention has removed some of them, the first one is a `reset`."""
    page, _ = await _look(store, where, after, limit)
    return page


async def read_newest(store: Store, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
    """Events below a cursor, or from the end of the log, newest first; what retention has removed is not among them."""
    if before is not None and (isinstance(before, bool) or not isinstance(before, int) or before < 0):
        raise BadCursor(f"cursor {before!r} is none of this log's; leave it out, or use a seq you were given")
    return await store.read_newest_events(where, before, limit)


async def _look(store: Store, where: FeedFilter, after: int, limit: int) -> tuple[list[Event], int]:
    """A page, and the highest cursor that there was before it was read."""
    floor, last = await store.event_bounds()
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= last:
        raise BadCursor(
            f"cursor {after!r} is none of this log's (0 to {last}); start from 0, or from a seq you were given"
        )
    events = await store.read_events(where, after, limit)
    if where.run_id is not None and not events and not await _is_known(store, where.run_id):
        raise RunNotFound(f"there is no run {where.run_id!r}, and no event of one", run_id=where.run_id)
    if events[0].seq > after + 1 if events else last > after:
        # Retention may have cut between the two looks, or after both: what was read is above the cut it was read by.
        floor, _ = await store.event_bounds()
        floor = min(floor, events[0].seq - 1) if events else floor
    if after < floor and _has_gap(where, events):
        gap = Event(seq=floor, ts=events[0].ts if events else 0, type=RESET, payload={"after": after, "floor": floor})
        return [replace(gap, run_id=None), *events], last
    return events, last


async def _is_known(store: Store, run_id: str) -> bool:
    """Whether the run is there, or was: events stay when it is deleted."""
    if await store.get_run(run_id) is not None:
        return True
    return bool(await store.read_events(FeedFilter(run_id=run_id), 0, 1))


def _has_gap(where: FeedFilter, events: list[Event]) -> bool:
    """A run younger than the cut has lost nothing: its first event is still there."""
    return not (where.run_id is not None and events and events[0].run_seq == 1)


async def follow(store: Store, tail: Tail, where: FeedFilter, after: int) -> AsyncIterator[Event]:
    """Every event after the cursor, as it is committed. One run's feed ends after the run's last event."""
    async with aclosing(follow_in_parts(store, tail, where, after)) as parts:
        async for events in parts:
            for event in events:
                yield event


async def follow_in_parts(
    store: Store, tail: Tail, where: FeedFilter, after: int, take_at_once: TakeAtOnce | None = None
) -> AsyncGenerator[list[Event], None]:
    """The same for those who pass on many at once: what has gathered meanwhile comes together.

    What comes while this waits is offered to `take_at_once` first. If that takes it, it does not come here.
    """
    with tail.joined(where, after, take_at_once) as follower:
        while True:
            if follower.is_behind:
                await follower.catch_up()
                after, is_level = follower.after, False
                while not is_level:
                    page, last = await _look(store, where, after, PAGE)
                    if page:
                        yield page
                        after = max(after, page[-1].seq)
                    is_level = len(page) < PAGE
                # All up to `last` has been looked at: a narrow feed does not read the others' events again.
                follower.level(max(after, last))
                if where.run_id is not None and await _is_over(store, where.run_id, follower.after):
                    return
            told = await follower.next()
            if told:
                yield told
            elif follower.is_over:
                return


async def _is_over(store: Store, run_id: str, after: int) -> bool:
    """Whether the run has ended, or is gone, and nothing of its log is left to read."""
    run = await store.get_run(run_id)
    if run is not None and not run.is_ended:
        return False
    return not await store.read_events(FeedFilter(run_id=run_id), after, 1)
