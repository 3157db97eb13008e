"""The ledger of one tick: one read, one write, and only of rows that were read."""

from collections.abc import Sequence

import pytest

from ocean.kernel.rows import Ledger
from ocean.kernel.store.claims import RowsAnswer, RowsAsk
from ocean.state.effects import ABSENT, RowKey, StoredRow
from ocean.state.errors import NotRead, ReadSpent, WriteSpent

RUN = RowKey("run", "c", run_id="r-1")
OTHER_RUN = RowKey("run", "c", run_id="r-2")
SESSION = RowKey("session", "c", session_id="s")
GLOBAL = RowKey("global", "c")
TICK = RowKey("tick", "c", run_id="r-1", tick=3, row_id="a")
OTHER_TICK_ROW = RowKey("tick", "c", run_id="r-1", tick=3, row_id="b")


def ask(
    *keys: RowKey,
    clog_id: str = "c",
    dedupe_keys: Sequence[str] = (),
    ticks: Sequence[int] = (),
    history: int = 0,
) -> RowsAsk:
    return RowsAsk(clog_id, "s", "r-1", keys, tuple(dedupe_keys), tuple(ticks), history)


def answer(*keys: RowKey) -> RowsAnswer:
    return RowsAnswer({key: StoredRow(7, "1") for key in keys}, {}, ())


def having_read(first: RowsAsk, *found: RowKey) -> Ledger:
    """A ledger after its clog's one read; `found` are rows read by key or by tick."""
    ledger = Ledger()
    assert ledger.answer_for(first) is None
    ledger.record_read(first, answer(*first.keys, *found))
    return ledger


def test_the_first_read_is_still_to_be_made() -> None:
    assert Ledger().answer_for(ask(RUN)) is None


COVERED: dict[str, tuple[RowsAsk, RowsAsk]] = {
    "the same rows": (ask(RUN, SESSION), ask(RUN, SESSION)),
    "some of the rows": (ask(RUN, SESSION), ask(SESSION)),
    "no rows": (ask(RUN), ask()),
    "the same keys": (ask(dedupe_keys=["k", "l"]), ask(dedupe_keys=["l"])),
    "the same ticks": (ask(ticks=[1, 2]), ask(ticks=[2])),
    "the same history": (ask(RUN, history=5), ask(history=5)),
    "rows, without the history": (ask(RUN, history=5), ask(RUN)),
}


@pytest.mark.parametrize(("first", "second"), COVERED.values(), ids=COVERED)
def test_a_second_read_of_the_same_rows_uses_the_ledger(first: RowsAsk, second: RowsAsk) -> None:
    ledger = having_read(first)
    known = ledger.answer_for(first)
    assert known is not None
    assert ledger.answer_for(second) is known


SPENT: dict[str, tuple[RowsAsk, RowsAsk]] = {
    "another scope": (ask(RUN), ask(SESSION)),
    "one row more": (ask(RUN), ask(RUN, SESSION)),
    "another run's row": (ask(RUN), ask(OTHER_RUN)),
    "another row of the tick": (ask(TICK), ask(OTHER_TICK_ROW)),
    "another dedupe key": (ask(dedupe_keys=["k"]), ask(dedupe_keys=["l"])),
    "another tick": (ask(ticks=[1]), ask(ticks=[2])),
    "a history": (ask(RUN), ask(RUN, history=1)),
    "another history": (ask(history=5), ask(history=4)),
    "anything after nothing": (ask(), ask(RUN)),
}


@pytest.mark.parametrize(("first", "second"), SPENT.values(), ids=SPENT)
def test_a_second_read_of_anything_else_is_refused(first: RowsAsk, second: RowsAsk) -> None:
    with pytest.raises(ReadSpent, match="clog 'c' has used its one read of this tick"):
        having_read(first).answer_for(second)


def test_a_row_that_was_read_by_its_dedupe_key_may_be_read_again_by_its_run() -> None:
    ledger = having_read(ask(dedupe_keys=["k"]), OTHER_RUN)
    assert ledger.answer_for(ask(OTHER_RUN)) is not None


def test_a_row_read_exactly_may_be_written_once() -> None:
    ledger = having_read(ask(RUN, SESSION))
    ledger.record_write("c", [RUN, SESSION], [])
    with pytest.raises(WriteSpent, match="clog 'c' has used its one write of this tick"):
        ledger.record_write("c", [RUN], [])


