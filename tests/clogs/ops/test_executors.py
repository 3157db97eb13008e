"""Workers and their executors: results, refusals, and that a crash repeats no effect."""

import sys
from typing import Any

import anyio
import pytest

from clogs.ops import Executor, Ops, OpsSettings, OpsStepFailed, Task, Worker, clogs, shipped
from ocean import Failed, FetchResponse, Ocean
from ocean.testing import Outside, World, crash_everywhere
from tests.clogs.ops.kit import EVERYTHING, MINUTE_MS, Loop, loop
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

ECHO, SLEEP = "/bin/echo", "/bin/sleep"


async def done(ops: Loop, step: dict[str, Any], shell: tuple[str, ...] = (), **more: Any) -> Any:
    """Create a mission of one step, claim the step, and return it."""
    await ops.mission(step)
    return await Worker(ops.ops, shipped(shell), **more).work_once()


async def test_noop_succeeds_and_steps_of_others_are_left_alone() -> None:
    async with loop() as ops:
        step = await done(ops, {"kind": "x", "executor": "noop"})
        assert (step["status"], step["result"]) == ("succeeded", {})
        assert await done(ops, {"kind": "noop"}) is None, "its executor is openclaw"
        step = await Worker(ops.ops, queues=["openclaw"]).work_once()
        assert step is not None
        assert step["status"] == "succeeded", "found by its kind"
        await ops.mission({"kind": "unheard of"})
        step = await Worker(ops.ops, queues=["openclaw"]).work_once()
        assert step is not None
        assert (step["status"], step["last_error"]) == (
            "failed",
            "this worker has no executor for 'unheard of'; register one under that name",
        )


def request(**params: Any) -> dict[str, Any]:
    return {"kind": "call", "executor": "http", "params": {"url": "https://x.example/do", **params}}


async def test_http_sends_the_idempotency_key_of_the_step_and_fails_by_status() -> None:
    outside = Outside()
    outside.answer("POST https://x.example/do", {"fine": True})
    outside.answer("GET https://x.example/do", FetchResponse(503, {"content-type": "text/plain"}, b"busy", ""))
    async with loop(outside=outside) as ops:
        step = await done(ops, request(json={"a": 1}))
        assert (step["status"], step["result"]) == ("succeeded", {"status": 200, "body": {"fine": True}})
        assert [(call.body, call.key) for call in outside.calls] == [({"a": 1}, step["id"])]
        failed = await done(ops, request())
        assert (failed["status"], failed["last_error"]) == ("failed", "the server responded with 503")
        assert failed["result"] == {"status": 503, "body": "busy"}
        for wrong in (request(colour="red"), request(body=7), request(headers={"a": 1}), request(timeout_seconds=0)):
            assert "params" in (await done(ops, wrong))["last_error"]


async def test_http_does_not_reach_into_this_machine() -> None:
    async with loop() as ops:
        step = await done(ops, request(url="http://127.0.0.1:1/admin"))
        assert step["status"] == "failed"
        assert "127.0.0.1" in step["last_error"]


def shell(command: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"kind": "run", "executor": "shell-allowlist", "params": {"command": command, "args": list(args), **more}}


async def test_shell_allowlist_runs_listed_programs_and_no_shell() -> None:
    async with loop() as ops:
        step = await done(ops, shell(ECHO, "a b", "$HOME", "; rm -rf /"), (ECHO,))
        assert step["result"] == {"exit_code": 0, "stdout": "a b $HOME ; rm -rf /\n", "stderr": ""}
        for refused in ("echo", "/bin/../bin/echo", "/bin/rm", "/bin/echo x", "sh"):
            step = await done(ops, shell(refused), (ECHO,))
            assert "OPS_SHELL_ALLOWLIST" in step["last_error"]
        step = await done(ops, shell(sys.executable, "-c", "import sys, os; print(sorted(os.environ)); sys.exit(3)"),
                          (sys.executable,))  # fmt: skip
        assert step["last_error"].endswith("exit code 3")
        assert step["result"]["stdout"].startswith("['LC_CTYPE', 'OPS_IDEMPOTENCY_KEY', 'PATH']")
        step = await done(ops, shell(sys.executable, "-c", "print('x' * 200_000)"), (sys.executable,))
        assert (step["status"], len(step["result"]["stdout"])) == ("succeeded", 65_536)
        assert (await done(ops, shell(ECHO, timeout_seconds=0), (ECHO,)))["status"] == "failed"
        assert "cannot be started" in (await done(ops, shell("/bin/none"), ("/bin/none",)))["last_error"]
    with pytest.raises(ValueError, match="must be an absolute path"):
        shipped(["echo"])


