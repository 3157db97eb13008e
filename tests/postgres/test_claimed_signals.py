"""A signal to an idle run is claimed as it arrives, with the effect of a signal followed by a claim."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimAsk
from ocean.kernel.store.runs import Request
from ocean.state.effects import Debounce
from ocean.state.outcomes import Done, Outcome, Wait
from ocean.state.records import Claim, ClogRecord
from ocean.stores.postgres.store import PostgresStore
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, LOCK_MS, OTHER_CLOG, a_run, a_signal, an_ask, claim, commit_of, pending
from tests.postgres.test_groups import Scene
from tests.stores.group_verbs import Claims, Item, answer

LATER = 1_900_000_000_000
PLAIN = ["idle", "urgent", "described", "waiting", "deadline", "parent", "elsewhere", "worked", "timed"]
OTHERS = ["known", "delayed", "paused", "keyed", "done", "ending", "at work", "asleep", "outside", "nobody"]
CALLED = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'ocean_claim_due'"


async def arrange(store: Store, clock: ManualClock) -> Claims:
    """Nothing is due or overdue."""
    await store.register_clogs(
        [
            ClogRecord(CLOG, "1", False),
            ClogRecord(OTHER_CLOG, "2", True),
            ClogRecord("outside", "1", False, external=True),
        ]
    )
    outcomes: dict[str, Outcome] = {"waiting": Wait(until=LATER), "done": Done(), "worked": Wait(for_ms=10)}
    for run_id, outcome in outcomes.items():
        await pending(store, run_id)
        await store.commit_tick(commit_of(await claim(store, run_id), outcome))
    clock.advance(10)
    await store.commit_tick(commit_of(await claim(store, "worked"), Wait(until=LATER)))
    await pending(store, "ending", clog_id=OTHER_CLOG)
    await store.cancel_run("ending", None, None, None)
    await pending(store, "at work")
    claims = {run_id: await claim(store, run_id) for run_id in ("ending", "at work")}
    given: dict[str, dict[str, Any]] = {
        "idle": {},
        "urgent": {"priority": 0},
        "described": {"attributes": {"size": 1, "name": "x"}},
        "deadline": {"deadline_at": LATER},
        "parent": {},
        "elsewhere": {"clog_id": OTHER_CLOG},
        "timed": {},
        "known": {},
        "paused": {},
        "keyed": {"concurrency_keys": ["k"]},
        "asleep": {},
        "outside": {"clog_id": "outside"},
    }
    for run_id, options in given.items():
        await store.create_run(a_run(run_id, **options), None)
    await store.create_run(a_run("child", parent_run_id="parent", notify_parent=True), None)
    await store.deliver_signal(a_signal("timed", deliver_at=LATER), None)
    await store.deliver_signal(a_signal("known", 1, signal_id="x", deliver_at=LATER), None)
    await store.set_run_paused("paused", True, None, None)
    delayed = a_run("delayed", input=1, dedupe_key="d")
    await store.create_run(delayed._replace(is_id_given=False, debounce=Debounce(LOCK_MS * 2, None)), None)
    # Becomes due in `time_passes`.
    await store.deliver_signal(a_signal("asleep", deliver_at=clock.now() + LOCK_MS), None)
    return claims


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    made.arrange(arrange)
    made.runner.run(made.db.execute("SET track_functions = 'all'"))
    yield made
    made.close()


async def nothing(store: PostgresStore) -> None:
    """What happens before the signal."""


async def another_is_due(store: PostgresStore) -> None:
    await pending(store, "other")


async def a_deadline_has_passed(store: PostgresStore) -> None:
    await store.pool.read(
        lambda db: db.execute("UPDATE runs SET deadline_at = 1, due_at = 1 WHERE run_id = 'elsewhere'")
    )


async def its_clog_is_paused(store: PostgresStore) -> None:
    await store.set_clog_paused(CLOG, True, None, None)


async def time_passes(store: PostgresStore) -> None:
    await store.pool.read(lambda db: db.execute(f"UPDATE ocean_test_clock SET now = now + {LOCK_MS}"))


async def time_goes_back(store: PostgresStore) -> None:
    await store.pool.read(lambda db: db.execute("UPDATE ocean_test_clock SET now = now - 5"))


Before = Callable[[PostgresStore], Awaitable[None]]
BEFORE: list[Before] = [another_is_due, a_deadline_has_passed, its_clog_is_paused, time_passes, time_goes_back]


async def claimed(scene: Scene, item: Item, ask: ClaimAsk, before: Before, *, piggyback: bool) -> tuple[Any, ...]:
    """The receipt of a signal, what is claimed then, all rows, and how often due runs were searched for."""

    async def use(store: PostgresStore) -> list[object]:
        await before(store)
        looks = await scene.db.fetchval(CALLED) or 0
        claims: list[Claim] = []
        if piggyback:
            assert store.order_claims(ask, claims.extend) is not None
        receipt = await answer(item, store, scene.claims)
        looks = (await scene.db.fetchval(CALLED) or 0) - looks
        return [receipt, claims or await store.claim_due(ask), looks]

    (receipt, claims, looks), rows = await scene.visited(use)
    return receipt, claims, rows, looks


def compare(scene: Scene, item: Item, ask: ClaimAsk, before: Before = nothing) -> int:
    async def both() -> int:
        receipt, claims, rows, looks = await claimed(scene, item, ask, before, piggyback=True)
        expected_receipt, expected_claims, expected_rows, _ = await claimed(scene, item, ask, before, piggyback=False)
        assert receipt == expected_receipt
        assert claims == expected_claims
        for name in expected_rows:
            assert rows[name] == expected_rows[name], name
        assert isinstance(looks, int)
        return looks

    return scene.runner.run(both())


def to(run_id: str, body: int = 1, request: Request | None = None, **given: Any) -> Item:
    signal = replace(a_signal(run_id, body), **given)
    return lambda store, _: store.deliver_signal(signal, request)


@pytest.mark.parametrize("run_id", PLAIN)
def test_an_idle_run_is_claimed_with_its_signal(scene: Scene, run_id: str) -> None:
    assert compare(scene, to(run_id), an_ask()) == 0
    assert compare(scene, to(run_id, signal_id="x", actor="ada", deliver_at=0), an_ask(takes_all_inputs=True)) == 0


@pytest.mark.parametrize("run_id", OTHERS)
def test_a_run_that_is_not_idle_is_signalled_as_usual(scene: Scene, run_id: str) -> None:
    for signal in (to(run_id), to(run_id, signal_id="x"), to(run_id, if_idle=True)):
        compare(scene, signal, an_ask())


def test_the_receipt_of_a_signal_with_a_request_key_is_stored(scene: Scene) -> None:
    compare(scene, to("idle", request=Request("k", "h")), an_ask())


@pytest.mark.parametrize(
    "signal", [to("idle", deliver_at=LATER), to("waiting", if_idle=True)], ids=["later", "if idle"]
)
def test_a_signal_that_makes_nothing_due_claims_nothing(scene: Scene, signal: Item) -> None:
    compare(scene, signal, an_ask())


@pytest.mark.parametrize("before", BEFORE, ids=lambda before: before.__name__)
def test_other_due_overdue_and_paused_runs_are_considered(scene: Scene, before: Before) -> None:
    assert compare(scene, to("urgent"), an_ask(CLOG, limit=1), before) == (0 if before is time_goes_back else 1)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    run_id=st.sampled_from([*PLAIN, *OTHERS]),
    body=st.integers(0, 1),
    signal_id=st.sampled_from([None, "x"]),
    deliver_at=st.sampled_from([None, 0, LATER]),
    if_idle=st.booleans(),
    clogs=st.sampled_from([(), (CLOG,), (OTHER_CLOG,)]),
    limit=st.sampled_from([1, 9]),
    before=st.sampled_from([*(nothing,) * 5, *BEFORE]),
)
def test_a_signal_with_a_claim_equals_a_signal_and_then_a_claim(
    scene: Scene, run_id: str, body: int, clogs: tuple[str, ...], limit: int, before: Before, **given: Any
) -> None:
    compare(scene, to(run_id, body, **given), an_ask(*clogs, limit=limit), before)
