"""Expired leases, and leased runs with ends, pauses, keys, rates, children and direct calls."""

from typing import Any

import pytest

from ocean import Continue, Done, InvalidValue, Key, LeaseLost, Ok, RetryPolicy, RunStatus, Tick
from tests.lifecycle.acting import Script, log, look, stage, start, start_idle, types
from tests.lifecycle.outside import LEASE_MS, lease, leases, outside

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("by_name", [False, True], ids=["any poke", "a poke of the run"])
async def test_a_lapsed_lease_is_given_back_by_any_poke_and_counts_as_an_attempt(by_name: bool) -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        taken = await lease(w)
        other_instance = await w.instance()
        w.clock.advance(LEASE_MS - 1)
        poked = await other_instance.advance()
        assert (poked.next_wake_at, (await look(w, run_id)).status) == (taken.expires_at, RunStatus.ACTIVE)
        w.clock.advance(1)
        poked = await other_instance.advance(run_id=run_id if by_name else None)
        assert (poked.outcomes, poked.due_now, poked.unclaimable, poked.next_wake_at) == ((), 0, 1, None)
        run = await look(w, run_id)
        assert (run.status, run.attempt, run.locked_by, run.wake_at) == (RunStatus.PENDING, 1, None, None)
        [back] = await log(w, run_id, "tick.given_back")
        assert (back.tick, back.call) == (1, 1)
        assert back.payload == {
            "because": "lease_lapsed",
            "attempt": 1,
            "status": "pending",
            "epoch": 1,
            "instance": "w1",
        }
        again = await lease(w, worker_id="w2")
        assert (again.tick, again.call, again.input, again.run.attempt) == (1, 2, 1, 1)
        await w.ocean.complete_work(again.lease_id, Done())
        assert (await look(w, run_id)).attempt == 0


async def test_a_claim_takes_back_what_has_lapsed_and_leases_it_at_once() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        await lease(w)
        w.clock.advance(LEASE_MS)
        again = await lease(w, worker_id="w2")
        assert (again.run_id, again.call, again.run.attempt) == (run_id, 2, 1)
        assert "tick.given_back" in await types(w, run_id)


async def test_more_lapsed_leases_than_one_round_takes_back_are_all_given_back_by_one_poke() -> None:
    async with stage(outside()) as w:
        for _ in range(250):
            await start(w, clog_id="e")
        assert len(await leases(w, limit=1_000)) == 250
        w.clock.advance(LEASE_MS)
        other_instance = await w.instance()
        assert (await other_instance.advance()).unclaimable == 250
        assert len(await leases(w, limit=1_000)) == 250


async def test_the_last_attempt_ends_the_run_without_any_worker_alive() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e", retry=RetryPolicy(max_attempts=2))
        for _ in range(2):
            taken = await lease(w, worker_id="w-dead")
            w.clock.advance(LEASE_MS)
        other_instance = await w.instance()
        assert (await other_instance.advance()).outcomes == ()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == (RunStatus.FAILED, 2)
        assert run.error is not None
        assert (run.error["code"], run.error["details"]) == ("crashed", {"attempt": 2})
        assert "w-dead stopped" in run.error["message"]
        with pytest.raises(LeaseLost, match=r"w-dead \(the run is failed\)"):
            await w.ocean.complete_work(taken.lease_id, Done())


async def test_without_a_limit_of_attempts_it_is_given_back_for_ever() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e", retry=RetryPolicy(max_attempts=None))
        for attempt in range(12):
            assert (await lease(w)).run.attempt == attempt
            w.clock.advance(LEASE_MS)
            await w.ocean.advance()
        assert ((await look(w, run_id)).status, (await look(w, run_id)).attempt) == (RunStatus.PENDING, 12)


async def test_a_deadline_ends_a_leased_run() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e", deadline_at=w.clock.now() + 100)
        await lease(w)
        assert (await w.ocean.advance()).next_wake_at == w.clock.now() + 100
        w.clock.advance(100)
        await (await w.instance()).advance()
        run = await look(w, run_id)
        assert (run.status, run.error and run.error["code"]) == (RunStatus.FAILED, "deadline_exceeded")