def test_an_empty_write_is_the_one_write_too() -> None:
    ledger = having_read(ask(RUN))
    ledger.record_write("c", [], [])
    for keys in ([RUN], []):
        with pytest.raises(WriteSpent):
            ledger.record_write("c", keys, [])


def test_a_row_found_by_its_dedupe_key_may_be_written() -> None:
    ledger = having_read(ask(dedupe_keys=["k"]), OTHER_RUN)
    ledger.record_write("c", [OTHER_RUN], [])
    assert ledger.writers() == {"c"}


NAMED = {
    "row of run r-1": RUN,
    "row of run r-2": OTHER_RUN,
    "session row": SESSION,
    "global row": GLOBAL,
    "row 'a' of tick 3": TICK,
}


@pytest.mark.parametrize(("name", "key"), NAMED.items(), ids=NAMED)
def test_a_row_that_was_not_read_cannot_be_written_and_is_named(name: str, key: RowKey) -> None:
    read = [other for other in (RUN, OTHER_RUN, SESSION, GLOBAL, TICK) if other != key]
    for ledger in (Ledger(), having_read(ask(*read)), having_read(ask(history=9))):
        with pytest.raises(NotRead, match=f"clog 'c' must read the {name} in this tick before it writes it"):
            ledger.record_write("c", [key], [])


def test_a_refused_write_does_not_spend_the_one_write() -> None:
    ledger = having_read(ask(RUN))
    with pytest.raises(NotRead):
        ledger.record_write("c", [RUN, SESSION], [])
    ledger.record_write("c", [RUN], [])


def test_an_absent_row_that_was_read_may_be_written() -> None:
    ledger = Ledger()
    ledger.record_read(ask(RUN), RowsAnswer({RUN: ABSENT}, {}, ()))
    assert ledger.row("c", RUN).version == 0
    ledger.record_write("c", [RUN], [])


def test_a_tick_may_be_deleted_only_if_it_was_read_whole() -> None:
    ledger = having_read(ask(RUN, ticks=[1]))
    with pytest.raises(NotRead, match=r"must read tick 2 with ticks=\[2\] before it deletes it"):
        ledger.record_write("c", [], [1, 2])
    ledger.record_write("c", [], [1])


def test_history_unlocks_no_tick() -> None:
    with pytest.raises(NotRead, match="must read tick 1 "):
        having_read(ask(history=9)).record_write("c", [], [1])
    with pytest.raises(NotRead, match="must read tick 1 "):
        Ledger().record_write("c", [], [1])


def test_every_clog_has_its_own_page() -> None:
    ledger = having_read(ask(RUN))
    mine = RowKey("run", "d", run_id="r-1")
    assert ledger.answer_for(ask(mine, clog_id="d")) is None
    ledger.record_read(ask(mine, clog_id="d"), answer(mine))
    ledger.record_write("d", [mine], [])
    assert ledger.writers() == {"d"}
    ledger.record_write("c", [RUN], [])
    assert ledger.writers() == {"c", "d"}


def test_a_clog_cannot_write_what_another_has_read() -> None:
    with pytest.raises(NotRead, match="clog 'd'"):
        having_read(ask(RUN)).record_write("d", [RUN], [])


def test_a_write_that_was_rolled_back_can_be_made_again() -> None:
    ledger = having_read(ask(RUN))
    ledger.record_write("c", [RUN], [])
    ledger.unspend_write("c")
    assert ledger.writers() == frozenset()
    ledger.record_write("c", [RUN], [])
    with pytest.raises(WriteSpent):
        ledger.record_write("c", [RUN], [])


@pytest.mark.parametrize(
    ("key", "is_free"),
    [
        (("c", "s", "free"), True),
        (("c", "s", "held"), False),
        (("c", "s", "unread"), False),
        (("c", "t", "free"), False),
        (("d", "s", "free"), False),
    ],
)
def test_a_key_is_known_to_be_free_if_the_one_read_found_it_free(key: tuple[str, str, str], is_free: bool) -> None:
    ledger = Ledger()
    ledger.record_read(ask(dedupe_keys=["free", "held"]), RowsAnswer({}, {"free": None, "held": "r-2"}, ()))
    assert ledger.has_read_as_free(*key) is is_free
