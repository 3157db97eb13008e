"""Feeds: pages of the log, and live following, each event exactly once and in order."""

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
    """Return events after a cursor, oldest first. If retention has removed some of them, the first is a `reset`."""
    page, _ = await _read_after(store, where, after, limit)
    return page


async def read_newest(store: Store, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
    """Return events before a cursor, or from the end of the log, newest first; removed events are not indicated."""
    if before is not None and (isinstance(before, bool) or not isinstance(before, int) or before < 0):
        raise BadCursor(f"`before` must be the seq of an event, got {before!r}; leave it out to start at the end")
    return await store.read_newest_events(where, before, limit)


async def _read_after(store: Store, where: FeedFilter, after: int, limit: int) -> tuple[list[Event], int]:
    """Return a page, and the highest cursor before it was read."""
    floor, last = await store.event_bounds()
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= last:
        raise BadCursor(
            f"`after` must be a cursor of this log, between 0 and {last}, got {after!r}; use 0 or the seq of an event"
        )
    events = await store.read_events(where, after, limit)
    if where.run_id is not None and not events and not await _is_known(store, where.run_id):
        raise RunNotFound(f"there is no run {where.run_id!r}, and no event of it", run_id=where.run_id)
    if events[0].seq > after + 1 if events else last > after:
        # Retention may have removed events between the two reads, or after both; those that were read are above it.
        floor, _ = await store.event_bounds()
        floor = min(floor, events[0].seq - 1) if events else floor
    if after < floor and _has_gap(where, events):
        gap = Event(seq=floor, ts=events[0].ts if events else 0, type=RESET, payload={"after": after, "floor": floor})
        return [replace(gap, run_id=None), *events], last
    return events, last


async def _is_known(store: Store, run_id: str) -> bool:
    """Return whether the run exists or has existed: events stay when a run is deleted."""
    if await store.get_run(run_id) is not None:
        return True
    return bool(await store.read_events(FeedFilter(run_id=run_id), 0, 1))


def _has_gap(where: FeedFilter, events: list[Event]) -> bool:
    """Return whether the feed may have lost events; a run whose first event still exists has lost none."""
    return not (where.run_id is not None and events and events[0].run_seq == 1)


async def follow(store: Store, tail: Tail, where: FeedFilter, after: int) -> AsyncIterator[Event]:
    """Yield every event after the cursor as it is committed. The feed of one run ends after the run's last event."""
    async with aclosing(follow_in_parts(store, tail, where, after)) as parts:
        async for events in parts:
            for event in events:
                yield event


async def follow_in_parts(
    store: Store, tail: Tail, where: FeedFilter, after: int, take_at_once: TakeAtOnce | None = None
) -> AsyncGenerator[list[Event], None]:
    """Yield the same events in lists: all that have arrived in the meantime come together.

    Events that arrive while this waits are offered to `take_at_once` first, and are not yielded if it takes them.
    """
    with tail.joined(where, after, take_at_once) as follower:
        while True:
            if follower.is_behind:
                await follower.catch_up()
                after, is_level = follower.after, False
                while not is_level:
                    page, last = await _read_after(store, where, after, PAGE)
                    if page:
                        yield page
                        after = max(after, page[-1].seq)
                    is_level = len(page) < PAGE
                # Everything up to `last` has been checked, so a narrow feed does not scan other events again.
                follower.level(max(after, last))
                if where.run_id is not None and await _is_over(store, where.run_id, follower.after):
                    return
            events = await follower.next()
            if events:
                yield events
            elif follower.is_over:
                return


async def _is_over(store: Store, run_id: str, after: int) -> bool:
    """Return whether the run has ended or was deleted, and all its events have been read."""
    run = await store.get_run(run_id)
    if run is not None and not run.is_ended:
        return False
    return not await store.read_events(FeedFilter(run_id=run_id), after, 1)