async def test_a_paused_run_keeps_its_worker_and_is_given_back_after_the_pause() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e", retry=RetryPolicy(max_attempts=2))
        taken = await lease(w)
        await w.ocean.pause_run(run_id)
        w.clock.advance(LEASE_MS)
        assert (await w.ocean.advance()).next_wake_at is None
        assert await leases(w, worker_id="w2") == []
        assert (await look(w, run_id)).status is RunStatus.ACTIVE
        await w.ocean.renew_work(taken.lease_id)
        await w.ocean.complete_work(taken.lease_id, Continue(2))
        assert await leases(w) == []
        await w.ocean.resume_run(run_id)
        assert (await lease(w)).input == 2
        await w.ocean.pause_run(run_id)
        w.clock.advance(LEASE_MS)
        await w.ocean.advance()
        await w.ocean.resume_run(run_id)
        assert ((await look(w, run_id)).status, (await look(w, run_id)).attempt) == (RunStatus.ACTIVE, 0)
        await w.ocean.advance()
        assert ((await look(w, run_id)).status, (await look(w, run_id)).attempt) == (RunStatus.PENDING, 1)


async def test_a_paused_clog_leases_nothing_and_takes_completions_and_lapsed_leases() -> None:
    async with stage(outside()) as w:
        first, second, third = [await start(w, clog_id="e", run_id=f"r{i}", queue="q") for i in range(3)]
        done, silent = await leases(w, limit=2)
        await w.ocean.pause_clog("e")
        assert await leases(w) == await leases(w, queues=["q"]) == []
        await w.ocean.complete_work(done.lease_id, Done())
        w.clock.advance(LEASE_MS)
        await w.ocean.advance()
        assert [(await look(w, each)).status for each in (done.run_id, silent.run_id)] == ["done", "pending"]
        await w.ocean.resume_clog("e")
        assert {each.run_id for each in await leases(w)} == {first, second, third} - {done.run_id}


async def test_a_poke_never_calls_an_external_run_and_counts_it_as_unclaimable() -> None:
    async with stage(outside(), Script(Done())) as w:
        outer, inner = await start(w, clog_id="e"), await start(w)
        poked = await w.ocean.advance()
        assert [each.run_id for each in poked.outcomes] == [inner]
        assert (poked.due_now, poked.unclaimable) == (0, 1)
        assert (await w.ocean.advance(run_id=outer)).outcomes == ()
        assert (await w.ocean.advance(clog_ids=["e"])).outcomes == ()
        assert (await look(w, outer)).status is RunStatus.PENDING


async def test_explain_reports_a_missing_worker_the_lease_holder_and_a_lapsed_lease() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e", queue="gpu")
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert hold.code == "needs_worker"
        assert "claim_work, from queue 'gpu'" in hold.message
        shown = (await w.ocean.advance(run_id=run_id, dry_run=True)).dry_run
        assert shown is not None
        assert (shown.holds, shown.outcome) == ((hold,), None)
        taken = await lease(w)
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert (hold.code, hold.holder, hold.until) == ("locked", "w1", taken.expires_at)
        w.clock.advance(LEASE_MS)
        assert (await w.ocean.explain(run_id)).holds == ()
        await w.ocean.advance()
        assert [each.code for each in (await w.ocean.explain(run_id)).holds] == ["needs_worker"]


async def test_signals_and_direct_calls_reach_a_leased_run() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        taken = await lease(w)
        receipt = await w.ocean.signal(run_id, 2, signal_id="s")
        assert receipt.status is RunStatus.ACTIVE
        assert await w.ocean.call_clog(run_id=run_id, method="look") == [False, None]
        await w.ocean.call_clog(run_id=run_id, method="put", payload=1)
        await w.ocean.complete_work(taken.lease_id, Ok())
        again = await lease(w)
        assert (again.input, again.row) == (2, 1)
        w.clock.advance(LEASE_MS)
        third = await lease(w)
        assert (third.input, third.inputs[0].signal_id) == (2, "s")


async def test_an_idle_run_is_leased_once_it_is_signalled() -> None:
    async with stage(outside()) as w:
        run_id = await start_idle(w, clog_id="e")
        assert await leases(w) == []
        await w.ocean.signal(run_id, "now")
        await w.ocean.signal(run_id, "later", deliver_at=w.clock.now() + 100)
        taken = await lease(w)
        assert taken.input == "now"
        assert (await w.ocean.complete_work(taken.lease_id, Ok())).status is RunStatus.WAITING
        assert await leases(w) == []
        w.clock.advance(100)
        assert (await lease(w)).input == "later"


async def _parent_acts(tick: Tick) -> Any:
    if tick.reason == "child":
        assert tick.child is not None
        return Done([tick.child.status, tick.child.output, tick.child.error and tick.child.error["code"]])
    await tick.create_run(clog_id="e", input=1, notify_parent=True, queue="gpu", retry=RetryPolicy(max_attempts=1))
    return Ok()


