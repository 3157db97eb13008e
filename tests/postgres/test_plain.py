"""Plain verbs that are executed in bulk have the effect that they have one by one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocean.kernel.store import Store
from ocean.state.backoff import RetryPolicy
from ocean.state.effects import Effects, NewEvent, RowWrite
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import ClogRecord
from ocean.stores.postgres.store import PostgresStore
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, LOCK_MS, OTHER_CLOG, a_run, a_signal, an_ask, claim, commit_of, pending, run_row
from tests.postgres.test_groups import Rows, Scene, as_one_group, compare
from tests.stores.group_verbs import Claims, Item, add_one

PLAIN = ["p-1", "p-2", "p-3", "p-4"]
KINDS = ["signalled", "timed", "again", "retried", "keyed", "parent", "child", "paused", "stored", "returned", "stale"]
KINDS += ["ending", "turned", "contested"]
"""Runs whose next input is there, or comes later. A second attempt, keys, parents or children, an end and turns are not
plain; a pause and a row are."""
LATER = 1_900_000_000_000
CALLED = "SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = $1"


async def arrange(store: Store, clock: ManualClock) -> Claims:
    await store.register_clogs(
        [
            ClogRecord(CLOG, "1", False),
            ClogRecord(OTHER_CLOG, "1", True),
            ClogRecord("outside", "1", False, external=True),
        ]
    )
    await pending(store, "again")
    await claim(store, "again")
    clock.advance(LOCK_MS)
    claims = {"again": await claim(store, "again")}
    await pending(store, "retried")
    await store.commit_tick(commit_of(await claim(store, "retried"), Retry("no")))
    clock.advance(1_000)
    claims["retried"] = await claim(store, "retried")
    await pending(store, "ending", clog_id=OTHER_CLOG)
    await store.cancel_run("ending", None, None, None)
    claims["ending"] = await claim(store, "ending")
    await pending(store, "returned")
    claims["stale"] = await claim(store, "returned")
    await store.give_back(claims["stale"].lock, 1)
    claims["returned"] = await claim(store, "returned")
    for run_id in (*PLAIN, "signalled", "timed", "parent", "paused", "stored", "turned", "contested"):
        # For one of them the first call is the last, which its row states while it is at work.
        await pending(store, run_id, retry=RetryPolicy(max_attempts=1) if run_id == "p-2" else None)
    await pending(store, "keyed", concurrency_keys=["k"])
    await pending(store, "child", parent_run_id="parent", notify_parent=True, on_parent_end="cancel")
    for run_id in (*PLAIN, *KINDS):
        claims[run_id] = claims.get(run_id) or await claim(store, run_id)
    await store.commit_tick(
        commit_of(claims["stored"], Continue(), Effects(writes=[RowWrite(run_row("stored"), 0, "1")]))
    )
    claims["stored"] = await claim(store, "stored")
    await store.deliver_signal(a_signal("signalled"), None)
    await store.deliver_signal(replace(a_signal("timed"), deliver_at=clock.now() + 1_000), None)
    await store.set_run_paused("paused", True, None, None)
    # There are turns, but not on the rows of the others.
    assert await store.take_turn(claims["turned"].lock, [run_row("turned")])
    assert await store.take_turn(claims["child"].lock, [run_row("contested")])
    for number in range(6):
        await pending(store, f"due-{number}", priority=number % 3)
    await store.deliver_signal(a_signal("due-1"), None)
    await store.create_run(a_run("idle"), None)
    await store.create_run(a_run("idle keyed", concurrency_keys=["k"]), None)
    await store.create_run(a_run("known"), None)
    await store.deliver_signal(replace(a_signal("known", 1), signal_id="x", deliver_at=LATER), None)
    await store.create_run(a_run("asleep"), None)
    await store.deliver_signal(replace(a_signal("asleep"), deliver_at=clock.now() + 1), None)
    return claims


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    made.arrange(arrange)
    made.runner.run(made.db.execute("SET track_functions = 'all'"))
    yield made
    made.close()


OUTCOMES: list[Outcome] = [Ok(), Done({"n": 1}), Continue(2), Wait(for_ms=50), Wait(until=7), Failed("no")]


def commits(run_ids: list[str]) -> st.SearchStrategy[Item]:
    def item(run_id: str, outcome: Outcome, events_count: int, written: int, apply: bool) -> Item:
        def effects() -> Effects:
            events = [NewEvent("said", f'{{"n": {n}}}', CLOG) for n in range(events_count)]
            write = RowWrite(
                run_row(run_id if run_id != "stale" else "returned"),
                written,
                None if apply else "7",
                add_one if apply else None,
            )
            return Effects(events=events, writes=[write] if written < 2 else [])

        return lambda store, claims: store.commit_tick(commit_of(claims[run_id], outcome, effects()))

    return st.builds(
        item,
        st.sampled_from(run_ids),
        st.sampled_from(OUTCOMES),
        st.integers(0, 2),
        st.sampled_from([0, 0, 1, 2, 2]),
        st.booleans(),
    )


def creations() -> st.SearchStrategy[Item]:
    def item(number: int, session: str, has_input: bool, clog_id: str, **given: Any) -> Item:
        input: dict[str, Any] = {"input": {"n": number}} if has_input else {}
        new = a_run(f"new-{number}", session_id=session, clog_id=clog_id, **input, **given)
        new = new._replace(is_id_given=False, actor="ada" if number % 2 else None)
        return lambda store, _: store.create_run(new, None)

    return st.builds(
        item,
        st.integers(0, 10**9),
        st.sampled_from(["s", "t"]),
        st.booleans(),
        st.sampled_from([CLOG, CLOG, CLOG, "outside"]),
        priority=st.integers(0, 9),
    )


def a_signal_to(run_id: str, body: int = 1, **given: Any) -> Item:
    signal = replace(a_signal(run_id, body), **given)
    return lambda store, _: store.deliver_signal(signal, None)


def signals() -> st.SearchStrategy[Item]:
    return st.builds(
        a_signal_to,
        st.sampled_from(
            [*("asleep", "idle", "p-1", "due-1", "due-2", "paused", "known") * 2, "keyed", "nobody", "ending"]
        ),
        st.integers(0, 1),
        signal_id=st.sampled_from([None, None, None, None, "x", "y"]),
        deliver_at=st.sampled_from([None, 0, LATER]),
        actor=st.sampled_from([None, "ada"]),
        if_idle=st.sampled_from([*(False,) * 9, True]),
    )


ALMOST_ALL_PLAIN = st.lists(
    st.one_of(commits(PLAIN), commits([*PLAIN, *KINDS]), creations(), creations(), signals(), signals()),
    min_size=2,
    max_size=16,
)


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(items=ALMOST_ALL_PLAIN)
def test_plain_verbs_together_have_the_effect_that_they_have_one_by_one(scene: Scene, items: list[Item]) -> None:
    compare(scene, items)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
@pytest.mark.parametrize("run_id", [*KINDS, "p-1"])
def test_among_plain_verbs_every_other_verb_has_the_effect_that_it_has_alone(
    scene: Scene, run_id: str, outcome: Outcome
) -> None:
    """`p-1` is in it twice."""
    items = commit_each([Ok(), Done(1), Continue(2), Wait(for_ms=50)])
    effects = Effects(writes=[RowWrite(run_row(run_id), 0, "1")] if run_id == "contested" else [])
    items.insert(2, lambda store, claims: store.commit_tick(commit_of(claims[run_id], outcome, effects)))
    compare(scene, items)


def commit_each(outcomes: list[Outcome]) -> list[Item]:
    def item(run_id: str, outcome: Outcome) -> Item:
        effects = Effects(events=[NewEvent("said", "1", CLOG)], writes=[RowWrite(run_row(run_id), 0, apply=add_one)])
        return lambda store, claims: store.commit_tick(commit_of(claims[run_id], outcome, effects))

    return [item(run_id, outcome) for run_id, outcome in zip(PLAIN, outcomes, strict=True)]


async def calls_of(scene: Scene, items: list[Item], name: str) -> int:
    """How often a function in the database was called in a group of these verbs."""

    async def use(store: PostgresStore) -> list[object]:
        before = await scene.db.fetchval(CALLED, name) or 0
        await as_one_group(store, scene.claims, items, [])
        return [(await scene.db.fetchval(CALLED, name) or 0) - before]

    (calls,), _ = await scene.visited(use)
    assert isinstance(calls, int)
    return calls


def test_plain_commits_are_made_in_bulk(scene: Scene) -> None:
    items = commit_each([Ok(), Done(1), Continue(2), Wait(for_ms=50)])
    assert scene.runner.run(calls_of(scene, items, "ocean_commit_tick")) == 0
    assert scene.runner.run(calls_of(scene, items[:1], "ocean_commit_tick")) == 1
    compare(scene, items)


def a_creation(number: int, **given: Any) -> Item:
    new = a_run(f"new-{number}", input=number, **given)._replace(is_id_given=False)
    return lambda store, _: store.create_run(new, None)


def test_runs_of_external_clogs_are_not_plain(scene: Scene) -> None:
    compare(scene, [a_creation(1), a_creation(2, clog_id="outside"), a_creation(3)])


def test_plain_creations_are_made_in_bulk(scene: Scene) -> None:
    items = [a_creation(number, session_id=f"s-{number % 2}") for number in range(5)]
    assert scene.runner.run(calls_of(scene, items, "ocean_create_run")) == 0
    assert scene.runner.run(calls_of(scene, items[:1], "ocean_create_run")) == 1
    compare(scene, items)


def test_plain_signals_are_delivered_in_bulk(scene: Scene) -> None:
    items = [a_signal_to(run_id, number) for number, run_id in enumerate(["due-1", "asleep", "p-1"])]
    items += [a_signal_to("known", deliver_at=LATER, actor="ada"), a_signal_to("known", signal_id="n")]
    items += [a_signal_to("idle", 2, deliver_at=LATER, signal_id=f"later-{number}") for number in range(2)]
    assert scene.runner.run(calls_of(scene, items, "ocean_deliver_signal")) == 0
    assert scene.runner.run(calls_of(scene, items[:1], "ocean_deliver_signal")) == 1
    compare(scene, items)


@pytest.mark.parametrize(
    "odd",
    [
        a_signal_to("keyed"),
        a_signal_to("idle keyed"),
        a_signal_to("nobody"),
        a_signal_to("ending"),
        a_signal_to("paused", signal_id="x", if_idle=True),
        a_signal_to("asleep", if_idle=True),
        a_signal_to("known", signal_id="x"),
        a_signal_to("known", 2, signal_id="x"),
        a_signal_to("asleep", signal_id="z"),
    ],
    ids=range(9),
)
def test_among_plain_signals_every_other_signal_has_the_effect_that_it_has_alone(scene: Scene, odd: Item) -> None:
    first = a_signal_to("asleep", deliver_at=LATER, signal_id="z")
    compare(scene, [first, a_signal_to("due-1"), odd, a_signal_to("due-1", actor="ada")])


def test_a_group_with_a_verb_that_is_not_plain_is_executed_one_by_one(scene: Scene) -> None:
    items = commit_each([Ok(), Ok(), Ok(), Ok()])
    items[2] = lambda store, claims: store.commit_tick(commit_of(claims["keyed"], Done(1)))
    assert scene.runner.run(calls_of(scene, items, "ocean_commit_tick")) == 4
    compare(scene, items)


def test_a_bulk_claim_has_the_effect_of_single_claims(scene: Scene) -> None:
    due = ["due-0", "due-3", "due-1", "due-4", "due-2", "due-5"]

    async def together(store: PostgresStore) -> list[object]:
        found: list[object] = list(await store.claim_due(an_ask(limit=6)))
        assert not await scene.db.fetchval(CALLED, "ocean_claim_one")
        return found

    async def apart(store: PostgresStore) -> list[object]:
        return [each for run_id in due for each in await store.claim_due(an_ask(run_id=run_id))]

    def both() -> tuple[tuple[list[object], Rows], tuple[list[object], Rows]]:
        run = scene.runner.run
        return run(scene.visited(together)), run(scene.visited(apart))

    (claims, rows), (expected, expected_rows) = both()
    assert claims == expected
    assert len(claims) == len(due)
    for name in expected_rows:
        assert rows[name] == expected_rows[name], name


def test_runs_of_a_clog_that_was_paused_meanwhile_are_not_claimed(scene: Scene) -> None:
    terms = {"lock_ms": 1, "version": "1", "takes_all_inputs": False}
    ask = json.dumps({"instance_id": "i", "clogs": {CLOG: terms}})

    async def claim_them(store: PostgresStore) -> int:
        wanted = "SELECT cardinality(claims) FROM ocean_claim_plain(ARRAY['due-0', 'due-1'], $1::text::jsonb, $2)"
        found: int = await scene.db.fetchval(wanted, ask, scene.clock.now())
        return found

    async def before_and_after(store: PostgresStore) -> list[object]:
        await store.set_clog_paused(CLOG, True, None, None)
        paused = await claim_them(store)
        await store.set_clog_paused(CLOG, False, None, None)
        return [paused, await claim_them(store)]

    found, _ = scene.runner.run(scene.visited(before_and_after))
    assert found == [0, 2]


def test_a_claim_in_bulk_takes_all_inputs_of_a_clog_that_wants_them(scene: Scene) -> None:
    async def greedy(store: PostgresStore) -> list[object]:
        ask = an_ask(limit=6)
        ask = replace(ask, clogs={CLOG: replace(ask.clogs[CLOG], takes_all_inputs=True)})
        return [len(claim.inputs) for claim in await store.claim_due(ask)]

    counts, _ = scene.runner.run(scene.visited(partial(greedy)))
    assert counts == [1, 1, 2, 1, 1, 1]
