"""Each verb with invalid arguments: a precise error, and no change of any table."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import Caller, Clog, InvalidValue, Ocean, OceanError, RetryPolicy, Tick
from tests.lifecycle.acting import Script, dump, stage, start_idle

pytestmark = pytest.mark.anyio

Ask = Callable[[Ocean], Awaitable[Any]]


def create(**changes: Any) -> Ask:
    return lambda o: o.create_run(**{"session_id": "s", "clog_id": "c", **changes})


def signal(*args: Any, **changes: Any) -> Ask:
    return lambda o: o.signal("one", *args, **changes)


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: dict[str, tuple[Any, str]] = {
    "nan": ({"x": [float("nan")]}, r"input\.x\[0\] must be a finite number, got nan"),
    "infinite": (float("inf"), "input must be a finite number, got inf"),
    "nul": ({"x": "a\x00b"}, r"input\.x must not contain a NUL"),
    "surrogate": (["\ud800"], r"input\[0\] must not contain a lone surrogate"),
    "surrogate key": ({"\ud800": 1}, "a key of input must not contain a lone surrogate"),
    "big integer": ({"n": 2**63}, r"input\.n must be an integer of at most 64 bits"),
    "small integer": (-(2**63) - 1, "input must be an integer of at most 64 bits"),
    "deep": (_deep(65), "nested deeper than 64"),
    "long": ("x" * (1024 * 1024), "bytes of JSON, got 1048578"),
    "object": ({"when": object()}, r"input\.when must be JSON, got a value of type object"),
    "integer key": ({1: 2}, "must have strings as keys"),
    "bytes": (b"x", "input must be JSON, got a value of type bytes"),
}

WRONG: dict[str, tuple[Ask, str, str]] = {
    "no session": (create(session_id=""), "invalid_value", "session_id must be a non-empty string"),
    "session is no text": (create(session_id=5), "invalid_value", "session_id must be a non-empty string, got 5"),
    "long session": (create(session_id="é" * 129), "invalid_value", "session_id must be at most 256 bytes"),
    "unknown clog": (create(clog_id="cc"), "unknown_clog", "did you mean 'c'"),
    "empty run id": (create(run_id="a\x00"), "invalid_value", "run_id must not contain a NUL"),
    "priority": (create(priority=10), "invalid_value", "priority must be an integer from 0"),
    "priority is no number": (create(priority="1"), "invalid_value", "priority must be an integer from 0"),
    "priority is a boolean": (create(priority=True), "invalid_value", "priority must be an integer from 0"),
    "deadline passed": (create(deadline_at=1), "invalid_value", "must be in the future"),
    "deadline is no integer": (create(deadline_at=1.5), "invalid_value", "deadline_at must be milliseconds"),
    "dedupe time without key": (create(dedupe_ms=5), "invalid_value", "needs a dedupe_key"),
    "dedupe time of zero": (
        create(dedupe_key="k", dedupe_ms=0),
        "invalid_value",
        "dedupe_ms must be an integer of at least 1",
    ),
    "empty dedupe key": (create(dedupe_key=""), "invalid_value", "dedupe_key must be a non-empty string"),
    "attribute of a wrong kind": (create(attributes={"a": [1]}), "invalid_value", "attribute 'a' must be a string"),
    "attribute of none": (create(attributes={"a": None}), "invalid_value", "attribute 'a' must be a string"),
    "attribute too long": (create(attributes={"a": "x" * 257}), "invalid_value", "attribute 'a' must be at most 256"),
    "attribute not finite": (
        create(attributes={"a": float("nan")}),
        "invalid_value",
        "attribute 'a' must be finite, got nan",
    ),
    "attribute not exact": (create(attributes={"a": 2**53 + 1}), "invalid_value", "to be exact"),
    "attribute without a name": (create(attributes={"": 1}), "invalid_value", "an attribute's name"),
    "too many attributes": (create(attributes={f"a{n}": n for n in range(17)}), "invalid_value", "at most 16"),
    "actor": (create(actor=""), "invalid_value", "actor must be a non-empty string"),
    "request key": (create(request_key=""), "invalid_value", "request_key must be a non-empty string"),
    "signal to an unknown run": (lambda o: o.signal("nobody"), "run_not_found", "there is no run 'nobody'"),
    "empty signal id": (signal(1, signal_id=""), "invalid_value", "signal_id must be a non-empty string"),
    "deliver_at": (signal(1, deliver_at=-1), "invalid_value", "deliver_at must be milliseconds"),
    "if_idle later": (signal(1, deliver_at=1, if_idle=True), "invalid_value", "must not be combined with deliver_at"),
    "budget": (lambda o: o.advance(budget_ms=-1), "invalid_value", "budget_ms must be an integer of at least 0"),
    "hard_ms": (lambda o: o.advance(hard_ms=-1), "invalid_value", "hard_ms must be an integer of at least 0"),
    "max_ticks": (lambda o: o.advance(max_ticks=-1), "invalid_value", "max_ticks must be an integer of at least 0"),
    "concurrency": (
        lambda o: o.advance(concurrency=0),
        "invalid_value",
        "concurrency must be an integer of at least 1",
    ),
    "advance of an unknown run": (lambda o: o.advance(run_id="nobody"), "run_not_found", "there is no run"),
    "advance of an unknown clog": (lambda o: o.advance(clog_ids=["x"]), "unknown_clog", "not registered here"),
    "result of an unknown run": (lambda o: o.result("nobody"), "run_not_found", "there is no run"),
    "call of nothing": (lambda o: o.call_clog(method="m"), "invalid_value", "needs a run_id, or a clog_id"),
    "call on a run with a session": (
        lambda o: o.call_clog(run_id="one", session_id="s", method="m"),
        "invalid_value",
        "session_id must be left out",
    ),
    "call on an unknown run": (lambda o: o.call_clog(run_id="nobody", method="m"), "run_not_found", "there is no run"),
    "call of an unknown method": (lambda o: o.call_clog(clog_id="c", method="mm"), "unknown_method", "did you mean"),
    "payload": (
        lambda o: o.call_clog(clog_id="c", method="m", payload=[float("nan")]),
        "invalid_value",
        r"payload\[0\] must be a finite number, got nan",
    ),
    "list status": (lambda o: o.list_runs(status="sleeping"), "invalid_value", "status must be one of idle, pending"),
    "list order": (lambda o: o.list_runs(order="up"), "invalid_value", "order must be 'newest' or 'oldest'"),  # type: ignore[arg-type]
    "list limit": (lambda o: o.list_runs(limit=0), "invalid_value", "limit must be an integer from 1 to 1000"),
    "list limit is a boolean": (
        lambda o: o.list_runs(limit=True),
        "invalid_value",
        "limit must be an integer from 1 to 1000",
    ),
    "count cap": (lambda o: o.count_runs(cap=0), "invalid_value", "cap must be an integer from 1 to 1000000"),
    "ticks of an unknown run": (lambda o: o.list_ticks("nobody"), "run_not_found", "there is no run"),
    "ticks limit": (
        lambda o: o.list_ticks("one", limit=1_001),
        "invalid_value",
        "limit must be an integer from 1 to 1000",
    ),
    "events limit": (lambda o: o.read_events(limit=0), "invalid_value", "limit must be an integer from 1 to 1000"),
    "explain an unknown run": (lambda o: o.explain("nobody"), "run_not_found", "there is no run"),
    "cancel an unknown run": (lambda o: o.cancel_run("nobody"), "run_not_found", "there is no run"),
    "cancel with a NUL": (lambda o: o.cancel_run("one", reason="a\x00"), "invalid_value", "must not contain a NUL"),
    "pause an unknown run": (lambda o: o.pause_run("nobody"), "run_not_found", "there is no run"),
    "resume an unknown run": (lambda o: o.resume_run("nobody"), "run_not_found", "there is no run"),
    "pause an unknown clog": (lambda o: o.pause_clog("cc"), "unknown_clog", "did you mean 'c'"),
    "resume an unknown clog": (lambda o: o.resume_clog("cc"), "unknown_clog", "did you mean 'c'"),
    "delete an unknown run": (lambda o: o.delete_run("nobody"), "run_not_found", "there is no run"),
}


def clog_with_method() -> Script:
    script = Script()

    @script.method
    async def m(tick: Tick, payload: Any) -> None:
        await tick.emit("called")

    return script


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_argument_is_named_and_nothing_is_written(name: str) -> None:
    ask, code, message = WRONG[name]
    async with stage(clog_with_method()) as w:
        await start_idle(w, run_id="one")
        before = await dump(w)
        with pytest.raises(OceanError, match=message) as refusal:
            await ask(w.ocean)
        assert refusal.value.code == code
        assert refusal.value.http_status in (400, 404)
        assert await dump(w) == before


@pytest.mark.parametrize("verb", ["create_run", "signal"])
@pytest.mark.parametrize("name", NOT_JSON)
async def test_a_value_that_is_not_json_is_refused_with_its_place(name: str, verb: str) -> None:
    value, message = NOT_JSON[name]
    async with stage(clog_with_method()) as w:
        await start_idle(w, run_id="one")
        before = await dump(w)
        with pytest.raises(InvalidValue, match=message):
            await (create(input=value) if verb == "create_run" else signal(value))(w.ocean)
        assert await dump(w) == before


async def test_edge_cases_of_json_are_stored_unchanged() -> None:
    edges = {"deep": _deep(62), "int": [2**63 - 1, -(2**63)], "text": "é\u2028\U0001f600\x01", "": None, "f": 1e308}
    script = Script()
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.signal(run_id, edges)
        await w.drain()
        assert script.bodies == [edges]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"backoff_ms": -1},
        {"backoff_max_ms": 1.5},
        {"delays_ms": ()},
        {"delays_ms": (1, -1)},
        {"max_elapsed_ms": -1},
        {"jitter": -0.1},
    ],
)
def test_an_invalid_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"retry"):
        RetryPolicy(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"clog_id": ""}, {"version": ""}, {"inputs": "some"}, {"tick_ms": 0}, {"lock_ms": 2}], ids=str
)
def test_an_invalid_clog_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Clog(**{"clog_id": "c", **wrong})


async def test_a_caller_s_roles_reach_the_method() -> None:
    script = Script()

    @script.method
    async def who(tick: Tick, payload: Any) -> Any:
        return [tick.caller.actor, list(tick.caller.roles)]

    async with stage(script) as w:
        result = await w.ocean.call_clog(clog_id="c", method="who", caller=Caller("ada", ("admin", "viewer")))
        assert result == ["ada", ["admin", "viewer"]]
