"""The poke after a response: what it advances, how many run at once, and that a failure has no effect on requests."""

import anyio
import pytest

from ocean import Clog, Done, Ok, Outcome, Refuse, RunStatus, Tick
from ocean.http.framework.routing import Op, Repeat
from ocean.http.routes import TABLE
from ocean.testing import World
from ocean.ticker import ticker
from tests.http.kit import AppWorld, app_world, messy_clog
from tests.http.test_idempotency import EXAMPLES, KEYED, create_examples, name, send
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_change_pokes_due_runs_after_its_response() -> None:
    other = Script(clog_id="other")
    async with app_world(more=[other], poke_ms=100) as h:
        due = await h.w.ocean.create_run(session_id="s", clog_id="other", input=1)
        response = await h.post("/v1/runs", {"sessionId": "s", "clogId": "c", "input": {"done": 1}})
        assert response.json()["status"] == "pending", "the response does not wait for the poke"
        assert (await look(h.w, response.json()["runId"])).status is RunStatus.DONE
        assert (await look(h.w, due.run_id)).status is RunStatus.IDLE
        assert len(other.seen) == 1


@pytest.mark.parametrize("op", [op for op in KEYED if op.path != "/v1/advance"], ids=name)
async def test_every_change_pokes(op: Op) -> None:
    async with app_world(more=[Script(clog_id="other"), messy_clog()], poke_ms=100) as h:
        lease = await create_examples(h)
        due = await h.w.ocean.create_run(session_id="elsewhere", clog_id="other", input=1)
        path, body, *_ = EXAMPLES[name(op)]
        assert (await send(h, op, path.replace("LEASE", lease), body, {})).is_success
        left = await h.w.ocean.get_run(due.run_id)
        assert left is None or left.status is RunStatus.IDLE


async def test_a_worker_that_claims_pokes_too() -> None:
    async with app_world(more=[Script(clog_id="other")], poke_ms=100) as h:
        due = await h.w.ocean.create_run(session_id="s", clog_id="other", input=1)
        assert await h.claim() == []
        assert (await look(h.w, due.run_id)).status is RunStatus.IDLE


def test_only_pokes_and_sign_ins_do_not_poke() -> None:
    quiet = [name(op) for op in TABLE if op.repeat is not Repeat.SAFE and not op.pokes]
    assert quiet == ["POST /v1/advance", "POST /v1/session", "DELETE /v1/session"]


async def test_a_request_that_waited_pokes_other_due_runs() -> None:
    async with app_world(poke_ms=100) as h:
        due = await h.new_run({"done": 1})
        await h.post("/v1/runs?waitMs=100", {"sessionId": "s", "clogId": "c"})
        assert (await look(h.w, due)).status is RunStatus.DONE


async def test_reads_and_refused_requests_poke_nothing() -> None:
    async with app_world(poke_ms=100) as h:
        run_id = await h.new_run({"done": 1})
        await h.get_json(f"/v1/runs/{run_id}")
        await h.post("/v1/runs", {})
        assert (await look(h.w, run_id)).status is RunStatus.PENDING


async def test_runs_signalled_before_a_method_refused_are_advanced() -> None:
    clog = Clog("no")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Done() if tick.reason == "signal" else Ok()

    @clog.method
    async def refuse(tick: Tick, payload: None) -> None:
        await tick.signal(tick.run_id, "go")
        raise Refuse("not this way")

    async with app_world(more=[clog], poke_ms=100) as h:
        run = await h.w.ocean.create_run(session_id="s", clog_id="no")
        assert (await h.post(f"/v1/runs/{run.run_id}/call/refuse")).status_code == 409
        assert (await look(h.w, run.run_id)).status is RunStatus.DONE


async def test_requests_do_not_poke_when_that_is_switched_off(h: AppWorld) -> None:
    response = await h.post("/v1/runs", {"sessionId": "s", "clogId": "c", "input": {"done": 1}})
    assert (await look(h.w, response.json()["runId"])).status is RunStatus.PENDING


