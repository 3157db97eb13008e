"""External clogs: leased by queue, in order, with all the facts of a tick; and renewed."""

from typing import Any

import pytest

from ocean import Clog, Continue, InvalidValue, Ok, RunStatus, UnknownClog, Wait
from tests.lifecycle.acting import Script, dump, log, look, stage, start
from tests.lifecycle.outside import LEASE_MS, lease, leases, outside

pytestmark = pytest.mark.anyio


async def test_a_worker_serves_all_queues_or_those_it_names() -> None:
    async with stage(outside()) as w:
        for queue in (None, "gpu", "cpu", "default"):
            await start(w, queue, clog_id="e", run_id=f"in-{queue}", **({"queue": queue} if queue else {}))
        assert (await look(w, "in-None")).queue == "default"
        assert await leases(w, queues=["nobody's"]) == []
        assert [each.run_id for each in await leases(w, queues=["gpu"])] == ["in-gpu"]
        assert {each.run_id for each in await leases(w, queues={"default", "x"})} == {"in-None", "in-default"}
        assert [each.run_id for each in await leases(w)] == ["in-cpu"]
        assert await leases(w) == []


async def test_a_queue_named_twice_is_one_queue() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e", queue="a")
        assert [each.run_id for each in await leases(w, queues=["a", "a"], limit=2)] == [run_id]


async def test_no_more_than_the_limit_are_leased_the_longest_due_first() -> None:
    async with stage(outside()) as w:
        made = []
        for _ in range(5):
            made.append(await start(w, clog_id="e"))
            w.clock.advance(1)
        assert [each.run_id for each in await w.ocean.claim_work("e", worker_id="w")] == made[:1]
        assert [each.run_id for each in await leases(w, limit=3)] == made[1:4]
        assert [each.run_id for each in await leases(w, limit=3)] == made[4:]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"lease_ms": 9}, "lease_ms must be an integer from 10 to 86400000, got 9"),
    ({"lease_ms": 86_400_001}, "lease_ms must be an integer from 10"),
    ({"lease_ms": "1000"}, "lease_ms must be an integer"),
    ({"limit": 0}, "limit must be an integer from 1 to 1000"),
    ({"limit": 1_001}, "limit must be an integer from 1 to 1000"),
    ({"limit": True}, "limit must be an integer"),
    ({"wait_ms": -1}, "wait_ms must be an integer from 0 to 60000"),
    ({"wait_ms": 60_001}, "wait_ms must be an integer from 0 to 60000"),
    ({"worker_id": ""}, "worker_id must be a non-empty string"),
    ({"worker_id": None}, "worker_id must be a non-empty string"),
    ({"clog_id": 3}, "clog_id must be a non-empty string"),
    ({"clog_id": "c"}, "clog 'c' must be external to lease its runs"),
    ({"queues": []}, "queues must name at least one queue"),
    ({"queues": "gpu"}, "queues must be a list of strings, got 'gpu'"),
    ({"queues": ["gpu", ""]}, "each of queues must be a non-empty string"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[f"{arguments}" for arguments, _ in WRONG])
async def test_a_wrong_claim_is_refused_by_name_and_takes_nothing(arguments: dict[str, Any], message: str) -> None:
    async with stage(outside(), Script()) as w:
        await start(w, clog_id="e")
        await start(w)
        before = await dump(w)
        with pytest.raises(InvalidValue, match=message):
            await leases(w, **arguments)
        assert await dump(w) == before


async def test_a_claim_of_an_unknown_clog_suggests_the_near_name() -> None:
    async with stage(outside("resize")) as w:
        with pytest.raises(UnknownClog, match=r"'resise'.*resize"):
            await leases(w, clog_id="resise")


async def test_a_queue_is_only_for_external_clogs() -> None:
    async with stage(outside(), Script()) as w:
        before = await dump(w)
        with pytest.raises(InvalidValue, match="`queue` must be absent: clog 'c' is not external"):
            await start(w, queue="gpu")
        for wrong in ("", 3):
            with pytest.raises(InvalidValue, match="queue must be a non-empty string"):
                await start(w, clog_id="e", queue=wrong)
        assert await dump(w) == before


async def test_a_further_creation_of_a_debounced_run_may_name_another_queue() -> None:
    settle: dict[str, Any] = {"clog_id": "e", "dedupe_key": "k", "debounce_ms": 100}
    async with stage(outside()) as w:
        run_id = await start(w, 1, **settle, queue="a")
        assert await start(w, 2, **settle, queue="b") == run_id
        assert (await look(w, run_id)).queue == "b"
        w.clock.advance(100)
        assert await leases(w, queues=["a"]) == []
        assert (await lease(w, queues=["b"])).input == 2


async def test_an_external_clog_has_methods_and_no_handlers() -> None:
    clog = Clog("e", external=True)
    for register, name in ((clog.on_advance, "on_advance"), (clog.on_end, "on_end")):
        with pytest.raises(InvalidValue, match=f"clog 'e' must not have an {name} handler: it is external"):
            register(lambda tick: Ok())
    with pytest.raises(InvalidValue, match="external must be True or False"):
        Clog("e", external="yes")  # type: ignore[arg-type]


