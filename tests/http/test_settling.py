"""`?waitMs`: a request may wait for the result of its signal, for the given time and no longer."""

from typing import Any

import anyio
import httpx2
import pytest

from ocean import Clog, Done, InvalidValue, Ocean, Outcome, Retry, RunInfo, RunNotFound, RunStatus, Tick
from ocean.http.app import make_app
from ocean.http.framework.responses import record
from tests.http.kit import AppWorld, AsgiCaller, app_world, error_of
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start

pytestmark = pytest.mark.anyio

NEW = {"sessionId": "s", "clogId": "c"}


@pytest.mark.parametrize(
    ("input", "status"),
    [({"done": 1}, "done"), ({"fail": "no"}, "failed"), ({"wait": 5_000}, "waiting"), ({"more": {"more": 0}}, "idle")],
    ids=str,
)
async def test_a_waiting_request_returns_the_settled_run(h: AppWorld, input: Any, status: str) -> None:
    created = await h.post("/v1/runs?waitMs=500", NEW | {"input": input})
    assert (created.status_code, created.json()["status"]) == (200, status)
    assert created.json() == record(await look(h.w, created.json()["runId"]))
    run_id = await h.new_run()
    signalled = await h.post(f"/v1/runs/{run_id}/signal?waitMs=500", {"input": input})
    assert (signalled.status_code, signalled.json()["status"]) == (200, status)


async def test_a_run_with_nothing_to_do_is_settled_at_once(h: AppWorld) -> None:
    assert (await h.post("/v1/runs?waitMs=0", NEW)).status_code == 200
    run_id = await h.new_run()
    later = {"deliverAt": h.w.clock.now() + 1_000}
    response = await h.post(f"/v1/runs/{run_id}/signal?waitMs=500", later)
    assert (response.status_code, response.json()["status"]) == (200, "waiting")


async def test_with_a_wait_of_zero_the_response_has_the_cursor_to_continue(h: AppWorld) -> None:
    response = await h.post("/v1/runs?waitMs=0", NEW | {"input": 1})
    (created,) = await h.w.ocean.read_events(response.json()["runId"])
    assert (response.status_code, response.json()) == (
        202,
        {"runId": created.run_id, "status": "pending", "cursor": created.seq, "nextWakeAt": h.w.clock.now()},
    )
    signalled = await h.post(f"/v1/runs/{created.run_id}/signal?waitMs=0")
    events = await h.w.ocean.read_events(created.run_id, after=created.seq)
    assert [event.seq for event in events] == [signalled.json()["cursor"]]


async def test_a_run_in_backoff_has_not_settled() -> None:
    async with app_world(more=[Script(Retry("later", after_ms=9_000), clog_id="shy")]) as h:
        caller = AsgiCaller(h.w, "/v1/runs", {"sessionId": "s", "clogId": "shy", "input": 1}, "waitMs=3000")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.call)
            while not caller.has_response.is_set():
                await let_others_go_on(h.w)
                h.w.clock.advance(500)
            # A wait by the clock may have started just before the clock moved.
            h.w.clock.advance(3_000)
        status, body = caller.response
        run = await look(h.w, body["runId"])
        assert (status, body["status"], body["nextWakeAt"]) == (202, "pending", run.wake_at)


async def test_a_slow_handler_continues_after_the_response() -> None:
    started, may_end = anyio.Event(), anyio.Event()

    async def slowly(tick: Tick) -> Outcome:
        started.set()
        await may_end.wait()
        return Done("at last")

    async with app_world(more=[Script(slowly, clog_id="slow")]) as h:
        caller = AsgiCaller(h.w, "/v1/runs", {"sessionId": "s", "clogId": "slow", "input": 1}, "waitMs=800")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.call)
            await started.wait()
            h.w.clock.advance(800)
            await caller.has_response.wait()
            status, body = caller.response
            assert (status, body["status"]) == (202, "active")
            may_end.set()
        run = await look(h.w, body["runId"])
        assert (run.status, run.output) == (RunStatus.DONE, "at last")


async def test_a_stopping_server_responds_to_requests_that_wait_for_a_run(h: AppWorld) -> None:
    caller = AsgiCaller(h.w, "/v1/runs", {"sessionId": "s", "clogId": "x", "input": 1}, "waitMs=60000")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call)
        await let_others_go_on(h.w)
        caller.stopping.set()
        await caller.has_response.wait()
        status, body = caller.response
        assert (status, body["status"]) == (202, "pending")
        # It delays the server by at most one of its checks of the run.
        h.w.clock.advance(1_000)


async def test_waiting_for_a_run_ends_when_the_caller_disconnects(h: AppWorld) -> None:
    caller = AsgiCaller(h.w, "/v1/runs", {"sessionId": "s", "clogId": "x", "input": 1}, "waitMs=60000")
    # The rest of its minute is not waited for: the clock moves by one second only.
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.call)
            await caller.is_listening.wait()
            caller.disconnect()
            await let_others_go_on(h.w)
            h.w.clock.advance(1_000)
    assert caller.sent == []


