"""External workers are killed, alone and among others: no lease is lost, none is completed twice."""

import random
import select
from collections import Counter
from pathlib import Path

import pytest

from ocean import Done, LeaseLost, Ocean, RetryPolicy, RunStatus
from tests.crash.ferry_clog import noted
from tests.crash.places import Place, url_of
from tests.crash.porter_worker import COMPLETED, LEASED, LOST, POINTS, RENEWED, porter
from tests.crash.processes import Start, Victim

pytestmark = pytest.mark.anyio

LEASE_MS = 200
LAPSE_MS = 5_000
FOR_EVER = RetryPolicy(max_attempts=None)


def killed_at(start: Start, db: Place, point: str, run: str) -> Victim:
    """A worker that was alone and was killed at a point of its lease."""
    victim = start("worker", db, LEASE_MS, 1, "each")
    for passed in POINTS[: POINTS.index(point)]:
        assert victim.read_line() == f"{passed} {run}"
        victim.go_on()
    assert victim.read_line() == f"{point} {run}"
    victim.kill()
    return victim


@pytest.mark.parametrize("point", [LEASED, RENEWED])
async def test_a_run_whose_only_worker_is_killed_is_taken_back_and_finally_ended_by_any_poke(
    point: str, db: Place, history: Path, start: Start
) -> None:
    url = url_of(db)
    async with Ocean.open(url, clogs=[porter()]) as ocean, Ocean.open(url) as poker:
        policy = RetryPolicy(max_attempts=2)
        run = (await ocean.create_run(session_id="s", clog_id="porter", input={"cargo": 7}, retry=policy)).run_id
        first = killed_at(start, db, point, run)
        held = await ocean.get_run(run)
        assert held is not None
        assert (held.status, held.locked_by) == (RunStatus.ACTIVE, first.instance)

        poked = await poker.advance(run_id=run, budget_ms=LAPSE_MS)
        back = await ocean.get_run(run)
        assert back is not None
        assert (poked.outcomes, poked.unclaimable) == ((), 1)
        assert (back.status, back.attempt, back.locked_by) == (RunStatus.PENDING, 1, None)

        second = killed_at(start, db, point, run)
        poked = await poker.advance(run_id=run, budget_ms=LAPSE_MS)
        ended = await ocean.get_run(run)
        assert ended is not None
        assert (poked.outcomes, poked.unclaimable, poked.next_wake_at) == ((), 0, None)
        assert (ended.status, ended.attempt) == (RunStatus.FAILED, 2)
        assert ended.error is not None
        assert (ended.error["code"], ended.error["details"]) == ("crashed", {"attempt": 2})
        assert second.instance in ended.error["message"]

        (_, _, key, lease_id), (_, _, same_key, _) = noted(history, LEASED)
        assert key == same_key == f"{run}:1"
        with pytest.raises(LeaseLost):
            await ocean.complete_work(lease_id, Done())
        events = await ocean.read_events(run)
        assert [event.type for event in events if event.type.startswith("tick.")] == [
            "tick.given_back",
            "tick.restarted",
        ]


async def test_a_worker_killed_after_its_commit_leaves_nothing_to_do_and_its_result_is_stored(
    db: Place, history: Path, start: Start
) -> None:
    async with Ocean.open(url_of(db), clogs=[porter()]) as ocean:
        run = (await ocean.create_run(session_id="s", clog_id="porter", input={"cargo": 7})).run_id
        killed_at(start, db, COMPLETED, run)
        poked = await ocean.advance()
        assert (poked.unclaimable, poked.next_wake_at) == (0, None)
        assert await ocean.result(run) == {"cargo": 7}
        [(_, _, _, lease_id)] = noted(history, COMPLETED)
        row = {"cargo": 7}
        again = await ocean.complete_work(lease_id, Done(row), row=row, events=[("carried", row)])
        assert (again.outcome, again.status) == ("done", RunStatus.DONE)
        assert len(await ocean.read_events(run, types=["carried"])) == 1


async def test_sixty_leases_are_done_once_each_while_workers_are_killed(db: Place, history: Path, start: Start) -> None:
    kills, heard_of, chance = 12, 0, random.Random(11)
    async with Ocean.open(url_of(db), clogs=[porter()]) as ocean:
        cargo: dict[str, int] = {}
        for i in range(60):
            run = await ocean.create_run(
                session_id="s", clog_id="porter", input={"cargo": i}, queue=f"q{i % 2}", retry=FOR_EVER
            )
            cargo[run.run_id] = i

        def worker() -> Victim:
            return start("worker", db, LEASE_MS, 2, "each" if kills else "free")

        crew = {worker() for _ in range(3)}
        next_kill = chance.randint(3, 10)
        while crew:
            ready, _, _ = select.select(list(crew), [], [], 30)
            assert ready
            ready_victim: Victim = ready[0]
            if not ready_victim.read_line():
                crew.remove(ready_victim)
                continue
            heard_of += 1
            if kills and heard_of >= next_kill:
                ready_victim.kill()
                kills -= 1
                next_kill = heard_of + chance.randint(3, 10)
                crew.remove(ready_victim)
                crew.add(worker())
            else:
                ready_victim.go_on()

        assert kills == 0
        for run_id, amount in cargo.items():
            info = await ocean.get_run(run_id)
            assert info is not None
            assert (info.status, info.output) == (RunStatus.DONE, {"cargo": amount})
            log = await ocean.read_events(run_id, limit=1_000)
            counts = Counter(event.type for event in log)
            assert (counts["tick.committed"], counts["carried"], counts["run.done"]) == (1, 1, 1)
            assert counts["tick.given_back"] == counts["tick.restarted"]
            [tick] = await ocean.list_ticks(run_id)
            assert (tick.calls, tick.epoch) == (1 + counts["tick.restarted"],) * 2
        completed = Counter(run_id for run_id, *_ in noted(history, COMPLETED))
        assert completed == dict.fromkeys(cargo, 1), "each completion is reported once"
        keys = {(run_id, key) for run_id, _, key, _ in noted(history, LEASED)}
        assert keys == {(run_id, f"{run_id}:1") for run_id in cargo}
        lost = {(run_id, call) for run_id, call, *_ in noted(history, LOST)}
        assert lost.isdisjoint((run_id, call) for run_id, call, *_ in noted(history, COMPLETED))
        assert len(noted(history, LEASED)) > len(cargo), "some were leased again"