async def test_a_lease_has_all_the_facts_of_a_tick() -> None:
    async with stage(outside(version="7")) as w:
        run_id = await start(w, {"n": 1}, clog_id="e", attributes={"who": "ann"}, actor="ann")
        await w.ocean.call_clog(run_id=run_id, method="put", payload={"old": 1})
        w.clock.advance(50)
        taken = await lease(w, lease_ms=700)
        assert (taken.run_id, taken.tick, taken.call, taken.reason) == (run_id, 1, 1, "created")
        assert (taken.input, [each.actor for each in taken.inputs]) == ({"n": 1}, ["ann"])
        assert (taken.worker_id, taken.expires_at, taken.row) == ("w1", w.clock.now() + 700, {"old": 1})
        assert taken.idempotency_key == f"{run_id}:1"
        run = taken.run
        assert (run.status, run.locked_by, run.attempt, run.attributes) == (RunStatus.ACTIVE, "w1", 0, {"who": "ann"})
        assert (await look(w, run_id)).lock_expires_at == taken.expires_at
        [tick] = await w.ocean.list_ticks(run_id)
        assert (tick.instance_id, tick.version, tick.epoch) == ("w1", "7", 1)


async def test_a_lease_of_everything_that_is_due_or_of_one_input_at_a_time() -> None:
    async with stage(outside(), outside("all", inputs="all")) as w:
        for clog_id, first, second in (("e", [1], [2]), ("all", [1, 2], [3])):
            run_id = await start(w, 1, clog_id=clog_id)
            await w.ocean.signal(run_id, 2, signal_id="two")
            taken = await lease(w, clog_id=clog_id)
            assert [each.body for each in taken.inputs] == first
            await w.ocean.signal(run_id, 3)
            assert (await w.ocean.complete_work(taken.lease_id, Ok())).status is RunStatus.PENDING
            again = await lease(w, clog_id=clog_id)
            assert (again.tick, again.reason, [each.body for each in again.inputs]) == (2, "signal", second)


async def test_a_tick_without_an_input_has_none() -> None:
    async with stage(outside()) as w:
        await start(w, 1, clog_id="e")
        await w.ocean.complete_work((await lease(w)).lease_id, Wait(for_ms=10))
        w.clock.advance(10)
        taken = await lease(w)
        assert (taken.reason, taken.inputs, taken.input) == ("wake", (), None)


async def test_the_idempotency_key_is_the_same_over_all_attempts_of_a_tick_and_never_reused() -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e", run_id="r")
        keys = []
        for _ in range(2):
            keys.append((await lease(w)).idempotency_key)
            w.clock.advance(LEASE_MS)
        await w.ocean.complete_work((await lease(w)).lease_id, Continue())
        assert keys == ["r:1", "r:1"]
        keys.append((await lease(w)).idempotency_key)
        await w.ocean.delete_run("r")
        await start(w, clog_id="e", run_id="r")
        first = await lease(w)
        w.clock.advance(LEASE_MS)
        again = await lease(w)
        assert first.idempotency_key == again.idempotency_key
        assert len({*keys, first.idempotency_key}) == 3
        assert first.lease_id != again.lease_id


async def test_a_renewal_moves_the_end_and_never_back() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        begin = w.clock.now()
        w.clock.advance(4_000)
        assert await w.ocean.renew_work(taken.lease_id) == begin + 14_000
        assert await w.ocean.renew_work(taken.lease_id, lease_ms=10) == begin + 14_000
        assert await w.ocean.renew_work(taken.lease_id, lease_ms=60_000) == begin + 64_000
        assert await w.ocean.renew_work(taken.lease_id) == begin + 64_000
        assert (await look(w, run_id)).lock_expires_at == begin + 64_000
        w.clock.advance(59_999)
        await w.ocean.advance()
        assert (await look(w, run_id)).status is RunStatus.ACTIVE
        w.clock.advance(1)
        await w.ocean.advance()
        assert (await look(w, run_id)).status is RunStatus.PENDING


async def test_events_of_a_renewal_are_in_the_log_at_once_and_survive_the_attempt() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.renew_work(taken.lease_id, events=[("progress", {"percent": 10}), ("token", "a")])
        events = [each for each in await log(w, run_id) if each.type in ("progress", "token")]
        assert [(e.type, e.payload, e.tick, e.call, e.actor, e.clog_id) for e in events] == [
            ("progress", {"percent": 10}, 1, 1, "w1", "e"),
            ("token", "a", 1, 1, "w1", "e"),
        ]
        [created] = await log(w, run_id, "run.created")
        assert {each.causation_id for each in events} == {created.id}
        w.clock.advance(LEASE_MS)
        again = await lease(w, worker_id="w2")
        await w.ocean.renew_work(again.lease_id, events=(each for each in [("progress", {"percent": 20})]))
        assert [(e.call, e.actor) for e in await log(w, run_id, "progress")] == [(1, "w1"), (2, "w2")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"events": [("fine", 1), ("run.done", 1)]}, "must not be one of the kernel's"),
        ({"events": [("fine", 1), ("made", object())]}, "payload must be JSON, got a value of type object"),
        ({"events": "made"}, "events must be a list"),
        ({"lease_ms": 9}, "lease_ms must be an integer from 10"),
        ({"lease_ms": 86_400_001}, "lease_ms must be an integer from 10"),
        ({"lease_id": ""}, "lease_id must be"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value)[:40],
)
async def test_a_wrong_renewal_is_refused_by_name_and_writes_nothing(arguments: dict[str, Any], message: str) -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e")
        whole: dict[str, Any] = {"lease_id": (await lease(w)).lease_id} | arguments
        w.clock.advance(5)
        before = await dump(w)
        with pytest.raises(InvalidValue, match=message):
            await w.ocean.renew_work(**whole)
        assert await dump(w) == before
