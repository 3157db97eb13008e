"""Which streamed events count.

A step is not repeated once it is stored, and neither is what it has streamed: these events count whatever happens to
the tick later. Everything else that a call streams is replaced by the tick's next call:

- Events of a step (`event.step`) count if the step was stored in the same call: then the log has a `tick.step_stored`
  event with the same step, tick and call. They are obsolete when the tick is called again, is committed, or the run
  ends, and the step was not stored.
- Events without a step are obsolete when their tick is called again: events with a higher `call` appear.

Until then they count: the call is still at work. Ocean's own events always count, and so do emitted events.
"""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from ocean.kernel.arguments import KERNEL_EVENTS
from ocean.state.records import Event

STEP_STORED = "tick.step_stored"
RUN_ENDS = frozenset({"run.done", "run.failed", "run.deleted"})


class StreamedBy(NamedTuple):
    """What events belong to: one call of a tick or, if `step` is given, the step in that call. All count, or none."""

    run_id: str
    tick: int
    call: int
    step: str | None


class StreamReader:
    """Finds out which streamed events have become obsolete, for a program that follows a feed.

    It holds no events: only what is still undecided, for each run that is at work. `TYPES` are Ocean's event types that
    it needs; a filtered feed must contain them.
    """

    TYPES: ClassVar[tuple[str, ...]] = (STEP_STORED, "tick.restarted", "tick.committed", *sorted(RUN_ENDS))

    def __init__(self) -> None:
        self._undecided: dict[str, dict[StreamedBy, None]] = {}

    @staticmethod
    def streamed_by(event: Event) -> StreamedBy | None:
        """Return what a clog's event belongs to; None for an event that always counts."""
        if event.run_id is None or event.tick is None or event.call is None or _is_oceans_own(event):
            return None
        return StreamedBy(event.run_id, event.tick, event.call, event.step)

    def take(self, event: Event) -> list[StreamedBy]:
        """Take the next event of the feed, and return what has become obsolete by it: drop these events first."""
        run_id = event.run_id
        if run_id is None:
            return []
        undecided = self._undecided.get(run_id, {})
        obsolete = [each for each in undecided if _is_obsolete(each, event)]
        is_over = event.type in RUN_ENDS or event.type in ("tick.committed", "run.created")
        undecided = {} if is_over else {each: None for each in undecided if not _is_past(each, event)}
        if event.type == STEP_STORED:
            undecided.pop(StreamedBy(run_id, event.tick or 0, event.call or 0, event.step), None)
        elif (streamed_by := self.streamed_by(event)) is not None:
            undecided[streamed_by] = None
        if undecided:
            self._undecided[run_id] = undecided
        else:
            self._undecided.pop(run_id, None)
        return obsolete


def kept_events(events: Iterable[Event]) -> list[Event]:
    """Return the events without those that have become obsolete, in their order.

    `events` are consecutive events of a feed, oldest first. If it is filtered by type, it must contain the types in
    `StreamReader.TYPES`.
    """
    reader = StreamReader()
    kept: dict[int, Event] = {}
    places: dict[StreamedBy, list[int]] = {}
    for place, event in enumerate(events):
        for obsolete in reader.take(event):
            for each in places.pop(obsolete, ()):
                del kept[each]
        kept[place] = event
        streamed_by = reader.streamed_by(event)
        if streamed_by is not None:
            places.setdefault(streamed_by, []).append(place)
    return list(kept.values())


def _is_oceans_own(event: Event) -> bool:
    return event.type.partition(".")[0] in KERNEL_EVENTS


def _is_past(each: StreamedBy, event: Event) -> bool:
    """Whether the event is of a later call of the same run."""
    if event.tick is None or event.call is None:
        return False
    return (event.tick, event.call) > (each.tick, each.call)


def _is_obsolete(each: StreamedBy, event: Event) -> bool:
    if each.step is not None:
        return _is_past(each, event) or event.type == "tick.committed" or event.type in RUN_ENDS
    return each.tick == event.tick and _is_past(each, event)
