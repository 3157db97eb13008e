"""Children: created in a commit, reported to the parent in the child's last commit, ended with it on request."""

from typing import Any

import pytest

from ocean import ChildEnd, Done, Failed, Ok, Outcome, Retry, RunStatus, Tick, Wait
from tests.lifecycle.acting import Act, Script, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


def create_children(*inputs: Any, outcome: Outcome | None = None, **options: Any) -> Act:
    """Create a child for each input."""

    async def act(tick: Tick) -> Outcome:
        for input in inputs:
            await tick.create_run(clog_id="child", input=input, **options)
        return outcome or Ok()

    return act


async def test_a_child_appears_with_the_commit_and_belongs_to_its_parent() -> None:
    async with stage(Script(create_children("x")), Script(clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert (child.parent_run_id, child.session_id, child.correlation_id) == (run_id, "s", run_id)
        created = (await log(w, child.run_id, "run.created"))[0]
        assert (created.causation_id, created.payload["parent_run_id"]) == (f"{run_id}:1", run_id)


async def test_fan_out_and_fan_in_need_no_external_loop() -> None:
    """O8: a clog creates runs and is notified of their ends, without an external loop."""

    async def plan(tick: Tick) -> Outcome:
        for n in (1, 2, 3):
            await tick.create_run(clog_id="child", input=n, notify_parent=True)
        return Ok()

    async def gather(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        assert tick.child is not None
        parts = sorted([*(rows.run or []), tick.child.output])
        await tick.write(run=parts)
        return Done(parts) if len(parts) == 3 else Ok()

    async def square(tick: Tick) -> Outcome:
        return Done(tick.input**2)

    script = Script(plan, gather)
    async with stage(script, Script(square, clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == [1, 4, 9]
        assert [seen.reason for seen in script.seen] == ["created", "child", "child", "child"]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Done({"n": 1}), (RunStatus.DONE, {"n": 1}, None)),
        (Failed("no"), (RunStatus.FAILED, None, {"code": "failed", "message": "no", "details": None})),
    ],
)
async def test_the_parent_is_notified_how_its_child_ended(end: Outcome, expected: tuple[Any, ...]) -> None:
    child_ends: list[ChildEnd | None] = []

    async def record_child(tick: Tick) -> Outcome:
        child_ends.append(tick.child)
        assert tick.inputs[0].kind == "child"
        return Ok()

    async with stage(Script(create_children("x", notify_parent=True), record_child), Script(end, clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert child_ends == [ChildEnd(child.run_id, *expected)]


@pytest.mark.parametrize("how", ["cancel", "deadline", "delete"])
async def test_every_end_notifies_the_parent(how: str) -> None:
    child_ends: list[ChildEnd] = []

    async def record_child(tick: Tick) -> Outcome:
        assert tick.child is not None
        child_ends.append(tick.child)
        return Ok()

    async def create_child(tick: Tick) -> Outcome:
        at = tick.now + 10 if how == "deadline" else None
        await tick.create_run(clog_id="child", notify_parent=True, deadline_at=at)
        return Ok()

    async with stage(Script(create_child, record_child), Script(clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        match how:
            case "cancel":
                await w.ocean.cancel_run(child.run_id)
            case "deadline":
                w.clock.advance(10)
            case "delete":
                await w.ocean.delete_run(child.run_id)
        await w.drain()
        codes = {"cancel": "cancelled", "deadline": "deadline_exceeded", "delete": "deleted"}
        assert [end.error and end.error["code"] for end in child_ends] == [codes[how]]


async def test_a_child_without_notify_parent_ends_quietly() -> None:
    script = Script(create_children("x"))
    async with stage(script, Script(Done(), clog_id="child")) as w:
        await start(w)
        await w.drain()
        assert len(script.seen) == 1


async def test_a_child_whose_parent_has_ended_records_it_in_its_own_log() -> None:
    async with stage(
        Script(create_children("x", notify_parent=True, outcome=Done())), Script(Done("late"), clog_id="child")
    ) as w:
        run_id = await start(w)
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        (event,) = await log(w, child.run_id, "signal.undelivered")
        assert event.payload == {"to": run_id, "kind": "child"}
        assert child.output == "late"


@pytest.mark.parametrize(("on_parent_end", "status"), [("cancel", "failed"), ("live", "waiting")])
@pytest.mark.parametrize("how", ["done", "cancel"])
async def test_children_live_on_unless_they_were_created_to_end_with_their_parent(
    on_parent_end: str, status: str, how: str
) -> None:
    parent = Script(create_children("x", on_parent_end=on_parent_end), Done())
    async with stage(parent, Script(Wait(for_ms=1_000), clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        if how == "done":
            await w.ocean.signal(run_id)
            await w.drain()
        else:
            await w.ocean.cancel_run(run_id)
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert child.status == status
        assert (child.error or {}).get("code") == ("cancelled" if status == "failed" else None)


async def test_a_grandchild_is_cancelled_too_and_on_end_gets_its_tick() -> None:
    middle = Script(create_children("leaf", on_parent_end="cancel"), clog_id="middle")
    leaf = Script(Wait(for_ms=1_000), clog_id="child", ends=(Ok(),))

    async def top(tick: Tick) -> Outcome:
        await tick.create_run(clog_id="middle", input=None, on_parent_end="cancel")
        return Ok()

    async with stage(Script(top), middle, leaf) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert {run.status for run in (await w.ocean.list_runs()).runs} == {"failed"}
        assert [seen.reason for seen in leaf.ends] == ["cancel"]


async def test_a_tick_generates_the_same_ids_in_every_call() -> None:
    ids: list[str] = []

    async def bear_two(tick: Tick) -> Outcome:
        ids.extend([await tick.create_run(clog_id="child") for _ in range(2)])
        return Retry("no") if tick.call_number < 3 else Ok()

    async with stage(Script(bear_two), Script(clog_id="child")) as w:
        run_id = await start(w)
        for _ in range(3):
            await w.drain()
            w.clock.advance(10_000)
        assert ids[:2] == ids[2:4] == ids[4:6]
        assert ids[0] != ids[1]
        children = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert {child.run_id for child in children} == set(ids)


async def test_a_signal_from_a_tick_arrives_with_its_commit() -> None:
    receiver = Script(Ok(), clog_id="r")

    async def send(tick: Tick) -> Outcome:
        new = await tick.create_run(clog_id="r")
        await tick.signal(new, "to the new one")
        await tick.signal(other, "hello", signal_id="once")
        return Ok()

    async with stage(Script(send), receiver) as w:
        other = await start_idle(w, clog_id="r")
        run_id = await start(w)
        await w.drain()
        assert sorted(receiver.bodies) == ["hello", "to the new one"]
        assert (await log(w, other, "run.signalled"))[0].causation_id == f"{run_id}:1"


@pytest.mark.parametrize("receiver", ["ended", "gone"])
async def test_a_signal_to_a_run_that_is_over_does_not_fail_the_tick(receiver: str) -> None:
    async def send(tick: Tick) -> Outcome:
        await tick.signal(other, "hello", signal_id="x")
        return Done("sent")

    async with stage(Script(send), Script(Done(), clog_id="r")) as w:
        other = await start(w, clog_id="r") if receiver == "ended" else "nobody"
        await w.drain()
        run_id = await start(w)
        assert await w.ocean.result(run_id) == "sent"
        (event,) = await log(w, run_id, "signal.undelivered")
        assert event.payload == {"to": other, "kind": "signal", "signal_id": "x"}


async def test_a_required_signal_to_a_run_that_is_over_fails_the_attempt() -> None:
    async def send(tick: Tick) -> Outcome:
        await tick.emit("half")
        await tick.signal("nobody", required=True)
        return Ok()

    async with stage(Script(send)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.attempt, run.error["code"]) == (1, "signal_refused")
        assert await log(w, run_id, "half") == []


async def test_a_run_of_an_unknown_clog_cannot_be_created_from_a_tick() -> None:
    async with stage(Script(create_children("x"), clog_id="c"), Script(clog_id="chill")) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "unknown_clog"
        assert "did you mean 'chill'" in error["message"]
