"""Keys that make a request or a run unique: request keys on every mutating verb, dedupe keys, chosen ids."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import (
    CallRefused,
    DedupeKeyReused,
    Done,
    Ocean,
    Ok,
    Outcome,
    Refuse,
    RequestKeyReused,
    RunExists,
    Tick,
)
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio

Verb = Callable[[Ocean, str, bool], Awaitable[Any]]

VERBS: dict[str, Verb] = {
    "create_run": lambda o, run_id, other: o.create_run(
        session_id="s", clog_id="c", input={"n": int(other)}, attributes={"a": 1.5}, request_key="k"
    ),
    "signal": lambda o, run_id, other: o.signal(run_id, int(other), request_key="k"),
    "call_clog": lambda o, run_id, other: o.call_clog(run_id=run_id, method="add", payload=int(other), request_key="k"),
    "refused call": lambda o, run_id, other: o.call_clog(
        run_id=run_id, method="refuse", payload=int(other), request_key="k"
    ),
    "cancel_run": lambda o, run_id, other: o.cancel_run(run_id, reason=f"r{int(other)}", request_key="k"),
    "pause_run": lambda o, run_id, other: o.pause_run("other" if other else run_id, request_key="k"),
    "resume_run": lambda o, run_id, other: o.resume_run("other" if other else run_id, request_key="k"),
    "pause_clog": lambda o, run_id, other: o.pause_clog("d" if other else "c", request_key="k"),
    "resume_clog": lambda o, run_id, other: o.resume_clog("d" if other else "c", request_key="k"),
    "delete_run": lambda o, run_id, other: o.delete_run("other" if other else run_id, request_key="k"),
    "delete_session": lambda o, run_id, other: o.delete_session("t" if other else "s", request_key="k"),
}


def adder() -> Script:
    script = Script(Ok())

    @script.method
    async def add(tick: Tick, payload: Any) -> Any:
        rows = await tick.read(run=True)
        await tick.write(run=(rows.run or 0) + 1)
        return {"n": (rows.run or 0) + 1}

    @script.method
    async def refuse(tick: Tick, payload: Any) -> None:
        await tick.emit("refused")
        raise Refuse("no", code="no")

    return script


async def _result(verb: Verb, ocean: Ocean, run_id: str, other: bool = False) -> Any:
    try:
        return await verb(ocean, run_id, other)
    except CallRefused as refusal:
        return (refusal.code, refusal.http_status, refusal.message)


@pytest.mark.parametrize("name", VERBS)
async def test_a_repeated_request_gets_the_first_result_and_has_no_new_effect(name: str) -> None:
    async with stage(adder(), Script(clog_id="d")) as w:
        run_id = await start_idle(w, run_id="one", session_id="s")
        await start_idle(w, run_id="other", session_id="t")
        first = await _result(VERBS[name], w.ocean, run_id)
        before = await dump(w)
        w.clock.advance(10)
        assert await _result(VERBS[name], w.ocean, run_id) == first
        assert await dump(w) == before


@pytest.mark.parametrize("name", VERBS)
async def test_a_repeated_request_gets_the_first_result_also_when_its_run_is_deleted(name: str) -> None:
    async with stage(adder(), Script(clog_id="d")) as w:
        run_id = await start_idle(w, run_id="one", session_id="s")
        first = await _result(VERBS[name], w.ocean, run_id)
        await w.ocean.delete_session("s")
        before = await dump(w)
        assert await _result(VERBS[name], w.ocean, run_id) == first
        assert await dump(w) == before


@pytest.mark.parametrize("name", VERBS)
async def test_a_request_key_with_another_body_is_refused(name: str) -> None:
    async with stage(adder(), Script(clog_id="d")) as w:
        run_id = await start_idle(w, run_id="one", session_id="s")
        await start_idle(w, run_id="other", session_id="t")
        await _result(VERBS[name], w.ocean, run_id)
        before = await dump(w)
        with pytest.raises(RequestKeyReused) as refusal:
            await VERBS[name](w.ocean, run_id, True)
        assert refusal.value.http_status == 409
        assert await dump(w) == before


async def test_a_request_key_of_one_verb_is_not_another_s() -> None:
    async with stage(adder()) as w:
        run_id = await start_idle(w)
        await w.ocean.pause_run(run_id, request_key="k")
        with pytest.raises(RequestKeyReused):
            await w.ocean.resume_run(run_id, request_key="k")


async def test_a_refused_request_does_not_use_up_its_key() -> None:
    async with stage(adder()) as w:
        with pytest.raises(Exception, match="there is no run"):
            await w.ocean.signal("later", 1, request_key="k")
        await start_idle(w, run_id="later")
        assert (await w.ocean.signal("later", 1, request_key="k")).number == 1


async def test_a_repeated_request_gets_the_first_result_also_when_its_run_has_advanced() -> None:
    async with stage(Script(Done(1))) as w:
        first = await w.ocean.create_run(session_id="s", clog_id="c", input=1, request_key="k")
        await w.drain()
        assert await w.ocean.create_run(session_id="s", clog_id="c", input=1, request_key="k") == first


async def test_a_dedupe_key_returns_the_first_run_for_the_same_body() -> None:
    async with stage(Script(Done()), Script(clog_id="d")) as w:
        run_id = await start(w, {"n": 1}, dedupe_key="k")
        assert await start(w, {"n": 1}, dedupe_key="k") == run_id
        await w.drain()
        assert await start(w, {"n": 1}, dedupe_key="k") == run_id
        assert (await look(w, run_id)).dedupe_key == "k"
        before = await dump(w)
        with pytest.raises(DedupeKeyReused) as refusal:
            await start(w, {"n": 2}, dedupe_key="k")
        assert refusal.value.details["run_id"] == run_id
        assert await dump(w) == before
        others = [
            await start(w, {"n": 1}, dedupe_key="k", session_id="s2"),
            await start(w, {"n": 1}, dedupe_key="k", clog_id="d"),
            await start(w, {"n": 1}, dedupe_key="k2"),
        ]
        assert len({run_id, *others}) == 4


async def test_a_dedupe_key_lapses_after_its_time() -> None:
    async with stage(Script(Ok())) as w:
        first = await start(w, 1, dedupe_key="k", dedupe_ms=1_000)
        w.clock.advance(999)
        assert await start(w, 1, dedupe_key="k", dedupe_ms=1_000) == first
        w.clock.advance(1)
        second = await start(w, 2, dedupe_key="k")
        assert second != first
        assert ((await look(w, first)).dedupe_key, (await look(w, second)).dedupe_key) == (None, "k")


async def test_a_tick_can_release_its_run_s_dedupe_key() -> None:
    async def release(tick: Tick) -> Outcome:
        await tick.release_dedupe_key()
        return Ok()

    async with stage(Script(release)) as w:
        first = await start(w, 1, dedupe_key="k")
        await w.drain()
        assert (await look(w, first)).dedupe_key is None
        assert await start(w, 2, dedupe_key="k") != first


async def test_a_deleted_run_frees_its_dedupe_key() -> None:
    async with stage(Script(Ok())) as w:
        first = await start(w, 1, dedupe_key="k")
        await w.ocean.delete_run(first)
        assert await start(w, 2, dedupe_key="k") != first


async def test_a_tick_that_creates_by_dedupe_key_gets_the_run_that_holds_it() -> None:
    ids: list[str] = []

    async def once(tick: Tick) -> Outcome:
        ids.append(await tick.create_run(clog_id="d", input="x", dedupe_key="k"))
        return Ok()

    async with stage(Script(once), Script(clog_id="d")) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain()
        assert ids[0] == ids[1]
        assert (await w.ocean.count_runs(clog_id="d")).count == 1


@pytest.mark.parametrize("body", ["x", "another"])
async def test_a_key_that_a_call_has_read_as_free_is_free_for_it_until_it_commits(body: str) -> None:
    """If another commit takes the key meanwhile, the call is repeated: it never sees a mix of both states."""
    seen: list[tuple[str | None, str | None]] = []

    async def once(tick: Tick) -> Outcome:
        holder, made = (await tick.read(keys=["k"])).by_key["k"], None
        if holder is None:
            await start(w, body, dedupe_key="k", run_id="theirs")
            made = await tick.create_run(clog_id="c", input="x", dedupe_key="k")
        seen.append((holder.run_id if holder else None, made))
        return Done()

    async with stage(Script(once)) as w:
        await start(w, run_id="mine")
        await w.ocean.advance(run_id="mine")
        (free, made), again = seen
        assert free is None
        assert made not in (None, "theirs")
        assert again == ("theirs", None)
        assert (await w.ocean.count_runs()).count == 2


async def test_the_same_id_with_the_same_body_is_the_same_run() -> None:
    async with stage(Script(Ok())) as w:
        await start(w, 1, run_id="mine")
        before = await dump(w)
        assert await start(w, 1, run_id="mine") == "mine"
        with pytest.raises(RunExists):
            await start(w, 2, run_id="mine")
        assert await dump(w) == before


async def test_ids_are_time_ordered_and_never_repeat_within_a_millisecond() -> None:
    """O10: UUIDv7, not a random number of a few digits."""
    async with stage(Script()) as w:
        ids = [await start_idle(w) for _ in range(50)]
        w.clock.advance(1)
        ids += [await start_idle(w) for _ in range(50)]
        assert ids == sorted(ids)
        assert len(set(ids)) == 100
        assert {run_id[14] for run_id in ids} == {"7"}
        assert len(await log(w, ids[0])) == 1