@pytest.mark.sqlite
async def test_a_program_that_takes_too_long_is_stopped() -> None:
    async with loop() as ops:
        failures: list[OpsStepFailed] = []

        async def run() -> None:
            step = {"params": {"command": SLEEP, "args": ["1000"], "timeout_seconds": 60}}
            try:
                await shipped([SLEEP])["shell-allowlist"](ops.w.ocean, Task(step, "key"))
            except OpsStepFailed as failed:
                failures.append(failed)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            while not failures:
                ops.w.clock.advance(MINUTE_MS)
                await anyio.lowlevel.checkpoint()
        assert str(failures[0]) == f"{SLEEP} took longer than 60 seconds and was stopped"
        assert failures[0].result["exit_code"] == -9


async def test_a_worker_renews_during_the_work_and_stops_it_when_the_lease_is_lost() -> None:
    async with loop() as ops:
        await ops.mission({"kind": "slow"})
        begun, ended = anyio.Event(), anyio.Event()

        async def slow(ocean: Ocean, task: Task) -> Any:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

        worker = Worker(ops.ops, {"slow": slow}, queues=["openclaw"], lease_minutes=3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.work_once)
            await begun.wait()
            (first,) = await ops.rows("ops_mission_steps")
            ops.w.clock.advance(MINUTE_MS)
            while (await ops.rows("ops_mission_steps"))[0]["lease_expires_at"] == first["lease_expires_at"]:
                await anyio.lowlevel.checkpoint()
            # The worker may see this later than the test does, and waits for its next renewal from then on.
            await until(lambda: any(at == ops.w.clock.now() + MINUTE_MS for at, *_ in ops.w.clock._timers))
            (run,) = await ops.rows("ops_action_runs")
            await ops.w.ocean.cancel_run(run["id"])
            ops.w.clock.advance(MINUTE_MS)
            await ended.wait()
        (run,) = await ops.rows("ops_action_runs")
        assert run["status"] == "failed"


async def test_registered_executors_report_what_they_raise() -> None:
    async def picky(ocean: Ocean, task: Task) -> Any:
        if task.params.get("bug"):
            raise KeyError("oops")
        raise OpsStepFailed("not today", {"tried": task.idempotency_key})

    executors: dict[str, Executor] = {"picky": picky}
    async with loop() as ops:
        for params, error in (({}, "not today"), ({"bug": True}, "KeyError: 'oops'")):
            await ops.mission({"kind": "x", "executor": "picky", "params": params})
            step = await Worker(ops.ops, executors).work_once()
            assert step is not None
            assert (step["status"], step["last_error"]) == ("failed", error)


async def test_a_worker_that_dies_between_effect_and_record_has_one_effect() -> None:
    outside = Outside()
    outside.answer("POST https://x.example/do", {"receipt": 7})
    async with loop(outside=outside) as ops:
        mission = await ops.mission(request(json={"pay": 1}))
        step = await ops.claim(minutes=1)
        await shipped()["http"](ops.w.ocean, Task(step, step["id"]))  # the effect; then the worker dies
        ops.w.clock.advance(MINUTE_MS)
        again = await Worker(ops.ops).work_once()
        assert again is not None
        assert (again["status"], again["failure_count"]) == ("succeeded", 1)
        assert (len(outside.calls), len(outside.effects())) == (2, 1), "requested twice, under one key"
        assert await ops.mission_status(mission) == "succeeded"


async def dying(w: World) -> None:
    """A mission fails at its only step."""
    ops = Ops(w.ocean, OpsSettings())
    await ops.put_policy([EVERYTHING])
    await w.ocean.call_clog(
        clog_id="ops-proposals", session_id="ops", method="create",
        payload={"dedupe_key": "k", "source": "api", "template": {"steps": [{"kind": "a"}]}},
    )  # fmt: skip
    await w.drain()
    (lease,) = await w.ocean.claim_work("ops-attempts", "w")
    await w.ocean.complete_work(lease.lease_id, Failed("no"))
    await w.drain()


async def reacting(w: World) -> None:
    """An event becomes a reaction and a proposal, under a cooldown and a cap."""
    ops = Ops(w.ocean, OpsSettings())
    pattern = {"id": "p", "event_type": "go", "template": {"steps": [{"kind": "a"}]}, "cooldown_minutes": 5}
    caps = {"key": "proposal_caps", "value": {"daily_limit": 1}}
    await ops.put_policy([caps, {"key": "reaction_matrix", "value": [pattern]}])
    events: list[Any] = [{"type": "go", "data": {}, "mission_id": None, "dedupe_key": "e"}]
    await w.ocean.call_clog(clog_id="ops-events", session_id="ops", method="insert", payload=events)
    await w.drain()
    await ops.call("ops-heart", "totals_since_last_read", "heartbeat")


@pytest.mark.sqlite
@pytest.mark.parametrize("scenario", [dying, reacting])
async def test_a_crash_at_any_place_of_any_tick_changes_nothing(scenario: Any) -> None:
    report = await crash_everywhere(clogs(OpsSettings()), scenario)
    assert len(report.killed) > 20
