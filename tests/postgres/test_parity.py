"""The same history on both databases: the same results, refusals, rows and events."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ocean import (
    UNSET,
    Clog,
    Continue,
    Done,
    Failed,
    Key,
    Ocean,
    OceanError,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    Tick,
    Wait,
)
from ocean.compose import open_test_store
from ocean.state.values import decode
from ocean.testing import ManualClock
from tests.postgres.tables import postgres_tables
from tests.stores.dump import Tables, dump, of_sqlite

pytestmark = pytest.mark.anyio


def clogs() -> list[Clog]:
    """A clog that does what its input contains, and one with an `on_end` handler."""
    actor, polite, outside = Clog("actor"), Clog("polite"), Clog("outside", external=True)

    async def act(tick: Tick) -> Outcome:
        request = tick.input if isinstance(tick.input, dict) else {}
        rows = await tick.read(run=True, session=True, global_=True)
        await tick.emit("did", {"what": request.get("do"), "number": tick.number})
        await tick.write(run={"n": tick.number}, session=(rows.session or 0) + 1, global_=lambda old: (old or 0) + 1)
        match request.get("do"):
            case "done":
                return Done(request)
            case "fail":
                return Failed("as told")
            case "retry":
                return Retry("again")
            case "wait":
                return Wait(for_ms=500)
            case "continue":
                return Continue({"do": "done"})
            case "timer":
                await tick.set_timer("t", after_ms=300, input={"do": "done"})
            case "child":
                await tick.create_run(clog_id="actor", input={"do": "done"}, notify_parent=True)
            case "signal":
                await tick.signal(request["to"], {"do": "done"}, signal_id="from-inside")
            case "take":
                await tick.take("cap", 2, limit=3)
            case "attributes":
                await tick.set_attributes(colour="blue", size=tick.number)
        return Ok()

    actor.on_advance(act)
    polite.on_advance(act)

    @polite.on_end
    async def farewell(tick: Tick) -> Outcome:
        await tick.emit("farewell", {"reason": tick.reason})
        return Ok()

    @actor.method
    async def add(tick: Tick, payload: int) -> int:
        rows = await tick.read(run=True)
        total = int((rows.run or {"n": 0})["n"]) + payload
        await tick.write(run={"n": total})
        return total

    return [actor, polite, outside]


class Script:
    """A history, one result per step. Time moves only where the history moves it."""

    def __init__(self, ocean: Ocean, clock: ManualClock) -> None:
        self.ocean, self.clock = ocean, clock
        self.results: list[Any] = []

    async def say(self, work: Awaitable[Any]) -> None:
        try:
            self.results.append(await work)
        except OceanError as error:
            self.results.append((error.code, str(error)))

    async def run(self, run_id: str, do: str | None = None, clog_id: str = "actor", **options: Any) -> None:
        input = UNSET if do is None else {"do": do, **options.pop("more", {})}
        await self.say(self.ocean.create_run(session_id="s", clog_id=clog_id, run_id=run_id, input=input, **options))

    async def poke(self, ms: int = 0) -> None:
        self.clock.advance(ms)
        # One after another: what a commit's transaction also claims differs between the stores.
        while (poked := await self.ocean.advance(budget_ms=10_000, max_ticks=1)).outcomes:
            self.results.append([(each.run_id, each.outcome, each.status) for each in poked.outcomes])
        self.results.append((poked.due_now, poked.next_wake_at, poked.unclaimable))


async def lives(s: Script) -> None:
    for do in ("done", "fail", "retry", "wait", "continue", "timer", "child", "attributes"):
        await s.run(f"r-{do}", do)
    await s.run("r-idle")
    await s.run("r-idle", "done")
    await s.run("r-twice", "done", dedupe_key="one")
    await s.run("r-other", "fail", dedupe_key="one")
    await s.run("r-odd", "done", clog_id="nobody's")
    for ms in (0, 300, 500, 1_000, 4_000):
        await s.poke(ms)
    await s.say(s.ocean.signal("r-idle", {"do": "done"}, signal_id="a"))
    await s.say(s.ocean.signal("r-idle", {"do": "done"}, signal_id="a"))
    await s.say(s.ocean.signal("r-idle", {"do": "fail"}, signal_id="a"))
    await s.say(s.ocean.signal("r-done", {}))
    await s.say(s.ocean.signal("nobody", {}))
    await s.poke()
    await s.say(s.ocean.retry_run("r-fail"))
    await s.say(s.ocean.delete_run("r-child"))
    await s.poke(60_000)


async def admission(s: Script) -> None:
    await s.say(s.ocean.set_limit("two", 2))
    for number in range(5):
        await s.run(f"k-{number}", "wait", concurrency_keys=["one", Key("two", hold="run")], priority=number)
    await s.run("busy", "signal", more={"to": "k-0"})
    for ms in (0, 500, 500, 500):
        await s.poke(ms)
    await s.say(s.ocean.cancel_run("k-1", reason="enough"))
    await s.say(s.ocean.pause_run("k-2"))
    await s.poke(1_000)
    await s.say(s.ocean.resume_run("k-2"))
    for number in range(3):
        await s.run(f"t-{number}", "take", retry=RetryPolicy(max_attempts=1))
    await s.poke()
    await s.say(s.ocean.list_keys())


async def ends(s: Script) -> None:
    await s.run("p-1", "wait", clog_id="polite", deadline_at=s.clock.now() + 100)
    await s.run("p-2", "retry", clog_id="polite", retry=RetryPolicy(max_attempts=1))
    await s.run("p-3", clog_id="polite")
    await s.run("p-4", "wait", on_parent_end="cancel", parent_run_id="p-3")
    await s.poke()
    await s.say(s.ocean.cancel_run("p-3"))
    await s.poke(200)
    await s.say(s.ocean.call_clog(run_id="p-4", method="add", payload=1))
    await s.run("c-1")
    await s.say(s.ocean.call_clog(run_id="c-1", method="add", payload=4, request_key="once"))
    await s.say(s.ocean.call_clog(run_id="c-1", method="add", payload=4, request_key="once"))
    await s.say(s.ocean.call_clog(run_id="c-1", method="add", payload=5, request_key="once"))
    await s.run("w-1", "anything", clog_id="outside")
    await s.poke()
    for run_id in ("p-1", "p-2", "c-1", "w-1"):
        await s.say(s.ocean.explain(run_id))
        await s.say(s.ocean.list_ticks(run_id))
        await s.say(s.ocean.list_inputs(run_id))
    await s.say(s.ocean.list_runs(clog_id="polite"))
    await s.say(s.ocean.count_runs(status="failed"))
    await s.say(s.ocean.delete_session("s"))
    await s.say(s.ocean.sweep(events_older_than_ms=0))


async def played(url: str, script: Callable[[Script], Awaitable[None]], tables: Any) -> tuple[list[Any], Tables]:
    clock = ManualClock()
    store = await open_test_store(url, clock)
    ocean = Ocean(store, clogs(), clock, instance_id="i-same")
    try:
        await ocean.start()
        s = Script(ocean, clock)
        await script(s)
        return s.results, await tables(store)
    finally:
        await ocean.close()


MADE_HERE = ("payload", "retry", "error", "body")
"""JSON that a store may have written itself: whitespace and the order of names may differ."""


def comparable(tables: Tables) -> Tables:
    """Versions are only compared for equality; their numbers may differ."""
    found: Tables = {}
    for name, (columns, *rows) in tables.items():
        for place in (columns.index(column) for column in MADE_HERE if column in columns):
            rows = [(*row[:place], decode(row[place]), *row[place + 1 :]) for row in rows]
        if "version" in columns and name.startswith("ocean_storage"):
            place = columns.index("version")
            order = sorted({row[place] for row in rows})
            rows = [(*row[:place], order.index(row[place]), *row[place + 1 :]) for row in rows]
        found[name] = [columns, *rows]
    return found


async def sqlite_tables(store: Any) -> Tables:
    return await of_sqlite(store).read(dump)


@pytest.mark.parametrize("script", [lives, admission, ends], ids=lambda script: script.__name__)
async def test_a_history_is_the_same_on_both_databases(
    script: Callable[[Script], Awaitable[None]], database: str, tmp_path: Path
) -> None:
    ours, our_tables = await played(f"sqlite:///{tmp_path / 'ocean.db'}", script, sqlite_tables)
    theirs, their_tables = await played(database, script, postgres_tables)
    assert theirs == ours
    assert comparable(their_tables) == comparable(our_tables)
    assert len(our_tables["event_cursor"]) == 2
