"""Each verb with an argument of a wrong type or size: an error that names it, and no change of any table."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import BadCursor, Caller, InvalidValue, Ocean, OceanError, RunNotFound, Tick, Within
from tests.lifecycle.acting import Script, dump, stage, start_idle

pytestmark = pytest.mark.anyio

Ask = Callable[[Ocean], Awaitable[Any]]
Row = tuple[Ask, type[OceanError], str]

SURROGATE = "\ud800"
"""A text that Python can hold and no database can store."""
HUGE = 2**70
PATIENCE_S = 20


def ask(verb: str, *args: Any, **named: Any) -> Ask:
    return lambda ocean: getattr(ocean, verb)(*args, **named)


def wrong(what: str, verb: str, *args: Any, **named: Any) -> Row:
    return ask(verb, *args, **named), InvalidValue, what


def create(what: str, **changes: Any) -> Row:
    return wrong(what, "create_run", **{"session_id": "s", "clog_id": "c", **changes})


def call(what: str, **changes: Any) -> Row:
    return wrong(what, "call_clog", **{"clog_id": "c", "method": "m", **changes})


def cursor(value: Any) -> Row:
    return ask("list_runs", cursor=value), BadCursor, "must be the next_cursor"


def within(what: str, value: Within, **changes: Any) -> Row:
    return wrong(what, "list_runs", clog_id="c", attributes={"a": value}, **changes)


def bulk(what: str, **changes: Any) -> Row:
    return wrong(what, "delete_runs", clog_id="c", **changes)


def packed(value: Any) -> str:
    """Encoded like a real cursor, with other contents."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


NEWEST = "creation descending"
"""The beginning of a plain list's cursor."""

