"""Crash everywhere: a scenario is played once for every place at which its ticks can die, and must end the same.

What is killed: handlers, and the methods that they call, at every await, and around every commit. What is not: direct
calls, routes and webhooks, whose caller would simply ask again; workers outside; the scenario itself; and, unless asked
for, `on_end`, which by contract is called once and not again if it fails.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ocean.clog.clog import Clog
from ocean.compose import Ocean
from ocean.kernel.arguments import checked_count
from ocean.kernel.store import Store
from ocean.testing.crash_points import Course, CrashPoint
from ocean.testing.crashable import MortalOcean, Process
from ocean.testing.manual_clock import ManualClock
from ocean.testing.outside import Outside
from ocean.testing.results import Difference, Seen, differences, seen_in
from ocean.testing.worlds import World, opened
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials

Clogs = Collection[Clog] | Callable[[], Collection[Clog]]
Scenario = Callable[[World], Awaitable[Any]]

ANSWERED = "what the scenario answered"
RAISED = "what the scenario or the check raised"


@dataclass(frozen=True, slots=True)
class CrashFinding:
    """A place at which a crash changes the result, and how."""

    point: CrashPoint
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        place = self.point.place
        where = f"\n  {place}\n    {place.source}" if place is not None else ""
        what = "\n".join(f"  {line}" for each in self.differences for line in str(each).splitlines())
        return f"{self.point}{where}\n{what}"


@dataclass(frozen=True, slots=True)
class CrashReport:
    """Where the scenario was killed, where not (`left_out`, because of `most_points`), and what came of it."""

    killed: tuple[CrashPoint, ...]
    left_out: tuple[CrashPoint, ...]
    findings: tuple[CrashFinding, ...]

    def __str__(self) -> str:
        places = f"{len(self.killed)} places" + (f" ({len(self.left_out)} left out)" if self.left_out else "")
        if not self.findings:
            return f"the result is the same after a crash at each of {places}"
        alike: dict[str, list[CrashFinding]] = {}
        for finding in self.findings:
            alike.setdefault(str(finding.differences), []).append(finding)
        shown = "\n\n".join(map(_told, alike.values()))
        return f"a crash changes the result at {len(self.findings)} of {places}\n\n{shown}"


def _told(alike: list[CrashFinding]) -> str:
    """The first of them in full: what comes after it is mostly the same mistake."""
    first, *others = alike
    more = [f"    {each.point.deed}" + (f", {each.point.place}" if each.point.place else "") for each in others]
    return "\n".join([str(first), *(["  the same when"] if more else []), *more])


class CrashFound(AssertionError):
    """The result is not the same; `report` has the places and the differences."""

    def __init__(self, report: CrashReport) -> None:
        super().__init__(str(report))
        self.report = report


async def crash_everywhere(
    clogs: Clogs,
    scenario: Scenario,
    *,
    outside: Callable[[], Outside] = Outside,
    check: Scenario | None = None,
    ignore: Collection[str] = (),
    most_points: int = 1_000,
    downtime_ms: int = 0,
    kill_on_end: bool = False,
    tools: Iterable[Tool | ToolBox] = (),
    credentials: Credentials | None = None,
) -> CrashReport:
    """Play the scenario without a crash, and then once for each place at which one of its ticks can die.

    The process dies there: nothing of the call goes on, its lock lapses, another process claims the run. At the end
    runs, rows, events and effects outside must be as without a crash, else `CrashFound` says where it was killed and
    what differs. `clogs` may be a function, which is called for each process: then what a clog keeps in memory is lost,
    too. `outside` makes the world outside of each play. `check` is called at the end of each, for assertions of your
    own. `ignore` has patterns of names that may differ, as the report writes them. More than `most_points` places are
    thinned out evenly, and the report says so. A crash takes no time, or `downtime_ms`. `kill_on_end`: last ticks, too.
    `tools` and `credentials` are as for `world`.
    """
    checked_count(most_points, "most_points", least=1)
    options = {"tools": tuple(tools), "credentials": credentials}
    play = _Play(clogs, scenario, outside, check, checked_count(downtime_ms, "downtime_ms"), kill_on_end, options)
    expected, points = await play.perform(None)
    again, points_again = await play.perform(None)
    if points != points_again or differences(expected, again, ignore):
        raise AssertionError(_not_repeatable(differences(expected, again, ignore)))
    chosen = _thinned(points, most_points)
    findings = []
    for point in chosen:
        found, _ = await play.perform(point)
        if different := differences(expected, found, ignore):
            findings.append(CrashFinding(point, different))
    report = CrashReport(chosen, tuple(point for point in points if point not in chosen), tuple(findings))
    if findings:
        raise CrashFound(report)
    return report


@dataclass(frozen=True, slots=True)
class _Play:
    clogs: Clogs
    scenario: Scenario
    outside: Callable[[], Outside]
    check: Scenario | None
    downtime_ms: int
    kill_on_end: bool
    options: Mapping[str, Any]

    async def perform(self, target: CrashPoint | None) -> tuple[Seen, tuple[CrashPoint, ...]]:
        """What can be seen at the end, and all places that were come by."""
        course, outside = Course(target, kills_on_end=self.kill_on_end), self.outside()
        process = Process(self._make_clogs)

        def make(store: Store, clock: ManualClock) -> Ocean:
            return MortalOcean(store, clock, process, course, outside, self.downtime_ms, **self.options)

        async with _no_word_of_lost_locks(), opened(make, None, outside) as w:
            try:
                seen = await self._seen(w, outside, is_killed=target is not None)
            finally:
                await course.bury()
        if target is not None and not course.is_killed:
            raise AssertionError(f"the scenario did not come by a place again: {target}\n{REPEATABLE}")
        return seen, tuple(course.points)

    def _make_clogs(self) -> Collection[Clog]:
        return self.clogs() if callable(self.clogs) else self.clogs

    async def _seen(self, w: World, outside: Outside, *, is_killed: bool) -> Seen:
        raised: str | None = None
        answered = None
        try:
            answered = await self.scenario(w)
            if self.check is not None:
                await self.check(w)
        except Exception as error:
            if not is_killed:
                raise
            raised = f"{type(error).__name__}: {error}"
        if outside.unanswered and not is_killed:
            raise AssertionError(f"nobody answers {outside.unanswered[0]}: outside=… makes an Outside that does")
        return await seen_in(w, outside) | {ANSWERED: answered, RAISED: raised}


@asynccontextmanager
async def _no_word_of_lost_locks() -> AsyncIterator[None]:
    """The log warns of them; here they are what was asked for."""

    def is_news(record: logging.LogRecord) -> bool:
        return bool(getattr(record, "ocean_fields", {}).get("outcome") != "lock_lost")

    log = logging.getLogger("ocean.tick")
    log.addFilter(is_news)
    try:
        yield
    finally:
        log.removeFilter(is_news)


REPEATABLE = "a scenario must do the same each time: no wall clock, no chance, nothing kept between two plays"


def _not_repeatable(different: Iterable[Difference]) -> str:
    lines = [f"{each.what}: first {each.expected!r:.300}, then {each.found!r:.300}" for each in different]
    return "\n".join(["played twice without a crash, the scenario is not the same", *lines, REPEATABLE])


def _thinned(points: tuple[CrashPoint, ...], most: int) -> tuple[CrashPoint, ...]:
    if len(points) <= most:
        return points
    return tuple(points[number * len(points) // most] for number in range(most))
