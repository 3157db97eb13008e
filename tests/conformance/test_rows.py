"""`read_rows` and versions: exact addresses, history, and versions that are never reused."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed, Contended, RowsAsk
from ocean.state.effects import ABSENT, Effects, RowKey, RowWrite
from ocean.state.outcomes import Continue, Done, Ok
from ocean.state.records import RunStatus
from tests.conformance.kit import (
    CLOG,
    GLOBAL,
    OTHER_CLOG,
    SESSION,
    a_call,
    claim,
    claimed_run,
    commit,
    ended_run,
    pending,
    row,
    run_row,
    run_tick,
    tick_row,
    writes,
)

pytestmark = pytest.mark.anyio

KEYS = [GLOBAL, SESSION, run_row(), tick_row(1, "x")]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.scope)
async def test_an_absent_row_has_version_zero_and_no_text(store: Store, key: RowKey) -> None:
    await pending(store)
    assert await row(store, key) == ABSENT


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.scope)
async def test_a_row_is_read_as_it_was_written_with_a_version_that_rises(store: Store, key: RowKey) -> None:
    await pending(store)
    versions = [0]
    for text in ("null", '{"n":1}'):
        await run_tick(store, "r", Continue(), writes((key, versions[-1], text)))
        found = await row(store, key)
        assert found.text == text
        versions.append(found.version)
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.scope)
async def test_a_version_is_not_used_again_after_a_row_was_cleared(store: Store, key: RowKey) -> None:
    await pending(store)
    seen = set()
    for _ in range(3):
        await run_tick(store, "r", Continue(), writes((key, 0, "1")))
        written = (await row(store, key)).version
        assert written not in seen
        seen.add(written)
        await run_tick(store, "r", Continue(), writes((key, written, None)))
        assert await row(store, key) == ABSENT
    held = await claim(store)
    for stale in seen:
        assert isinstance(await commit(store, held, Ok(), writes((key, stale, "2"))), Contended)


@pytest.mark.parametrize("key", [SESSION, run_row()], ids=lambda key: key.scope)
async def test_a_version_is_not_used_again_after_run_and_session_were_deleted_and_created_again(
    store: Store, key: RowKey
) -> None:
    seen = set()
    for _ in range(3):
        await pending(store)
        await run_tick(store, "r", Ok(), writes((key, 0, "1")))
        written = (await row(store, key)).version
        assert written not in seen
        seen.add(written)
        await store.delete_session("s", None, None)
        assert await row(store, key) == ABSENT


async def test_rows_of_other_clogs_sessions_runs_and_ticks_are_other_rows(store: Store) -> None:
    await pending(store, "a")
    await pending(store, "b")
    held = await claim(store, "a")
    await commit(store, held, Ok(), writes((GLOBAL, 0, "1"), (SESSION, 0, "2"), (run_row("a"), 0, "3")))
    for key in (
        RowKey("global", OTHER_CLOG),
        RowKey("session", OTHER_CLOG, session_id="s"),
        RowKey("session", CLOG, session_id="t"),
        RowKey("run", OTHER_CLOG, run_id="a"),
        run_row("b"),
        tick_row(1, "x", "a"),
    ):
        assert await row(store, key) == ABSENT


async def test_one_read_names_rows_runs_by_dedupe_key_ticks_and_history(store: Store) -> None:
    await pending(store, "keyed", dedupe_key="k")
    await run_tick(store, "keyed", Ok(), writes((run_row("keyed"), 0, '"keyed"')))
    await pending(store)
    for tick in (1, 2, 3, 4):
        effects = writes((tick_row(tick, "a"), 0, f"{tick}"), (tick_row(tick, "b"), 0, "0"))
        await run_tick(store, "r", Continue(), effects if tick != 3 else Effects())
    ask = RowsAsk(CLOG, "s", "r", keys=(SESSION,), dedupe_keys=("k", "free"), ticks=(1, 3), history=2)
    found_rows = await store.read_rows(ask)
    assert found_rows.run_by_dedupe_key == {"k": "keyed", "free": None}
    assert found_rows.rows[run_row("keyed")].text == '"keyed"'
    assert found_rows.rows[SESSION] == ABSENT
    assert {key.row_id: found.text for key, found in found_rows.rows.items() if key.tick == 1} == {"a": "1", "b": "0"}
    assert not [key for key in found_rows.rows if key.tick == 3]
    assert [(tick, dict(rows)) for tick, rows in found_rows.history] == [
        (2, {"a": "2", "b": "0"}),
        (4, {"a": "4", "b": "0"}),
    ]


async def test_deleting_a_tick_deletes_its_rows(store: Store) -> None:
    await pending(store)
    await run_tick(store, "r", Continue(), writes((tick_row(1, "a"), 0, "1")))
    await run_tick(store, "r", Continue(), Effects(delete_ticks=[1]))
    assert await row(store, tick_row(1, "a")) == ABSENT
    assert [tick.tick for tick in await store.list_ticks("r", 0, 10)] == [2]


async def test_the_row_of_another_run_can_be_written_until_that_run_ends(store: Store) -> None:
    await pending(store, "other")
    held = await claimed_run(store)
    assert await commit(store, held, Continue(), writes((run_row("other"), 0, "1"))) == Committed(RunStatus.PENDING)
    await run_tick(store, "other", Done())
    version = (await row(store, run_row("other"))).version
    with pytest.raises(Exception, match="other has ended"):
        await commit(store, await claim(store), Ok(), writes((run_row("other"), version, "2")))
    assert (await row(store, run_row("other"))).text == "1"


async def test_the_last_tick_writes_its_own_rows(store: Store) -> None:
    await pending(store)
    await run_tick(store, "r", Done(), writes((run_row(), 0, "1"), (tick_row(1, "x"), 0, "2")))
    assert [(await row(store, key)).text for key in (run_row(), tick_row(1, "x"))] == ["1", "2"]


async def test_a_function_may_clear_a_row(store: Store) -> None:
    await ended_run(store, "first", Done())
    await store.commit_call(a_call(writes((SESSION, 0, "1")), run_id=None))
    clear = Effects(writes=[RowWrite(SESSION, 0, apply=lambda old: None)])
    await store.commit_call(a_call(clear, run_id=None))
    assert await row(store, SESSION) == ABSENT


async def test_a_function_is_applied_to_the_value_at_the_commit(store: Store) -> None:
    """The version that the caller read does not matter."""
    await commit(store, await claimed_run(store, "first"), Done(), writes((SESSION, 0, "41")))
    effects = Effects(writes=[RowWrite(SESSION, 0, apply=lambda old: str(int(old or "0") + 1), seen="7")])
    await commit(store, await claimed_run(store, "second"), Done(), effects)
    assert (await row(store, SESSION)).text == "42"