WRONG: dict[str, Row] = {
    "create: dedupe_ms is text": create("dedupe_ms", dedupe_key="k", dedupe_ms="5"),
    "create: dedupe_ms is a fraction": create("dedupe_ms", dedupe_key="k", dedupe_ms=0.5),
    "create: dedupe_ms is huge": create("dedupe_ms", dedupe_key="k", dedupe_ms=HUGE),
    "create: retry is a mapping": create("retry must be a RetryPolicy", retry={"max_attempts": 3}),
    "create: attributes are a list": create("attributes must be a mapping", attributes=["a"]),
    "create: attribute's name is a number": create("attribute's name", attributes={5: 1}),
    "create: clog is a mapping": create("clog_id", clog_id={}),
    "create: actor is a number": create("actor", actor=5),
    "signal: run is a mapping": wrong("run_id", "signal", {}),
    "signal: signal_id is a mapping": wrong("signal_id", "signal", "one", 1, signal_id={}),
    "signal: actor is a mapping": wrong("actor", "signal", "one", 1, actor={}),
    "signal: deliver_at is text": wrong("deliver_at", "signal", "one", 1, deliver_at="5"),
    "advance: budget is text": wrong("budget_ms", "advance", budget_ms="5"),
    "advance: hard_ms is a fraction": wrong("hard_ms", "advance", hard_ms=0.5),
    "advance: max_ticks is a boolean": wrong("max_ticks", "advance", max_ticks=True),
    "advance: concurrency is text": wrong("concurrency", "advance", concurrency="5"),
    "advance: clogs are one text": wrong("clog_ids must be a list", "advance", clog_ids="c"),
    "advance: clogs are numbers": wrong("each of clog_ids", "advance", clog_ids=[5]),
    "advance: run is no storable text": wrong("run_id", "advance", run_id=SURROGATE),
    "get: run is no storable text": wrong("run_id", "get_run", SURROGATE),
    "get: run is a mapping": wrong("run_id", "get_run", {}),
    "result: timeout is text": wrong("timeout_ms", "result", "one", timeout_ms="1"),
    "result: run is a mapping": wrong("run_id", "result", {}),
    "cancel: run is nothing": wrong("run_id", "cancel_run", None),
    "cancel: actor is a mapping": wrong("actor", "cancel_run", "one", actor={}),
    "cancel: actor is a number": wrong("actor", "cancel_run", "one", actor=5),
    "cancel: actor is no storable text": wrong("actor", "cancel_run", "one", actor=SURROGATE),
    "cancel: reason is an object": wrong("reason", "cancel_run", "one", reason=object()),
    "cancel: reason is long": wrong("reason", "cancel_run", "one", reason="x" * 4_001),
    "cancel: request key is a mapping": wrong("request_key", "cancel_run", "one", request_key={}),
    "pause: run is a mapping": wrong("run_id", "pause_run", {}),
    "pause: actor is no storable text": wrong("actor", "pause_run", "one", actor=SURROGATE),
    "resume: run is a mapping": wrong("run_id", "resume_run", {}),
    "resume: actor is a number": wrong("actor", "resume_run", "one", actor=5),
    "pause clog: no storable text": wrong("clog_id", "pause_clog", SURROGATE),
    "pause clog: a mapping": wrong("clog_id", "pause_clog", {}),
    "pause clog: actor is a mapping": wrong("actor", "pause_clog", "c", actor={}),
    "resume clog: a number": wrong("clog_id", "resume_clog", 5),
    "resume clog: actor is a mapping": wrong("actor", "resume_clog", "c", actor={}),
    "delete: run is no storable text": wrong("run_id", "delete_run", SURROGATE),
    "delete: run is a mapping": wrong("run_id", "delete_run", {}),
    "delete: actor is no storable text": wrong("actor", "delete_run", "one", actor=SURROGATE),
    "delete session: nothing": wrong("session_id", "delete_session", None),
    "delete session: empty": wrong("session_id", "delete_session", ""),
    "delete session: no storable text": wrong("session_id", "delete_session", SURROGATE),
    "delete session: actor is a mapping": wrong("actor", "delete_session", "s", actor={}),
    "list: clog is no storable text": wrong("clog_id", "list_runs", clog_id=SURROGATE),
    "list: clog is a mapping": wrong("clog_id", "list_runs", clog_id={}),
    "list: session is a number": wrong("session_id", "list_runs", session_id=5),
    "list: parent is a mapping": wrong("parent_run_id", "list_runs", parent_run_id={}),
    "list: a status among several": wrong("each status must be one of", "list_runs", status=["done", "over"]),
    "list: attribute's name is no storable text": wrong("attribute's name", "list_runs", attributes={SURROGATE: 1}),
    "list: attribute's name is a number": wrong("attribute's name", "list_runs", attributes={5: 1}),
    "list: attribute's value is a list of lists": wrong("attribute 'a'", "list_runs", attributes={"a": [[]]}),
    "list: clog is bytes": wrong("clog_id", "list_runs", clog_id=b"c"),
    "list: none among clogs": wrong("each clog_id", "list_runs", clog_id=["c", None]),
    "list: too many combinations": wrong(
        "at most 200 combinations of values, got 402",
        "list_runs",
        session_id=[f"s{n}" for n in range(201)],
        status=["done", "idle"],
    ),
    "list: created_from is text": wrong("created_from", "list_runs", created_from="today"),
    "list: ended_until is a fraction": wrong("ended_until", "list_runs", ended_until=1.5),
    "list: created from after until": wrong(
        "created_from must not be after created_until, got 5 and 4", "list_runs", created_from=5, created_until=4
    ),
    "list: ended but alive": wrong("status must include done or failed", "list_runs", status="idle", ended_from=1),
    "list: order by no range": wrong("one of attributes must be Within", "list_runs", order="ascending"),
    "list: order by time in a range": within(
        "order within a range of 'a' must be 'ascending' or", Within(gt=1), order="newest"
    ),
    "list: a range without a clog": wrong("attributes need a clog_id", "list_runs", attributes={"a": Within(gt=1)}),
    "list: a range of nothing": within("Within gt or gte", Within()),
    "list: a range with two beginnings": within("Within gt or gte", Within(gt=1, gte=2)),
    "list: a range with two ends": within("Within gt or gte", Within(lt=1, lte=2)),
    "list: a range of two kinds": within("Within strings or Within numbers", Within(gt=1, lt="x")),
    "list: a range of booleans": within("Within strings or Within numbers", Within(gt=True)),
    "list: a range the wrong way round": within("begins before its end", Within(gt=2, lt=1)),
    "list: a range of lists": within("attribute 'a'", Within(gt=[1])),  # type: ignore[arg-type]
    "list: two ranges": wrong(
        "at most one range, because it sets the order, got a, b",
        "list_runs",
        clog_id="c",
        attributes={"a": Within(gt=1), "b": Within(gt=1)},
    ),
    "bulk: a batch of none": bulk("batch must be an integer from 1 to 1000", batch=0),
    "bulk: a batch too large": bulk("batch must be an integer from 1 to 1000", batch=1_001),
    "bulk: a rate of none": bulk("per_second must be an integer from 1", per_second=0),
    "bulk: a rate that is a fraction": bulk("per_second must be an integer from 1", per_second=0.5),
    "bulk: most of none": bulk("most must be an integer of at least 1", most=0),
    "bulk: progress to a text": bulk("on_progress must be a function", on_progress="print"),
    "bulk: actor is a mapping": bulk("actor", actor={}),
    "bulk: everything is a text": wrong("everything must be True or False", "delete_runs", everything="yes"),
    "bulk: everything and a query": bulk("must not be combined with a query", everything=True),
    "bulk: a query of nothing": wrong("pass everything=True", "delete_runs"),
    "bulk: a query of nothings": wrong("pass everything=True", "delete_runs", clog_id=None, attributes={}),
    "bulk: cancel nothing": wrong("pass everything=True", "cancel_runs"),
    "bulk: retry nothing": wrong("pass everything=True", "retry_runs", status=None),
    "bulk: signal nothing": wrong("pass everything=True", "signal_runs", signal_id="x"),
    "bulk: a wrong query": wrong("status must be one of", "delete_runs", status="over"),
    "bulk: cancel what has ended": wrong("status must include done or failed", "cancel_runs", ended_from=1),
    "bulk: cancel with a NUL": wrong("reason must not contain a NUL", "cancel_runs", clog_id="c", reason="a\x00"),
    "bulk: signal without an id": wrong(
        "needs either a signal_id or a request_key", "signal_runs", clog_id="c", input=1
    ),
    "bulk: signal with two ids": wrong(
        "needs either a signal_id or a request_key", "signal_runs", clog_id="c", signal_id="x", request_key="y"
    ),
    "bulk: signal what is no JSON": wrong(
        "input must be a finite number, got nan", "signal_runs", clog_id="c", signal_id="x", input=float("nan")
    ),
    "bulk: signal without a time": wrong("deliver_at", "signal_runs", clog_id="c", signal_id="x", deliver_at="now"),
    "retry: run is a mapping": wrong("run_id", "retry_run", {}),
    "retry: actor is a number": wrong("actor", "retry_run", "one", actor=5),
    "retry: an unknown run": (ask("retry_run", "nobody"), RunNotFound, "no run 'nobody'"),
    "list: cursor is a number": cursor(5),
    "list: cursor is empty": cursor(""),
    "list: cursor is no storable text": cursor(SURROGATE),
    "list: cursor with a huge time": cursor(packed([NEWEST, 10**30, "x"])),
    "list: cursor with a time before all": cursor(packed([NEWEST, -1, "x"])),
    "list: cursor with a boolean for a time": cursor(packed([NEWEST, True, "x"])),
    "list: cursor with no storable text": cursor(packed([NEWEST, 1, SURROGATE])),
    "list: cursor with numbers": cursor(packed([NEWEST, 1, 2])),
    "list: cursor with too much": cursor(packed([NEWEST, 1, "x", "y"])),
    "list: cursor with too little": cursor(packed([NEWEST, 1])),
    "list: cursor with a value": cursor(packed([NEWEST, "x", 1, "y"])),
    "list: cursor of depth": cursor(base64.urlsafe_b64encode(b"[" * 4_000).decode()),
    "list: cursor of no order": cursor(packed([1, "x"])),
    "count: clog is a mapping": wrong("clog_id", "count_runs", clog_id={}),
    "count: cap is text": wrong("1 to 1000000", "count_runs", cap="5"),
    "ticks: after is text": wrong("after", "list_ticks", "one", after="x"),
    "ticks: after is huge": wrong("after", "list_ticks", "one", after=HUGE),
    "ticks: run is a mapping": wrong("run_id", "list_ticks", {}),
    "events: run is no storable text": wrong("run_id", "read_events", SURROGATE),
    "events: session is a mapping": wrong("session_id", "read_events", session_id={}),
    "events: correlation is a number": wrong("correlation_id", "read_events", correlation_id=5),
    "events: types are objects": wrong("each of types", "read_events", types=[object()]),
    "events: types are one text": wrong("types must be a list", "read_events", types="run.created"),
    "events: after is text": (ask("read_events", after="x"), BadCursor, "got 'x'"),
    "events: after is huge": (ask("read_events", after=HUGE), BadCursor, f"got {HUGE}"),
    "explain: run is no storable text": wrong("run_id", "explain", SURROGATE),
    "explain: run is a mapping": wrong("run_id", "explain", {}),
    "sweep: batch is text": wrong("batch", "sweep", batch="x"),
    "sweep: max_batches is a fraction": wrong("max_batches", "sweep", max_batches=1.5),
    "sweep: age is huge": wrong("an age", "sweep", events_older_than_ms=HUGE),
    "sweep: age is text": wrong("an age", "sweep", runs_older_than_ms="5"),
    "call: session is no storable text": call("session_id", session_id=SURROGATE),
    "call: session is long": call("session_id", session_id="x" * 1_000),
    "call: a session alone": call("needs a run_id, or a clog_id", clog_id=None, session_id="s"),
    "call: actor is no storable text": call("actor", caller=Caller(SURROGATE)),
    "call: payload is no JSON": call("payload must be a finite number, got nan", payload=float("nan"), request_key="k"),
    "call: method is a number": call("method", method=5),
    "call: run is a mapping": call("run_id", clog_id=None, run_id={}),
    "call: request key is a number": call("request_key", request_key=5),
    "call: clog is a number": call("clog_id", clog_id=5),
    "call: caller is a text": call("caller must be a Caller", caller="ada"),
    "call: a role is no storable text": call("roles", caller=Caller("ada", (SURROGATE,))),
    "list: attributes are a list": wrong("attributes must be a mapping", "list_runs", clog_id="c", attributes=["a"]),
    "count: attributes are a list": wrong("attributes must be a mapping", "count_runs", clog_id="c", attributes=["a"]),
    "create: run id is empty": wrong("run_id", "create_run", session_id="s", clog_id="c", run_id=""),
    "create: run id is zero": wrong("run_id", "create_run", session_id="s", clog_id="c", run_id=0),
    "signal: if_idle is a text": wrong("if_idle", "signal", "one", 1, if_idle="no", request_key="k"),
    "list: cursor is a bomb": (ask("list_runs", cursor="W1tb" * 100_000), BadCursor, "must be the next_cursor"),
    "call: run is of another kind": (ask("call_clog", run_id="s", method="m"), RunNotFound, "no run 's'"),
}