@pytest.mark.parametrize("dies", [False, True], ids=["done", "its worker dies"])
async def test_an_external_child_notifies_its_parent_how_it_ended(dies: bool) -> None:
    async with stage(Script(_parent_acts), outside()) as w:
        parent = await start(w)
        await w.drain()
        taken = await lease(w, queues=["gpu"])
        assert taken.run.parent_run_id == parent
        if dies:
            w.clock.advance(LEASE_MS)
        else:
            await w.ocean.complete_work(taken.lease_id, Done({"n": 1}))
        await w.drain()
        expected = ["failed", None, "crashed"] if dies else ["done", {"n": 1}, None]
        assert await w.ocean.result(parent) == expected


async def test_a_leased_child_ends_with_its_parent() -> None:
    async def act(tick: Tick) -> Any:
        await tick.create_run(clog_id="e", input=1, on_parent_end="cancel")
        return Ok()

    async with stage(Script(act), outside()) as w:
        parent = await start(w)
        await w.drain()
        taken = await lease(w)
        await w.ocean.cancel_run(parent)
        assert (await look(w, taken.run_id)).status is RunStatus.FAILED
        with pytest.raises(LeaseLost):
            await w.ocean.complete_work(taken.lease_id, Done())


@pytest.mark.parametrize("hold", ["tick", "run"])
async def test_a_lease_holds_its_concurrency_keys_until_it_is_completed_or_given_back(hold: Any) -> None:
    async with stage(outside()) as w:
        keys = [Key("gpu-0", hold=hold)]
        runs = {await start(w, clog_id="e", concurrency_keys=keys) for _ in range(3)}
        first = await lease(w)
        assert await leases(w, worker_id="w2") == []
        assert ((await w.ocean.get_key("gpu-0")).in_use, (await w.ocean.get_key("gpu-0")).parked) == (1, 2)
        await w.ocean.complete_work(first.lease_id, Done())
        second = await lease(w, worker_id="w2")
        w.clock.advance(LEASE_MS)
        await w.ocean.advance()
        assert (await w.ocean.get_key("gpu-0")).in_use == (0 if hold == "tick" else 1)
        third = await lease(w, worker_id="w3")
        if hold == "run":
            assert third.run_id == second.run_id, "it is its own until its life ends"
        await w.ocean.complete_work(third.lease_id, Done())
        last = await lease(w)
        assert {first.run_id, third.run_id, last.run_id} == runs
        await w.ocean.cancel_run(last.run_id)
        assert (await w.ocean.get_key("gpu-0")).in_use == 0


async def test_a_rate_delays_external_runs_too() -> None:
    async with stage(outside()) as w:
        rate: dict[str, Any] = {"rate_key": "api", "rate_limit": 1, "rate_per_ms": 1_000}
        first, second = [await start(w, clog_id="e", **rate) for _ in range(2)]
        assert (await lease(w)).run_id == first
        codes = [each.code for each in (await w.ocean.explain(second)).holds]
        assert codes == ["needs_worker", "rate_limited"]
        w.clock.advance(1_000)
        assert (await lease(w)).run_id == second


async def test_a_retry_as_new_goes_to_the_queue_of_the_failed_one() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 5, clog_id="e", queue="gpu")
        await w.ocean.cancel_run(run_id)
        new = await w.ocean.retry_run(run_id)
        taken = await lease(w, queues=["gpu"])
        assert (taken.run_id, taken.input) == (new.run_id, 5)


async def test_a_worker_needs_no_instance_that_has_the_clog() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        other_instance = await w.instance()
        (taken,) = await other_instance.claim_work("e", worker_id="w1")
        await other_instance.renew_work(taken.lease_id)
        assert (await other_instance.complete_work(taken.lease_id, Done(1))).status is RunStatus.DONE
        assert await w.ocean.result(run_id) == 1


async def test_a_clog_that_is_no_longer_external_takes_over_leased_runs() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        taken = await lease(w)
        home = await w.instance([Script(Done("here"), clog_id="e")])
        with pytest.raises(InvalidValue, match="must be external"):
            await leases(w)
        assert (await home.advance()).outcomes == ()
        w.clock.advance(LEASE_MS)
        assert [each.outcome for each in await w.drain(home)] == ["done"]
        with pytest.raises(LeaseLost):
            await w.ocean.complete_work(taken.lease_id, Done("there"))
        assert await w.ocean.result(run_id) == "here"