async def test_a_handler_that_runs_for_a_request_finishes_when_the_server_stops() -> None:
    started, may_end = anyio.Event(), anyio.Event()

    async def slowly(tick: Tick) -> Outcome:
        started.set()
        await may_end.wait()
        return Done("at last")

    async with app_world(more=[Script(slowly, clog_id="slow")]) as h:
        caller = AsgiCaller(h.w, "/v1/runs", {"sessionId": "s", "clogId": "slow", "input": 1}, "waitMs=60000")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.call)
            await started.wait()
            caller.stopping.set()
            await caller.has_response.wait()
            may_end.set()
        status, body = caller.response
        assert (status, body["status"]) == (202, "active")
        assert (await look(h.w, body["runId"])).output == "at last"


async def test_an_external_worker_settles_a_run_that_a_request_waits_for(h: AppWorld) -> None:
    caller = AsgiCaller(h.w, "/v1/runs", {"sessionId": "s", "clogId": "x", "input": 1}, "waitMs=60000")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call)
        await let_others_go_on(h.w)
        (lease,) = await h.claim()
        await h.complete(lease, {"type": "done", "output": 7})
    status, body = caller.response
    assert (status, body["output"]) == (200, 7)


async def test_a_run_deleted_during_the_wait_is_not_found(h: AppWorld) -> None:
    run_id = await h.new_external_run()
    caller = AsgiCaller(h.w, f"/v1/runs/{run_id}/signal", {}, "waitMs=60000")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call)
        await let_others_go_on(h.w)
        await h.http.delete(f"/v1/runs/{run_id}")
    status, body = caller.response
    assert (status, body["error"]["code"]) == (404, "run_not_found")


class Deleting(Ocean):
    """Deletes the run between the wait and the response."""

    async def settle(self, run_id: str, *, timeout_ms: int = 1_000) -> RunInfo:
        run = await super().settle(run_id, timeout_ms=timeout_ms)
        await self.delete_run(run_id)
        return run


async def test_a_settled_run_deleted_just_before_the_response_is_returned(h: AppWorld) -> None:
    transport = httpx2.ASGITransport(make_app(Deleting(h.w.store, [Clog("c")], h.w.clock), poke_ms=0))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        settled = await http.post("/v1/runs?waitMs=0", json=NEW)
        assert (settled.status_code, settled.json()["status"]) == (200, "idle")
        response = await http.post("/v1/runs?waitMs=0", json=NEW | {"input": 1})
    assert (response.status_code, error_of(response)["code"]) == (404, "run_not_found")
    assert "deleted meanwhile" in error_of(response)["message"]


@pytest.mark.parametrize("wait", ["-1", "60001", "soon", ""])
async def test_an_invalid_wait_time_is_refused_before_anything_is_done(h: AppWorld, wait: str) -> None:
    response = await h.post(f"/v1/runs?waitMs={wait}", NEW | {"input": 1})
    assert (response.status_code, error_of(response)["details"]["fields"][0]["field"]) == (400, "waitMs")
    assert (await h.w.ocean.count_runs()).count == 0


async def test_settle_is_a_verb_of_python_too() -> None:
    async with stage(Script(Done(1))) as w:
        run_id = await start(w, 1)
        assert not (await w.ocean.settle(run_id, timeout_ms=0)).is_settled(w.clock.now())
        settled = await w.ocean.settle(run_id)
        assert (settled.status, settled.is_settled(w.clock.now())) == (RunStatus.DONE, True)
        for run_id, kind in (("none", RunNotFound), ("", InvalidValue)):
            with pytest.raises(kind):
                await w.ocean.settle(run_id)
        with pytest.raises(InvalidValue):
            await w.ocean.settle("r", timeout_ms=-1)


async def test_a_run_with_a_deadline_that_is_due_has_not_settled() -> None:
    async with stage(Script()) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", deadline_at=w.clock.now() + 10)
        assert run.is_settled(w.clock.now())
        w.clock.advance(10)
        assert not run.is_settled(w.clock.now())
        assert (await w.ocean.settle(run.run_id)).status is RunStatus.FAILED


async def test_a_wait_for_a_run_whose_events_were_swept_returns(h: AppWorld) -> None:
    body = {"sessionId": "s", "clogId": "c", "runId": "r", "input": {"done": 1}}
    first = await h.post("/v1/runs?waitMs=100", body)
    h.w.clock.advance(1_000)
    await h.w.ocean.sweep(events_older_than_ms=0)
    again = await h.post("/v1/runs?waitMs=100", body)
    assert (again.status_code, again.content) == (200, first.content)