def clog_with_method() -> Script:
    script = Script()

    @script.method
    async def m(tick: Tick, payload: Any) -> None:
        await tick.emit("called")

    return script


@pytest.mark.parametrize("name", WRONG)
async def test_an_argument_of_a_wrong_type_is_named_and_nothing_is_written(name: str) -> None:
    verb, refusal, message = WRONG[name]
    async with stage(clog_with_method()) as w:
        await start_idle(w, run_id="one")
        before = await dump(w)
        with pytest.raises(refusal, match=message):
            # A write is shielded from anyio's own time limits: only the event loop's can end one that hangs.
            await asyncio.wait_for(verb(w.ocean), PATIENCE_S)
        assert await dump(w) == before


async def test_a_refused_argument_does_not_block_the_instance() -> None:
    """Several of these left their caller, and others in the same transaction, waiting for ever."""
    script = clog_with_method()
    async with stage(script) as w:
        run_id = await start_idle(w)
        hung = [
            ask("cancel_run", run_id, actor={}),
            ask("cancel_run", run_id, actor=5),
            ask("pause_run", {}),
            ask("delete_session", None),
        ]
        calls = [each(w.ocean) for each in hung] + [w.ocean.signal(run_id, n) for n in range(3)]
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_S)
        assert [isinstance(result, InvalidValue) for result in results] == [True] * 4 + [False] * 3
        await w.drain()
        assert script.bodies == [0, 1, 2]
