"""`crash_everywhere`: executes a scenario once for every point at which its ticks can be killed; results must be equal.

What is killed: handlers, last ticks (`on_end`), and methods that they call, at every await, and around every commit.
What is not: direct calls, routes and webhooks, whose caller would repeat the request; external workers; the scenario
itself.
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
from ocean.testing.crash_points import CrashPoint, ScenarioExecution
from ocean.testing.crashable import CrashableOcean, RestartableClogs
from ocean.testing.manual_clock import ManualClock
from ocean.testing.outside import Outside
from ocean.testing.results import Difference, Observed, differences, observe
from ocean.testing.worlds import World, open_world
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials

Clogs = Collection[Clog] | Callable[[], Collection[Clog]]
Scenario = Callable[[World], Awaitable[Any]]

RETURNED = "what the scenario returned"
RAISED = "what the scenario or the check raised"


@dataclass(frozen=True, slots=True)
class CrashFinding:
    """A point at which a crash changes the result, and what differs."""

    point: CrashPoint
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        line = self.point.place
        where = f"\n  {line}\n    {line.source}" if line is not None else ""
        what = "\n".join(f"  {text}" for each in self.differences for text in str(each).splitlines())
        return f"{self.point}{where}\n{what}"


@dataclass(frozen=True, slots=True)
class CrashReport:
    """Where the scenario was killed, which points were `left_out` because of `most_points`, and the findings."""

    killed: tuple[CrashPoint, ...]
    left_out: tuple[CrashPoint, ...]
    findings: tuple[CrashFinding, ...]

    def __str__(self) -> str:
        points = f"{len(self.killed)} points" + (f" ({len(self.left_out)} left out)" if self.left_out else "")
        if not self.findings:
            return f"the result is the same after a crash at each of {points}"
        alike: dict[str, list[CrashFinding]] = {}
        for finding in self.findings:
            alike.setdefault(str(finding.differences), []).append(finding)
        shown = "\n\n".join(map(_group_text, alike.values()))
        return f"a crash changes the result at {len(self.findings)} of {points}\n\n{shown}"


def _group_text(alike: list[CrashFinding]) -> str:
    """Return the text of findings with equal differences: the first in full, only the points of the others."""
    first, *others = alike
    more = [f"    {each.point.deed}" + (f", {each.point.place}" if each.point.place else "") for each in others]
    return "\n".join([str(first), *(["  the same when"] if more else []), *more])


class CrashFound(AssertionError):
    """A crash changes the result. `report` has the points and the differences."""

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
    kill_on_end: bool = True,
    tools: Iterable[Tool | ToolBox] = (),
    credentials: Credentials | None = None,
) -> CrashReport:
    """Execute the scenario without a crash, and then once for each point at which one of its ticks can be killed.

    The process is killed there: the call does nothing more, its lock expires, another process claims the run. At the
    end runs, rows, events and effects outside must be as without a crash, else `CrashFound` is raised with the points
    and the differences.

    `clogs` may be a function, which is called for each process: then what a clog keeps in memory is lost, too.
    `outside` makes the `Outside` of each execution. `check` is called at the end of each, for your own assertions.
    `ignore` has patterns of names that may differ, as the report writes them. If there are more than `most_points`
    points, they are thinned out evenly, and the report lists the others. A crash takes no time, or `downtime_ms`. With
    `kill_on_end=False` last ticks are not killed. `tools` and `credentials` are as for `world`.
    """
    checked_count(most_points, "most_points", least=1)
    options = {"tools": tuple(tools), "credentials": credentials}
    test = _CrashTest(clogs, scenario, outside, check, checked_count(downtime_ms, "downtime_ms"), kill_on_end, options)
    expected, points = await test.execute(None)
    again, points_again = await test.execute(None)
    if points != points_again or differences(expected, again, ignore):
        raise AssertionError(_not_repeatable(differences(expected, again, ignore)))
    chosen = _thinned(points, most_points)
    findings = []
    for point in chosen:
        found, _ = await test.execute(point)
        if different := differences(expected, found, ignore):
            findings.append(CrashFinding(point, different))
    report = CrashReport(chosen, tuple(point for point in points if point not in chosen), tuple(findings))
    if findings:
        raise CrashFound(report)
    return report


@dataclass(frozen=True, slots=True)
class _CrashTest:
    clogs: Clogs
    scenario: Scenario
    outside: Callable[[], Outside]
    check: Scenario | None
    downtime_ms: int
    kill_on_end: bool
    options: Mapping[str, Any]

    async def execute(self, target: CrashPoint | None) -> tuple[Observed, tuple[CrashPoint, ...]]:
        """Return what can be observed at the end, and all points that were reached."""
        execution, outside = ScenarioExecution(target, kills_on_end=self.kill_on_end), self.outside()
        process = RestartableClogs(self._make_clogs)

        def make(store: Store, clock: ManualClock) -> Ocean:
            return CrashableOcean(store, clock, process, execution, outside, self.downtime_ms, **self.options)

        async with _without_lost_lock_warnings(), open_world(make, None, outside) as w:
            try:
                observed = await self._observed(w, outside, is_killed=target is not None)
            finally:
                await execution.unwind()
        if target is not None and not execution.is_killed:
            raise AssertionError(f"the scenario did not reach this point again: {target}\n{REPEATABLE}")
        return observed, tuple(execution.points)

    def _make_clogs(self) -> Collection[Clog]:
        return self.clogs() if callable(self.clogs) else self.clogs

    async def _observed(self, w: World, outside: Outside, *, is_killed: bool) -> Observed:
        raised: str | None = None
        returned = None
        try:
            returned = await self.scenario(w)
            if self.check is not None:
                await self.check(w)
        except Exception as error:
            if not is_killed:
                raise
            raised = f"{type(error).__name__}: {error}"
        if outside.unanswered and not is_killed:
            raise AssertionError(
                f"no answer is defined for {outside.unanswered[0]}: pass outside=…, which makes an Outside that has one"
            )
        return await observe(w, outside) | {RETURNED: returned, RAISED: raised}


@asynccontextmanager
async def _without_lost_lock_warnings() -> AsyncIterator[None]:
    """Silence the warnings about lost locks, which are expected here."""

    def is_unexpected(record: logging.LogRecord) -> bool:
        return bool(getattr(record, "ocean_fields", {}).get("outcome") != "lock_lost")

    log = logging.getLogger("ocean.tick")
    log.addFilter(is_unexpected)
    try:
        yield
    finally:
        log.removeFilter(is_unexpected)


REPEATABLE = "a scenario must do the same each time: no wall clock, no randomness, nothing kept between executions"


def _not_repeatable(different: Iterable[Difference]) -> str:
    lines = [f"{each.what}: first {each.expected!r:.300}, then {each.found!r:.300}" for each in different]
    return "\n".join(["two executions without a crash gave different results", *lines, REPEATABLE])


def _thinned(points: tuple[CrashPoint, ...], most: int) -> tuple[CrashPoint, ...]:
    if len(points) <= most:
        return points
    return tuple(points[number * len(points) // most] for number in range(most))
