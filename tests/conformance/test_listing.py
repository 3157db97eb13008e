"""`list_runs`, `count_runs`, `list_ticks`: filters, orders, and pages that stay put."""

import pytest

from ocean.kernel.effects import Effects
from ocean.kernel.errors import BadCursor, InvalidValue, RunNotFound
from ocean.kernel.outcomes import Continue, Done
from ocean.kernel.records import RunCount, RunFilter, RunStatus
from ocean.kernel.store import Store
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, OTHER_CLOG, ended_run, pending, run_tick

pytestmark = pytest.mark.anyio


async def _six_runs(store: Store, clock: ManualClock) -> None:
    for number in range(6):
        await pending(
            store,
            f"r{number}",
            session_id=f"s{number % 2}",
            clog_id=OTHER_CLOG if number == 5 else CLOG,
            parent_run_id="r0" if number in (2, 3) else None,
            attributes={"n": number, "odd": bool(number % 2), "word": f"w{number // 2}"},
        )
        clock.advance(number % 2)


async def _listed(store: Store, where: RunFilter, limit: int = 100, newest_first: bool = False) -> list[str]:
    """All pages joined."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(where, limit, cursor, newest_first)
        assert len(page.runs) <= limit
        found += [run.run_id for run in page.runs]
        assert len(found) == len(set(found)), "a page came twice"
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (RunFilter(), "012345"),
        (RunFilter(clog_id=CLOG), "01234"),
        (RunFilter(session_id="s1"), "135"),
        (RunFilter(clog_id=CLOG, session_id="s1"), "13"),
        (RunFilter(status=RunStatus.DONE), "4"),
        (RunFilter(status=RunStatus.PENDING, clog_id=CLOG), "0123"),
        (RunFilter(parent_run_id="r0"), "23"),
        (RunFilter(clog_id=CLOG, attributes={"n": 3}), "3"),
        (RunFilter(clog_id=CLOG, attributes={"n": 3.0}), "3"),
        (RunFilter(clog_id=CLOG, attributes={"odd": False}), "024"),
        (RunFilter(clog_id=CLOG, attributes={"odd": True, "word": "w1"}), "3"),
        (RunFilter(clog_id=CLOG, attributes={"odd": 1}), ""),
        (RunFilter(clog_id=CLOG, attributes={"nothing": 1}), ""),
        (RunFilter(session_id="nowhere"), ""),
    ],
    ids=str,
)
async def test_a_filter_lists_its_runs_in_both_orders_over_pages(
    store: Store, clock: ManualClock, where: RunFilter, wanted: str
) -> None:
    await _six_runs(store, clock)
    await run_tick(store, "r4", Done())
    ids = [f"r{digit}" for digit in wanted]
    for limit in (1, 2, 100):
        assert await _listed(store, where, limit) == ids
        assert await _listed(store, where, limit, newest_first=True) == ids[::-1]
    assert await store.count_runs(where, 100) == RunCount(len(ids), False)


async def test_pages_stay_put_while_runs_are_added_and_removed(store: Store, clock: ManualClock) -> None:
    await _six_runs(store, clock)
    first = await store.list_runs(RunFilter(), 2, None, True)
    await pending(store, "newer")
    await store.delete_run("r5", None, None)
    second = await store.list_runs(RunFilter(), 2, first.next_cursor, True)
    assert [run.run_id for run in first.runs + second.runs] == ["r5", "r4", "r3", "r2"]


async def test_counting_goes_no_further_than_the_cap(store: Store, clock: ManualClock) -> None:
    await _six_runs(store, clock)
    assert await store.count_runs(RunFilter(), 4) == RunCount(4, True)
    assert await store.count_runs(RunFilter(), 6) == RunCount(6, False)


async def test_attributes_without_a_clog_are_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="clog_id"):
        await store.list_runs(RunFilter(attributes={"n": 1}), 10, None, True)


async def test_attributes_set_by_a_tick_are_found_at_once_and_removed_ones_no_more(store: Store) -> None:
    await pending(store, attributes={"a": 1, "b": 2})
    await run_tick(store, "r", Continue(), Effects(attributes={"a": "one", "b": None}))
    run = await store.get_run("r")
    assert run is not None
    assert run.attributes == {"a": "one"}
    for attributes, wanted in ({"a": "one"}, ["r"]), ({"a": 1}, []), ({"b": 2}, []):
        assert await _listed(store, RunFilter(clog_id=CLOG, attributes=attributes)) == wanted  # type: ignore[arg-type]


async def test_what_is_no_cursor_is_refused(store: Store) -> None:
    for cursor in ("", "x", "!!!", "WzEsMl0=", "e30=", "W10=", "bnVsbA==", "é"):
        with pytest.raises(BadCursor):
            await store.list_runs(RunFilter(), 10, cursor, True)


async def test_ticks_are_listed_in_order_after_a_number(store: Store) -> None:
    await pending(store)
    for _ in range(4):
        await run_tick(store, "r", Continue())
    assert [tick.tick for tick in await store.list_ticks("r", 0, 2)] == [1, 2]
    assert [tick.tick for tick in await store.list_ticks("r", 2, 10)] == [3, 4]
    with pytest.raises(RunNotFound):
        await store.list_ticks("nobody", 0, 10)


async def test_the_reason_of_a_tick_is_kept(store: Store) -> None:
    await ended_run(store, "r", Done())
    (tick,) = await store.list_ticks("r", 0, 10)
    assert (tick.reason, tick.outcome, tick.epoch, tick.instance_id) == ("created", "done", 1, "i-a")
