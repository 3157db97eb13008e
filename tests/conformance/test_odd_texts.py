"""Ids, names and values with every special character are read back unchanged."""

import random
from typing import Any

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk, RowsAsk
from ocean.kernel.store.runs import Request
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import Effects, NewEvent, RowKey, RowWrite, SetTimer
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry
from ocean.state.records import ClogRecord, Key
from tests.conformance.kit import a_run, a_signal, claimed_run, commit, commit_of, events, pending, the_run

pytestmark = pytest.mark.anyio


def _long(seed: int) -> str:
    """Return an incompressible text of the maximum length of an id."""
    dice = random.Random(seed)
    return "".join(chr(dice.randint(0x4E00, 0x9FFF)) for _ in range(85))


ODD = [
    "%s %I %L %",
    'it\'s "quoted" `back` $$ $1 :name',
    "back\\slash \\n \\u0041 \\\\",
    "a\x1fb\x01c\td\ne",
    "{},[]: ->> ?| @> null",
    "ünï ☃ 🐙 e\u0301 \u202e \ufeff",
    "null",
    " ",
]
VALUES: list[Any] = [
    1e23,
    1e-9,
    -0.0,
    1.0,
    2**63 - 1,
    -(2**63),
    1.7976931348623157e308,
    5e-324,
    "\\u0041\n\t\"%s'\x1f🐙",
    {"b": 1, "a": [1, {"": None, "null": "null"}], "%s": "'"},
    [],
    {},
    "",
    None,
]


WITH_THE_VALUE = ("run.done", "run.failed", "run.retrying", "tick.failed")


def _ask(clog_id: str, run_id: str | None = None) -> ClaimAsk:
    return ClaimAsk({clog_id: ClaimableClog(clog_id, 30_000, clog_id, True)}, clog_id, 10, 0, run_id)


@pytest.mark.parametrize("odd", [*ODD, _long(1)], ids=range(len(ODD) + 1))
async def test_a_whole_life_of_a_run_under_odd_names(store: Store, odd: str) -> None:
    await store.register_clogs([ClogRecord(odd, "1", True)])
    child = f"{odd[:60]}!"
    words: dict[str, Any] = {"session_id": odd, "clog_id": odd}
    names: dict[str, Any] = {"dedupe_key": odd, "concurrency_keys": [Key(odd, "run")], "attributes": {odd[:21]: odd}}
    await store.create_run(a_run(odd, input=odd, **words, **names), Request(odd, odd))
    (claim,) = await store.claim_due(_ask(odd))
    assert (claim.run.run_id, claim.run.dedupe_key, claim.run.attributes) == (odd, odd, {odd[:21]: odd})
    assert claim.inputs[0].body == odd
    assert await store.store_step(claim.lock, claim.tick, odd, f'"{len(odd)}"') == f'"{len(odd)}"'
    keys = [RowKey("global", odd), RowKey("session", odd, session_id=odd), RowKey("run", odd, run_id=odd)]
    keys.append(RowKey("tick", odd, run_id=odd, tick=claim.tick, row_id=odd))
    effects = Effects(
        writes=[RowWrite(key, 0, '"x"') for key in keys],
        events=[NewEvent("said", '"%s"', odd)],
        timers=[SetTimer(odd, 2_000_000_000_000, None)],
        runs=[a_run(child, input=1, parent_run_id=odd, notify_parent=True, on_parent_end="cancel", **words)],
        signals=[a_signal(odd, odd, signal_id=odd)],
        takes=[Take(odd, 1, limit=2)],
    )
    assert await store.take_turn(claim.lock, keys)
    await commit(store, claim, Continue(odd), effects)
    found = await store.read_rows(RowsAsk(odd, odd, odd, keys=tuple(keys), dedupe_keys=(odd,)))
    assert [found.rows[key].text for key in keys] == ['"x"'] * 4
    assert found.run_by_dedupe_key == {odd: odd}
    (again,) = await store.claim_due(_ask(odd, odd))
    assert [each.body for each in again.inputs] == [odd, odd]
    await store.cancel_run(odd, odd, odd, None)
    await store.give_back(again.lock, again.tick)
    await commit(store, (await store.claim_due(_ask(odd, odd)))[0], Ok())
    assert (await the_run(store, child)).ending == "cancel"
    assert await store.delete_session(odd, odd, None) == 2
    logged = [event.type for event in await events(store, odd)]
    assert logged[-2:] == ["run.failed", "run.deleted"]


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("outcome", [Done, Failed, Retry])
async def test_values_are_read_back_unchanged(store: Store, outcome: Any, attempts: int) -> None:
    """Inputs and events keep the value, the type and the order of their parts."""
    is_error = outcome in (Failed, Retry)
    for place, value in enumerate(VALUES):
        claim = await claimed_run(store, f"r{place}", input=value, retry=RetryPolicy(max_attempts=attempts))
        assert repr(claim.inputs[0].body) == repr(value)
        result: Outcome = outcome(ErrorInfo("odd", "%s", value)) if is_error else outcome(value)
        await store.commit_tick(commit_of(claim, result))
        payloads = [event.payload for event in await events(store, f"r{place}") if event.type in WITH_THE_VALUE]
        found = [payload["error"]["details"] if is_error else payload["output"] for payload in payloads]
        assert list(map(repr, found)) == [repr(value)] * (2 if outcome is Retry and attempts == 1 else 1)


async def test_counters_are_named_in_the_order_in_which_they_refused(store: Store) -> None:
    for key in ("zebra", "ant", "b"):
        await store.take(Take(key, 1, limit=1), None)
    claim = await claimed_run(store)
    await commit(store, claim, Ok(), Effects(takes=[Take(key, 1, limit=1) for key in ("zebra", "b", "ant", "b")]))
    (restarted,) = [event for event in await events(store, "r") if event.type == "tick.restarted"]
    assert restarted.payload["keys"] == ["zebra", "b", "ant"]


async def test_an_end_counts_all_undelivered_inputs_and_lists_a_hundred(store: Store) -> None:
    await pending(store)
    for number in range(120):
        await store.deliver_signal(a_signal("r", number, signal_id=f"s{number}"), None)
    await store.cancel_run("r", None, None, None)
    (undelivered,) = [event for event in await events(store, "r") if event.type == "signal.undelivered"]
    assert (undelivered.payload["count"], len(undelivered.payload["inputs"])) == (121, 100)
    assert undelivered.payload["inputs"][:2] == [
        {"number": 1, "kind": "created", "signal_id": None},
        {"number": 2, "kind": "signal", "signal_id": "s0"},
    ]


async def test_a_tick_gets_no_more_than_256_inputs(store: Store) -> None:
    await pending(store)
    for number in range(260):
        await store.deliver_signal(a_signal("r", number), None)
    (claim,) = await store.claim_due(_ask("counter"))
    assert [each.number for each in claim.inputs] == list(range(1, 257))
