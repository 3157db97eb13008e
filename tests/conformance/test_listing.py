"""`list_runs`, `count_runs`, `list_ticks`: filters, orders, and stable pages."""

import pytest

from ocean.kernel.run_query import run_filter
from ocean.kernel.store import Store
from ocean.state.attributes import Within
from ocean.state.effects import Effects
from ocean.state.errors import BadCursor, RunNotFound
from ocean.state.filters import RunFilter
from ocean.state.outcomes import Continue, Done
from ocean.state.records import RunCount, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, OTHER_CLOG, ended_run, pending, run_tick

pytestmark = pytest.mark.anyio

T0 = ManualClock().now()


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
    """Return the run ids of all pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(where, limit, cursor, newest_first)
        assert len(page.runs) <= limit
        found += [run.run_id for run in page.runs]
        assert len(found) == len(set(found)), "a run was listed twice"
        cursor = page.next_cursor
        if cursor is None:
            return found


def _filter_id(value: RunFilter | str) -> str:
    if isinstance(value, str):
        return value
    default = RunFilter()
    given = {
        name: getattr(value, name) for name in RunFilter.__slots__ if getattr(value, name) != getattr(default, name)
    }
    return str(given)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (run_filter(), "012345"),
        (run_filter(clog_id=CLOG), "01234"),
        (run_filter(session_id="s1"), "135"),
        (run_filter(clog_id=CLOG, session_id="s1"), "13"),
        (run_filter(status=RunStatus.DONE), "4"),
        (run_filter(status=RunStatus.PENDING, clog_id=CLOG), "0123"),
        (run_filter(parent_run_id="r0"), "23"),
        (run_filter(clog_id=CLOG, attributes={"n": 3}), "3"),
        (run_filter(clog_id=CLOG, attributes={"n": 3.0}), "3"),
        (run_filter(clog_id=CLOG, attributes={"odd": False}), "024"),
        (run_filter(clog_id=CLOG, attributes={"odd": True, "word": "w1"}), "3"),
        (run_filter(clog_id=CLOG, attributes={"odd": 1}), ""),
        (run_filter(clog_id=CLOG, attributes={"nothing": 1}), ""),
        (run_filter(session_id="nowhere"), ""),
        (run_filter(clog_id=[CLOG, OTHER_CLOG]), "012345"),
        (run_filter(clog_id={OTHER_CLOG, "nobody"}), "5"),
        (run_filter(session_id=["s0", "s1", "s0"], status=["done", "idle"]), "4"),
        (run_filter(status=["done", "pending"], clog_id=[CLOG]), "01234"),
        (run_filter(parent_run_id=["r0", "r1"], session_id="s1"), "3"),
        (run_filter(parent_run_id="r0", clog_id=CLOG, attributes={"odd": True}), "3"),
        (run_filter(clog_id=[]), ""),
        (run_filter(status=()), ""),
        (run_filter(clog_id=CLOG, attributes={"n": []}), ""),
        (run_filter(clog_id=CLOG, attributes={"n": [1, 3, 5, 3.0, "1"]}), "13"),
        (run_filter(clog_id=[CLOG, OTHER_CLOG], attributes={"n": [1, 3, 5], "word": ["w0", "w2"]}), "15"),
        (run_filter(clog_id=CLOG, status="pending", session_id="s0", attributes={"odd": False}), "02"),
        (run_filter(created_from=T0 + 1), "2345"),
        (run_filter(created_until=T0 + 1), "01"),
        (run_filter(created_from=T0 + 1, created_until=T0 + 2, status="pending"), "23"),
        (run_filter(created_from=T0 + 1, created_until=T0 + 1), ""),
        (run_filter(created_from=T0 + 1, clog_id=CLOG, attributes={"odd": False}), "24"),
        (run_filter(created_from=T0 + 1, session_id="s1"), "35"),
        (run_filter(created_from=T0 + 1, parent_run_id="r0"), "23"),
        (run_filter(ended_from=T0 + 3), "4"),
        (run_filter(ended_from=T0 + 4), ""),
        (run_filter(ended_until=T0 + 3), ""),
        (run_filter(ended_until=T0 + 4, status="failed"), ""),
        (run_filter(ended_until=T0 + 4, status=["done", "idle"], clog_id=CLOG, session_id="s0"), "4"),
        (run_filter(ended_until=T0 + 4, clog_id=CLOG, attributes={"odd": True}), ""),
        (run_filter(ended_until=T0 + 4, created_until=T0 + 2), ""),
        (run_filter(clog_id=CLOG, attributes={"n": Within(gt=1)}), "234"),
        (run_filter(clog_id=[CLOG, OTHER_CLOG], attributes={"n": Within(gte=1, lte=5.0)}), "12345"),
        (run_filter(clog_id=CLOG, attributes={"n": Within(lt=1)}), "0"),
        (run_filter(clog_id=CLOG, attributes={"n": Within(gte=2, lt=2)}), ""),
        (run_filter(clog_id=CLOG, attributes={"n": Within(gt="")}), ""),
        (run_filter(clog_id=CLOG, attributes={"word": Within(gte="w1")}), "234"),
        (run_filter(clog_id=CLOG, attributes={"word": Within(lt="w1"), "odd": True}), "1"),
        (run_filter(clog_id=CLOG, status="done", attributes={"n": Within(gt=0)}), "4"),
        (run_filter(clog_id=CLOG, session_id="s0", created_until=T0 + 2, attributes={"n": Within(gt=0)}), "2"),
    ],
    ids=_filter_id,
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


async def test_pages_are_stable_while_runs_are_added_and_removed(store: Store, clock: ManualClock) -> None:
    await _six_runs(store, clock)
    first = await store.list_runs(run_filter(), 2, None, True)
    await pending(store, "newer")
    await store.delete_run("r5", None, None)
    second = await store.list_runs(run_filter(), 2, first.next_cursor, True)
    assert [run.run_id for run in first.runs + second.runs] == ["r5", "r4", "r3", "r2"]


async def test_a_cursor_belongs_to_its_order(store: Store, clock: ManualClock) -> None:
    await _six_runs(store, clock)
    for number in range(5):
        await run_tick(store, f"r{number}", Done())
    orders = [
        (where, is_descending)
        for where in (
            run_filter(),
            run_filter(ended_from=0),
            run_filter(clog_id=CLOG, attributes={"n": Within(gte=0)}),
            run_filter(clog_id=CLOG, attributes={"word": Within(gte="")}),
        )
        for is_descending in (True, False)
    ]
    for where, is_descending in orders:
        cursor = (await store.list_runs(where, 1, None, is_descending)).next_cursor
        for other in orders:
            if other != (where, is_descending):
                with pytest.raises(BadCursor, match="another order"):
                    await store.list_runs(other[0], 1, cursor, other[1])
            else:
                assert (await store.list_runs(where, 1, cursor, is_descending)).runs


async def test_a_cursor_of_another_filter_does_not_widen_this_one(store: Store, clock: ManualClock) -> None:
    await _six_runs(store, clock)
    first = (await store.list_runs(run_filter(), 1, None, False)).next_cursor
    page = await store.list_runs(run_filter(created_from=T0 + 2), 10, first, False)
    assert [run.run_id for run in page.runs] == ["r4", "r5"]
    last = (await store.list_runs(run_filter(), 1, None, True)).next_cursor
    page = await store.list_runs(run_filter(created_until=T0 + 1), 10, last, True)
    assert [run.run_id for run in page.runs] == ["r1", "r0"]


async def test_counting_goes_no_further_than_the_cap(store: Store, clock: ManualClock) -> None:
    await _six_runs(store, clock)
    assert await store.count_runs(run_filter(), 4) == RunCount(4, True)
    assert await store.count_runs(run_filter(), 6) == RunCount(6, False)


async def test_attributes_set_by_a_tick_are_found_at_once_and_removed_ones_are_not(store: Store) -> None:
    await pending(store, attributes={"a": 1, "b": 2})
    await run_tick(store, "r", Continue(), Effects(attributes={"a": "one", "b": None}))
    run = await store.get_run("r")
    assert run is not None
    assert run.attributes == {"a": "one"}
    for attributes, wanted in ({"a": "one"}, ["r"]), ({"a": 1}, []), ({"b": 2}, []):
        assert await _listed(store, run_filter(clog_id=CLOG, attributes=attributes)) == wanted


async def test_an_invalid_cursor_is_refused(store: Store) -> None:
    for cursor in ("", "x", "!!!", "WzEsMl0=", "e30=", "W10=", "bnVsbA==", "é"):
        with pytest.raises(BadCursor):
            await store.list_runs(run_filter(), 10, cursor, True)


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
