"""Correct and faulty clogs, for the tests of `ocean.testing`."""

import asyncio
from typing import Any

from ocean import Clog, Done, Ok, Outcome, Tick
from ocean.testing import CrashFound, CrashReport, Outside, World, crash_everywhere
from ocean.tools.builtin import TOOLS

URL = "https://pay.example/charges"
CHARGE = f"POST {URL}"


def clog_of(handler: Any, **options: Any) -> Clog:
    """Return a clog `c` with this handler, which may make outgoing requests."""
    clog = Clog("c", tools=list(TOOLS), **options)
    clog.on_advance(handler)
    return clog


def paying() -> Outside:
    outside = Outside()
    outside.answer(CHARGE, {"id": "ch_1"})
    return outside


async def one_run(w: World) -> None:
    await w.ocean.create_run(session_id="s", clog_id="c", input={"amount": 40})
    await w.drain()


class Renewed:
    """Creates an `Outside` for each replay; `now` is that of the current one."""

    now: Outside

    def __call__(self) -> Outside:
        self.now = Outside()
        return self.now


async def report_of(clogs: Any, scenario: Any = one_run, **options: Any) -> CrashReport:
    """Return the report; check that no task is left running."""
    before = asyncio.all_tasks()
    try:
        report = await crash_everywhere(clogs, scenario, **options)
        assert report.findings == ()
    except CrashFound as found:
        report = found.report
    assert asyncio.all_tasks() - before == set()
    return report


def whats(report: CrashReport) -> list[str]:
    return [point.what for point in report.killed]


async def charges_in_a_step(tick: Tick) -> Outcome:
    async def charge(key: str) -> Any:
        answer = await tick.fetch(URL, method="POST", headers={"Idempotency-Key": key}, body=b'{"amount": 40}')
        return answer.json()

    await tick.read(run=True)
    paid = await tick.step("charge", charge)
    await tick.emit("paid", paid)
    await tick.write(run={"paid": paid["id"]})
    return Done(paid)


async def charges_outside_of_a_step(tick: Tick) -> Outcome:
    await tick.read(run=True)
    paid = (await tick.fetch(URL, method="POST", body=b'{"amount": 40}')).json()
    await tick.emit("paid", paid)
    await tick.write(run={"paid": paid["id"]})
    return Done(paid)


async def two_inputs(w: World) -> None:
    run = await w.ocean.create_run(session_id="s", clog_id="c", input="first")
    await w.drain()
    await w.ocean.signal(run.run_id, "last")
    await w.drain()


def make_rememberer() -> list[Clog]:
    text: list[Any] = []

    async def remembers(tick: Tick) -> Outcome:
        text.append(tick.input)
        return Done(text) if tick.input == "last" else Ok()

    return [clog_of(remembers)]
