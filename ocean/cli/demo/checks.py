"""The checks at the end of the demo. Pure functions of the log and the runs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ocean import Event, RunInfo, RunStatus
from ocean.cli.demo.clog import DELIVERED, SPOKE


@dataclass(frozen=True, slots=True)
class HalfTick:
    """A tick whose process was killed before the commit, and the run's row and inbox right after."""

    run_id: str
    tick: int
    row: Mapping[str, int]
    pending: int


@dataclass(slots=True)
class Sent:
    """What the demo has sent: names of the runs, their kilos, and the signals."""

    names: dict[str, str] = field(default_factory=dict)
    kilos: dict[str, int] = field(default_factory=dict)
    signals: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what must hold, and where it does not."""

    promise: str
    faults: tuple[str, ...] = ()


def check_all(
    sent: Sent, half: HalfTick, runs: Iterable[RunInfo], log: Sequence[Event], live: Sequence[Event]
) -> list[Check]:
    """Return all checks."""
    found = {run.run_id: run for run in runs}
    return [
        _half_tick_left_nothing(sent, half, log),
        _called_again_after_the_crash(sent, half, log),
        _every_run_is_done(sent, found),
        _signals_consumed_once(sent, log),
        _ticks_committed_once(sent, log),
        _sums_are_right(sent, found),
        _logs_are_dense(sent, log),
        _live_feed_was_whole(log, live),
    ]


def _half_tick_left_nothing(sent: Sent, half: HalfTick, log: Sequence[Event]) -> Check:
    earlier = [e for e in log if e.run_id == half.run_id and e.type == DELIVERED and (e.tick or 0) < half.tick]
    before = {name: earlier[-1].payload[name] if earlier else 0 for name in ("parcels", "kilos")}
    faults = [] if half.row == before else [f"the row was {dict(half.row)}, not {before}"]
    faults += [] if half.pending else ["its signal was no longer in the inbox"]
    return Check(f"the killed tick left no trace in {sent.names[half.run_id]}'s row or inbox", tuple(faults))


def _called_again_after_the_crash(sent: Sent, half: HalfTick, log: Sequence[Event]) -> Check:
    of_tick = [e for e in log if e.run_id == half.run_id and e.tick == half.tick]
    restarts = [e for e in of_tick if e.type == "tick.restarted" and e.payload["because"] == "crash"]
    receipts = {e.payload["receipt"] for e in of_tick if e.type in (SPOKE, DELIVERED)}
    faults = [] if restarts else ["its handler was never called again"]
    faults += [] if len(receipts) == 1 else [f"its one step has {len(receipts)} results: {sorted(receipts)}"]
    return Check("its handler was called again, and the step that had finished was not repeated", tuple(faults))


def _every_run_is_done(sent: Sent, found: Mapping[str, RunInfo]) -> Check:
    status = {run_id: found[run_id].status if run_id in found else "gone" for run_id in sent.names}
    faults = [f"{sent.names[run_id]} is {is_} now" for run_id, is_ in status.items() if is_ != RunStatus.DONE]
    return Check(f"{len(sent.names) - len(faults)} of {len(sent.names)} runs are done", tuple(faults))


def _signals_consumed_once(sent: Sent, log: Sequence[Event]) -> Check:
    committed = [event for event in log if event.type == "tick.committed"]
    consumed = Counter((str(e.run_id), number) for e in committed for number in e.payload["inputs"])
    faults = [f"{sent.names.get(r, r)}: signal {n} was lost" for r, n in sorted(sent.signals - consumed.keys())]
    faults += [f"{sent.names.get(r, r)}: signal {n} was never sent" for r, n in sorted(consumed.keys() - sent.signals)]
    faults += [f"{sent.names.get(r, r)}: signal {n} consumed {k} times" for (r, n), k in consumed.items() if k > 1]
    good = sum(1 for signal in sent.signals if consumed[signal] == 1)
    return Check(f"{good} of {len(sent.signals)} signals were consumed, each exactly once", tuple(faults))


def _ticks_committed_once(sent: Sent, log: Sequence[Event]) -> Check:
    ticks: dict[str, list[int]] = defaultdict(list)
    for event in log:
        if event.type == "tick.committed":
            ticks[str(event.run_id)].append(event.tick or 0)
    faults = [
        f"{name} committed ticks {ticks[run_id]}"
        for run_id, name in sent.names.items()
        if ticks[run_id] != list(range(1, len(ticks[run_id]) + 1))
    ]
    return Check(f"{sum(map(len, ticks.values()))} ticks were committed, each exactly once", tuple(faults))


def _sums_are_right(sent: Sent, found: Mapping[str, RunInfo]) -> Check:
    got = {run_id: (run.output or {}).get("kilos", 0) for run_id, run in found.items()}
    faults = [
        f"{name} delivered {got.get(run_id, 0)} kg of {sent.kilos[run_id]} kg"
        for run_id, name in sent.names.items()
        if got.get(run_id, 0) != sent.kilos[run_id]
    ]
    total = sum(got.get(run_id, 0) for run_id in sent.names)
    return Check(
        f"{total} of {sum(sent.kilos.values())} kg were delivered, and the sum of each courier is right", tuple(faults)
    )


def _logs_are_dense(sent: Sent, log: Sequence[Event]) -> Check:
    numbers: dict[str, list[int]] = defaultdict(list)
    for event in log:
        if event.run_id is not None:
            numbers[event.run_id].append(event.run_seq or 0)
    faults = [
        f"{sent.names.get(run_id, run_id)}'s events have a gap or a repeat"
        for run_id, seqs in numbers.items()
        if seqs != list(range(1, len(seqs) + 1))
    ]
    return Check(f"{len(log)} events, numbered without a gap in every run", tuple(faults))


def _live_feed_was_whole(log: Sequence[Event], live: Sequence[Event]) -> Check:
    shown, written = [event.seq for event in live], [event.seq for event in log]
    faults = [] if shown == written else [f"the feed had {len(shown)} events, the log has {len(written)}"]
    return Check("the live feed showed each of them once, in order", tuple(faults))
