"""`retry_run`: a new run that repeats a failed one."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.runs import Request
from ocean.state.backoff import RetryPolicy
from ocean.state.effects import Effects, NewRun
from ocean.state.errors import RequestKeyReused, RunHasNoInput, RunNotFailed, RunNotFound
from ocean.state.outcomes import Continue, Done, Failed, Ok
from ocean.state.records import Key
from ocean.testing import ManualClock
from tests.conformance.kit import TablesOf, a_run, a_signal, claim, ended_run, events, pending, run_tick, the_run, types

pytestmark = pytest.mark.anyio

CARRIED = {
    "session_id",
    "clog_id",
    "input",
    "retry",
    "priority",
    "attributes",
    "deadline_at",
    "body_hash",
    "correlation_id",
    "concurrency_keys",
    "queue",
    "rate",
}
ITS_OWN = {"run_id", "is_id_given", "actor", "retry_of"}
LEFT_OUT = {"dedupe_key", "dedupe_ms", "parent_run_id", "notify_parent", "on_parent_end", "debounce"}


def test_every_option_of_a_run_is_carried_over_or_left_out_on_purpose() -> None:
    """For a new option: carry it over in `retry_as_new.retried`, test it below, and list it here."""
    assert set(NewRun._fields) == CARRIED | ITS_OWN | LEFT_OUT


async def test_a_retry_is_created_like_the_failed_run_was(store: Store, clock: ManualClock) -> None:
    policy = RetryPolicy(max_attempts=7, delays_ms=(5, 6), jitter=0.5)
    await pending(
        store,
        "r",
        input={"n": [1]},
        session_id="s1",
        retry=policy,
        priority=2,
        attributes={"kind": "a", "n": 1},
        deadline_at=clock.now() + 1_000,
        dedupe_key="k",
        concurrency_keys=["a", Key("b", hold="run")],
    )
    clock.advance(10)
    await run_tick(store, "r", Continue(), Effects(attributes={"n": 2, "seen": True}))
    await run_tick(store, "r", Failed("no"))
    clock.advance(90)
    again = await store.retry_run("r", "ada", None)
    row, first = await the_run(store, again.run_id), await the_run(store, "r")
    assert (again.retry_of, again.status, again.attempt, again.tick) == ("r", "pending", 0, 0)
    assert (again.session_id, again.clog_id, again.priority) == ("s1", first.clog_id, 2)
    assert again.attributes == {"kind": "a", "n": 2, "seen": True}
    assert again.deadline_at == clock.now() + 1_000
    assert (again.max_attempts, again.dedupe_key, again.parent_run_id) == (7, None, None)
    assert row.correlation_id == first.correlation_id
    assert again.concurrency_keys == (Key("a"), Key("b", hold="run"))
    held = await claim(store, again.run_id)
    assert [(each.kind, each.body, each.actor) for each in held.inputs] == [("created", {"n": [1]}, "ada")]


async def test_its_first_event_links_it_to_the_failure(store: Store) -> None:
    await ended_run(store, "r", Failed("no"))
    again = await store.retry_run("r", "ada", None)
    (created,) = await events(store, again.run_id)
    failure = (await events(store, "r"))[-1]
    assert (created.type, created.payload["retry_of"], created.actor) == ("run.created", "r", "ada")
    assert (created.causation_id, created.correlation_id) == (failure.id, failure.correlation_id)


async def test_the_failed_run_is_left_as_it_was(store: Store, tables: TablesOf) -> None:
    await ended_run(store, "r", Failed("no"), attributes={"a": 1})
    before = await tables()
    await store.retry_run("r", None, None)
    after = await tables()
    for name, rows in before.items():
        if name != "event_cursor":
            assert [row for row in rows if row not in after[name]] == [], name


async def test_a_repeated_retry_returns_the_same_run_whatever_its_status(store: Store, tables: TablesOf) -> None:
    await ended_run(store, "r", Failed("no"))
    first = await store.retry_run("r", None, None)
    before = await tables()
    assert (await store.retry_run("r", "someone else", None)).run_id == first.run_id
    assert await tables() == before
    await run_tick(store, first.run_id, Done(5))
    assert (await store.retry_run("r", None, None)).output == 5


async def test_a_retry_that_was_deleted_is_not_made_again(store: Store, tables: TablesOf) -> None:
    await ended_run(store, "r", Failed("no"))
    again = await store.retry_run("r", None, None)
    await store.delete_run(again.run_id, None, None)
    before = await tables()
    with pytest.raises(RunNotFound, match=f"run r was retried as {again.run_id}, which has been deleted"):
        await store.retry_run("r", None, None)
    assert await tables() == before


async def test_a_retry_that_fails_has_a_retry_of_its_own(store: Store) -> None:
    await ended_run(store, "r", Failed("no"))
    second = await store.retry_run("r", None, None)
    await run_tick(store, second.run_id, Failed("no"))
    third = await store.retry_run(second.run_id, None, None)
    assert (third.retry_of, third.correlation_id) == (second.run_id, "r")
    assert len({"r", second.run_id, third.run_id}) == 3


async def test_each_life_of_a_run_id_has_its_retry(store: Store) -> None:
    await ended_run(store, "r", Failed("no"))
    first = await store.retry_run("r", None, None)
    await store.delete_run("r", None, None)
    await ended_run(store, "r", Failed("no"))
    assert (await store.retry_run("r", None, None)).run_id != first.run_id


async def test_only_failed_runs_are_retried_as_new(store: Store, tables: TablesOf) -> None:
    await ended_run(store, "done", Done())
    await ended_run(store, "idle", Ok())
    await pending(store, "pending")
    await pending(store, "active")
    await claim(store, "active")
    before = await tables()
    for run_id in ("done", "idle", "pending", "active"):
        with pytest.raises(RunNotFailed, match=f"run {run_id} must be failed .* it is {run_id}") as refusal:
            await store.retry_run(run_id, None, None)
        assert (refusal.value.code, refusal.value.http_status) == ("run_not_failed", 409)
    with pytest.raises(RunNotFound):
        await store.retry_run("nobody", None, None)
    assert await tables() == before


async def test_a_run_created_without_input_cannot_be_retried_as_new(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run(), None)
    await store.deliver_signal(a_signal("r", 1), None)
    await run_tick(store, "r", Failed("no"))
    before = await tables()
    with pytest.raises(RunHasNoInput, match="run r was created without input") as refusal:
        await store.retry_run("r", None, None)
    assert (refusal.value.code, refusal.value.http_status) == ("run_has_no_input", 409)
    assert await tables() == before


async def test_a_run_with_null_as_input_can_be_retried_as_new(store: Store) -> None:
    await ended_run(store, "r", Failed("no"), input=None)
    again = await store.retry_run("r", None, None)
    assert [each.body for each in (await claim(store, again.run_id)).inputs] == [None]


async def test_the_retry_of_a_child_has_no_parent(store: Store) -> None:
    await pending(store, "mother")
    await ended_run(store, "r", Failed("no"), parent_run_id="mother", notify_parent=True, on_parent_end="cancel")
    logged = await types(store, "mother")
    again = await store.retry_run("r", None, None)
    assert (again.parent_run_id, again.correlation_id) == (None, "mother")
    await run_tick(store, again.run_id, Done())
    assert await types(store, "mother") == logged


async def test_a_request_key_returns_the_first_result(store: Store) -> None:
    await ended_run(store, "r", Failed("no"))
    request = Request("k", "hash")
    first = await store.retry_run("r", None, request)
    await run_tick(store, first.run_id, Done())
    assert await store.retry_run("r", None, request) == first
    with pytest.raises(RequestKeyReused):
        await store.retry_run("r", None, Request("k", "other"))


async def test_retries_keep_to_the_rate_of_the_failed_runs(store: Store, clock: ManualClock) -> None:
    """Five failed runs with a rate of one do not restart all at once."""
    for number in range(3):
        await pending(store, f"r{number}", rate_key="mails", rate_limit=1, rate_per_ms=1_000)
        clock.advance(1_000)
        await run_tick(store, f"r{number}", Failed("no"))
    clock.advance(10_000)
    again = [await store.retry_run(f"r{number}", None, None) for number in range(3)]
    assert [run.wake_at for run in again] == [None, clock.now() + 1_000, clock.now() + 2_000]