async def test_a_failed_poke_is_logged_and_has_no_effect_on_the_response(caplog: pytest.LogCaptureFixture) -> None:
    async with app_world(poke_ms=-1) as h:
        response = await h.post("/v1/runs", {"sessionId": "s", "clogId": "c"})
        assert response.status_code == 201
    assert "the poke after a request failed" in caplog.text


class Slow:
    """A clog whose handlers wait until they are let go, and the pokes of its instance."""

    def __init__(self) -> None:
        self.started, self.may_end = anyio.Event(), anyio.Event()
        self.clog = Script(self._slowly)

    async def _slowly(self, tick: Tick) -> Outcome:
        self.started.set()
        await self.may_end.wait()
        return Done()

    @staticmethod
    def pokes(w: World) -> int:
        return w.ocean.observed.pokes["request"].count


async def poke(w: World) -> None:
    await w.ocean.coordinator.poke_everything(100, "request")


async def test_pokes_during_another_poke_are_merged_into_one() -> None:
    slow = Slow()
    async with stage(slow.clog) as w:
        await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke, w)
            await slow.started.wait()
            for _ in range(5):
                tasks.start_soon(poke, w)
            await let_others_go_on(w)
            assert slow.pokes(w) == 1
            slow.may_end.set()
        assert slow.pokes(w) == 2
        await poke(w)
        assert slow.pokes(w) == 3


async def test_a_poke_during_another_begins_when_the_others_turn_ends() -> None:
    """It does not wait until the handlers of the other poke have ended."""
    slow = Slow()
    async with stage(slow.clog) as w:
        await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke, w)
            await slow.started.wait()
            for _ in range(2):
                tasks.start_soon(poke, w)
            await let_others_go_on(w)
            w.clock.advance(100)
            await let_others_go_on(w)
            assert slow.pokes(w) == 2
            slow.may_end.set()


async def test_a_slow_handler_does_not_delay_other_pokes() -> None:
    slow, quick = Slow(), Script(Done(), clog_id="quick")
    async with stage(slow.clog, quick) as w:
        first = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke, w)
            await slow.started.wait()
            late = await start(w, clog_id="quick", priority=9)
            w.clock.advance(100)
            while (await look(w, late)).status is not RunStatus.DONE:
                await poke(w)
                await let_others_go_on(w)
            assert (await look(w, first)).status is RunStatus.ACTIVE, "the turn is over, the handler is not"
            slow.may_end.set()
        assert (await look(w, first)).status is RunStatus.DONE


async def test_a_request_leaves_due_work_to_a_ticker() -> None:
    async with app_world(poke_ms=100) as h, ticker(h.w.ocean):
        run_id = await h.new_run()
        assert (await h.post(f"/v1/runs/{run_id}/signal", {"input": {"done": 1}})).status_code == 202
        with anyio.fail_after(20):
            while (await look(h.w, run_id)).status is not RunStatus.DONE:
                await let_others_go_on(h.w)
        pokes = h.w.ocean.observed.pokes
        assert pokes["ticker"].count
        assert "request" not in pokes


async def test_a_request_pokes_if_the_ticker_has_stopped_or_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    async with app_world(poke_ms=100) as h, ticker(h.w.ocean) as one:
        monkeypatch.setattr("ocean.ticker.MOST_AT_WORK", 0)
        run_id = await h.new_run()
        await h.post(f"/v1/runs/{run_id}/signal", {"input": {"done": 1}})
        assert (await look(h.w, run_id)).status is RunStatus.DONE
        one.stop()
        monkeypatch.undo()
        run_id = await h.new_run()
        await h.post(f"/v1/runs/{run_id}/signal", {"input": {"done": 1}})
        assert (await look(h.w, run_id)).status is RunStatus.DONE
        assert h.w.ocean.observed.pokes["request"].count == 2
