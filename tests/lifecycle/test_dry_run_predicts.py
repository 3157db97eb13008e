"""A dry run predicts: the real call made right after it returns, emits and writes the same."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import CLEAR, Abort, Clog, Continue, Done, DryRun, Failed, Key, Ok, Outcome, Refuse, Retry, Tick, Wait
from ocean.kernel.arguments import KERNEL_EVENTS
from ocean.kernel.new_runs import RunOptions
from ocean.kernel.store.claims import RowsAsk
from ocean.state.effects import RowKey
from ocean.state.outcomes import error_info, outcome_name
from ocean.state.values import decode
from ocean.testing import World
from tests.errors import bare
from tests.lifecycle.acting import Script, log, look, stage, start, start_idle
from tests.lifecycle.test_dry_run import rehearse

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]

Handler = Callable[[Tick], Awaitable[Outcome]]
HANDLERS: list[Handler] = []


def handler(act: Handler) -> Handler:
    HANDLERS.append(act)
    return act


@handler
async def writes_values(tick: Tick) -> Outcome:
    rows = await tick.read(run=True, session=True, global_=True, tick=["draft"])
    await tick.write(run={"seen": rows.run}, session=None, global_=CLEAR, tick={"draft": [tick.input]})
    return Ok()


@handler
async def writes_functions(tick: Tick) -> Outcome:
    await tick.read(session=True, global_=True)
    await tick.write(session=lambda old: {"n": (old or {"n": 0})["n"] + 1}, global_=lambda old: CLEAR)
    return Wait(for_ms=100)


@handler
async def writes_the_row_of_another_run(tick: Tick) -> Outcome:
    await tick.read(runs=["other"])
    await tick.write(runs={"other": {"told": tick.run_id}})
    return Continue({"page": 2})


@handler
async def writes_a_function_that_fails(tick: Tick) -> Outcome:
    await tick.stream("trying")
    await tick.emit("wrote")
    await tick.read(session=True)
    await tick.write(session=lambda old: old["missing"])
    return Done()


@handler
async def writes_a_function_that_returns_no_json(tick: Tick) -> Outcome:
    await tick.read(session=True)
    await tick.write(session=lambda old: object())
    return Done()


@handler
async def streams_and_emits(tick: Tick) -> Outcome:
    for word in ("all", "is", "well"):
        await tick.emit("thought", word)
        await tick.stream("token", word)
    return Done({"words": 3})


@handler
async def fails_after_it_wrote(tick: Tick) -> Outcome:
    await tick.read(run=True)
    await tick.write(run=1)
    await tick.emit("lost")
    await tick.stream("kept", {"attempt": tick.attempt})
    raise ValueError("too bad")


@handler
async def returns_nothing(tick: Tick) -> Outcome:
    return None  # type: ignore[return-value]


@handler
async def returns_a_retry(tick: Tick) -> Outcome:
    await tick.emit("lost")
    return Retry({"code": "busy", "message": "come back"}, after_ms=5)


@handler
async def aborts(tick: Tick) -> Outcome:
    await tick.emit("said")
    raise Abort("cannot be mended", code="bad_order")


@handler
async def fails_permanently(tick: Tick) -> Outcome:
    await tick.set_attributes(state="lost")
    return Failed({"code": "no_funds", "message": "the account is empty"})


@handler
async def creates_and_signals_runs(tick: Tick) -> Outcome:
    child = await tick.create_run(clog_id="c", input={"n": 1}, notify_parent=True, priority=2, attributes={"kind": "a"})
    await tick.create_run(clog_id="c", dedupe_key="once", on_parent_end="cancel")
    assert child != await tick.create_run(clog_id="c", run_id="named", session_id="elsewhere")
    await tick.signal("other", {"hello": 1}, signal_id="s-1")
    await tick.signal(child, deliver_at=tick.now + 50)
    return Ok()


@handler
async def sets_timers_and_attributes(tick: Tick) -> Outcome:
    await tick.set_timer("soon", after_ms=10, input={"n": 1})
    await tick.set_timer("late", at=tick.now + 99)
    await tick.set_timer("never", after_ms=5)
    await tick.cancel_timer("never")
    await tick.set_attributes(state="armed", size=3, gone=None)
    return Ok()


@handler
async def takes_and_creates_under_keys_and_rates(tick: Tick) -> Outcome:
    options = RunOptions(
        concurrency_keys=["desk", Key("room", hold="run")], rate_key="rate", rate_limit=1, rate_per_ms=1_000
    )
    assert await tick.take("cap", 2, limit=3)
    assert await tick.take("cap", limit=3)
    assert not await tick.take("cap", limit=3)
    for n in range(2):
        await tick.create_run(clog_id="c", input=n, **options)
    return Done()


@handler
async def takes_and_is_refused(tick: Tick) -> Outcome:
    await tick.take("cap")
    return Retry("not now")


@handler
async def calls_a_method(tick: Tick) -> Outcome:
    return Done(await tick.call("ledger", "book", 5))


@handler
async def calls_methods_that_fail_and_refuse(tick: Tick) -> Outcome:
    for amount in (0, -1, 7):
        try:
            await tick.call("ledger", "book", amount)
        except (ValueError, Refuse) as error:
            await tick.emit("caught", str(error))
            if amount == -1:
                return Done()
    return Done()


@handler
async def uses_tools_by_name(tick: Tick) -> Outcome:
    await tick.tools.invoke("ocean.storage.read_scoped", {"run": True})
    await tick.tools.invoke("ocean.storage.write_scoped", {"run": {"n": 1}})
    await tick.tools.invoke("ocean.events.emit", {"type": "said", "payload": [1]})
    found = await tick.tools.invoke("ocean.runs.list", {"clog_id": "c"})
    return Done(len(found["runs"]))


@handler
async def deletes_another_run(tick: Tick) -> Outcome:
    await tick.read(runs=["other"])
    await tick.write(delete_runs=["other"])
    return Ok()


@handler
async def releases_its_key(tick: Tick) -> Outcome:
    await tick.release_dedupe_key()
    return Ok()


def a_ledger() -> Clog:
    ledger = Clog("ledger")

    @ledger.method
    async def book(tick: Tick, amount: int) -> str:
        total = ((await tick.read(session=True)).session or 0) + amount
        await tick.write(session=total)
        await tick.emit("booked", amount)
        if amount == 0:
            raise ValueError("nothing to book")
        if amount < 0:
            raise Refuse("not less than nothing")
        return f"{total} in all"

    return ledger


@pytest.mark.parametrize("act", HANDLERS, ids=lambda act: act.__name__)
async def test_a_real_call_does_what_the_dry_run_showed(act: Handler) -> None:
    async with stage(Script(act), a_ledger()) as w:
        await start_idle(w, run_id="other")
        run_id = await start(w, "first", dedupe_key="mine", attributes={"gone": True})
        shown = await rehearse(w, run_id)
        assert shown.stopped_at is None
        result = await w.ocean.advance(run_id=run_id, max_ticks=1)
        assert shown.outcome is not None
        assert [each.outcome for each in result.outcomes] == [outcome_name(shown.outcome)]
        await assert_events(w, shown)
        await assert_rows(w, shown)
        await assert_runs_and_signals(w, shown)
        await assert_run(w, shown)
        await assert_takes(w, shown)


async def assert_events(w: World, shown: DryRun) -> None:
    own = [event for event in await log(w, shown.run_id) if event.type.split(".")[0] not in KERNEL_EVENTS]
    assert [(event.type, event.payload, event.clog_id) for event in own] == [
        (event.type, event.payload, event.clog_id) for event in shown.events
    ]
    assert {(event.tick, event.call) for event in own} <= {(shown.tick, shown.call)}


async def assert_rows(w: World, shown: DryRun) -> None:
    rows = [
        (RowKey(row.scope, row.clog_id, row.session_id, row.run_id, row.tick, row.row_id), row) for row in shown.rows
    ]
    stored = await w.store.read_rows(RowsAsk("c", "s", shown.run_id, tuple(key for key, _ in rows)))
    for key, row in rows:
        assert decode(stored.rows[key].text) == row.after
        assert (stored.rows[key].version == 0) == row.is_cleared
    tables = {row.scope for row in shown.rows if not row.is_cleared}
    assert len(tables) == sum([await _has_rows(w, scope) for scope in ("global", "session", "run", "tick")])


async def _has_rows(w: World, scope: str) -> bool:
    found = await w.store.database.read(  # type: ignore[attr-defined]
        lambda db: db.execute(f"SELECT count(*) FROM ocean_storage_{scope}").fetchone()[0]
    )
    return bool(found)


async def assert_runs_and_signals(w: World, shown: DryRun) -> None:
    """Check the runs it created, the signals it sent and the runs it deleted."""
    assert {run.run_id for run in (await w.ocean.list_runs(limit=100)).runs} == (
        {shown.run_id, "other"} | {new.run_id for new in shown.runs}
    ) - set(shown.deleted_runs)
    for new in shown.runs:
        run = await look(w, new.run_id)
        assert (run.clog_id, run.session_id, run.priority) == (new.clog_id, new.session_id, new.priority)
        assert (run.attributes, run.dedupe_key, run.parent_run_id) == (new.attributes, new.dedupe_key, shown.run_id)
        assert (run.concurrency_keys, run.queue) == (new.concurrency_keys, new.queue)
        given = [each.body for each in await w.ocean.list_inputs(new.run_id) if each.kind == "created"]
        assert given == ([new.input] if new.has_input else [])
    for signal in shown.signals:
        got = [each for each in await w.ocean.list_inputs(signal.run_id) if each.kind == "signal"]
        assert [(each.body, each.signal_id) for each in got] == [(signal.input, signal.signal_id)]


async def assert_takes(w: World, shown: DryRun) -> None:
    """Check the takes from counters, including those of rated runs."""
    took = Counter[str]()
    for take in (*shown.takes, *(new.rate for new in shown.runs if new.rate)):
        took[take.key] += take.n
    assert (await w.ocean.take("cap", 0)).used == took["cap"]
    assert (await w.ocean.take("rate", 0, limit=1, per_ms=1_000)).used == took["rate"]


async def assert_run(w: World, shown: DryRun) -> None:
    """Check the run itself: timers, attributes, error, output, key."""
    run = await look(w, shown.run_id)
    timers = {timer.name: (timer.at, timer.input) for timer in shown.timers}
    found = [each for each in await w.ocean.list_inputs(shown.run_id) if each.timer]
    assert {each.timer: (each.available_at, each.body) for each in found} == {
        name: timer for name, timer in timers.items() if timer[0] is not None
    }
    attributes = {"gone": True} | dict(shown.attributes)
    assert run.attributes == {name: value for name, value in attributes.items() if value is not None}
    assert run.dedupe_key == (None if shown.releases_dedupe_key else "mine")
    match shown.outcome:
        case Done(output):
            assert run.output == output
        case Failed(error) | Retry(error):
            assert bare(run.error) == bare(error_info(error).as_json())


async def test_earlier_ticks_that_would_be_deleted_are_named() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.number == 1:
            await tick.read(tick=["draft"])
            await tick.write(tick={"draft": 1})
            return Continue()
        await tick.read(ticks=[1])
        await tick.write(delete_ticks=[1])
        return Done()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.ocean.advance(run_id=run_id, max_ticks=1)
        shown = await rehearse(w, run_id)
        assert (shown.deleted_ticks, shown.deletes_session) == ((1,), False)
        await w.drain()
        assert [tick.tick for tick in await w.ocean.list_ticks(run_id)] == [2]


async def test_a_session_that_would_be_deleted_is_shown() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.read(session=True)
        await tick.write(delete_session=True)
        return Done()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        assert (await rehearse(w, run_id)).deletes_session
        await w.drain()
        assert await w.ocean.get_run(run_id) is None


async def test_rows_show_their_value_before_and_whether_they_are_new() -> None:
    async def act(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, session=True)
        if not rows.has_run:
            await tick.write(run={"n": 1}, session=None)
            return Continue()
        await tick.write(run=CLEAR, session=2)
        return Done()

    def rows_of(shown: DryRun) -> Any:
        return {row.scope: (row.before, row.is_new, row.after, row.is_cleared) for row in shown.rows}

    async with stage(Script(act)) as w:
        run_id = await start(w)
        assert rows_of(await rehearse(w, run_id)) == {
            "run": (None, True, {"n": 1}, False),
            "session": (None, True, None, False),
        }
        await w.ocean.advance(run_id=run_id, max_ticks=1)
        assert rows_of(await rehearse(w, run_id)) == {
            "run": ({"n": 1}, False, None, True),
            "session": (None, False, 2, False),
        }
