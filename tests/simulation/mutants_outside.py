"""Kernels with one fault each, in what clients use: direct calls, feeds, rates, verbs for many runs."""

from collections.abc import Callable
from typing import Any

from ocean.events import feed, follower
from ocean.kernel.verbs import bulk
from ocean.state.filters import FeedFilter
from ocean.stores.sqlite import delaying, effects
from ocean.stores.sqlite.store import SqliteStore
from tests.simulation.patching import Change, put

Wrap = Callable[[Callable[..., Any]], Any]


def _instead(place: Any, name: str, wrap: Wrap) -> Change:
    return lambda undo: put(undo, place, name, wrap(getattr(place, name)))


def _unless_decided(have_changed: Callable[..., bool]) -> Any:
    """Do not compare the versions of rows of decisions."""
    return lambda u, writes, *more: have_changed(u, [each for each in writes if each.key.clog_id != "decision"], *more)


def _one_behind(read_rows: Callable[..., Any]) -> Any:
    """Return rows as of the read before, like a stale replica."""
    seen: dict[Any, Any] = {}

    async def read(self: SqliteStore, ask: Any) -> Any:
        now = await read_rows(self, ask)
        before, seen[self, ask.keys] = seen.get((self, ask.keys), now), now
        return before if ask.clog_id == "decision" else now

    return read


def _over_when_level(is_over: Callable[..., Any]) -> Any:
    async def is_level(store: Any, run_id: str, after: int) -> bool:
        return not await store.read_events(FeedFilter(run_id=run_id), after, 1)

    return is_level


MUTANTS: dict[str, Change] = {
    "careless calls": _instead(effects, "have_changed", _unless_decided),
    "calls see an old row": _instead(SqliteStore, "read_rows", _one_behind),
    "rates ignored": _instead(delaying, "reserve_tokens", lambda old: lambda u, rate: u.now),
    "one of a batch passed over": _instead(
        bulk.Bulk, "_do", lambda old: lambda self, run_ids, act: old(self, run_ids[1:] or run_ids, act)
    ),
    "feeds end when they are level": _instead(feed, "_is_over", _over_when_level),
    "feeds tell twice": _instead(
        follower.Follower, "level", lambda old: lambda self, after: old(self, min(after, self.after))
    ),
}
