"""The ledger of one tick, pure: one read and one write per clog, and only rows read exactly may be written."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ocean.kernel.store import RowsAnswer, RowsAsk
from ocean.state.effects import RowKey, StoredRow
from ocean.state.errors import NotRead, ReadSpent, WriteSpent


@dataclass(slots=True)
class _Page:
    """What one clog has read and whether it has written."""

    ask: RowsAsk | None = None
    answer: RowsAnswer | None = None
    has_written: bool = False


@dataclass(slots=True)
class Ledger:
    """Belongs to the (tick, clog) pair: nested calls, self-calls and A→B→A share a clog's page."""

    pages: dict[str, _Page] = field(default_factory=dict)

    def _page(self, clog_id: str) -> _Page:
        page = self.pages.get(clog_id)
        if page is None:
            page = self.pages[clog_id] = _Page()
        return page

    def answer_for(self, ask: RowsAsk) -> RowsAnswer | None:
        """The answer of the one read if it covers `ask`, None if that read is still to be made."""
        page = self._page(ask.clog_id)
        if page.ask is None or page.answer is None:
            return None
        first = page.ask
        covered = (
            set(ask.keys) <= page.answer.rows.keys()
            and set(ask.dedupe_keys) <= set(first.dedupe_keys)
            and set(ask.ticks) <= set(first.ticks)
            and ask.history in (0, first.history)
        )
        if not covered:
            raise ReadSpent(
                f"clog {ask.clog_id!r} has used its one read of this tick, and it did not name these rows; "
                "name all rows in one read"
            )
        return page.answer

    def row(self, clog_id: str, key: RowKey) -> StoredRow:
        """A row as this tick has read it, or `NotRead`."""
        page = self._page(clog_id)
        if page.answer is None or key not in page.answer.rows:
            raise NotRead(f"clog {clog_id!r} writes the {_name(key)} without having read exactly it in this tick")
        return page.answer.rows[key]

    def has_read_as_free(self, clog_id: str, session_id: str, dedupe_key: str) -> bool:
        """Whether the clog's one read has said that nobody holds a dedupe key."""
        page = self._page(clog_id)
        if page.ask is None or page.answer is None or page.ask.session_id != session_id:
            return False
        held = page.answer.run_by_dedupe_key
        return dedupe_key in held and held[dedupe_key] is None

    def record_read(self, ask: RowsAsk, answer: RowsAnswer) -> None:
        page = self._page(ask.clog_id)
        page.ask, page.answer = ask, answer

    def record_write(self, clog_id: str, keys: Iterable[RowKey], ticks: Iterable[int]) -> None:
        """Spend the one write, on rows and ticks that the one read has named exactly."""
        page = self._page(clog_id)
        if page.has_written:
            raise WriteSpent(f"clog {clog_id!r} has used its one write of this tick; write all rows at once")
        for key in keys:
            self.row(clog_id, key)
        named = page.ask.ticks if page.ask is not None else ()
        for tick in ticks:
            if tick not in named:
                raise NotRead(f"clog {clog_id!r} deletes tick {tick} without having read it with ticks=[{tick}]")
        page.has_written = True

    def unspend_write(self, clog_id: str) -> None:
        """A nested call was rolled back: its write did not happen."""
        self._page(clog_id).has_written = False

    def writers(self) -> frozenset[str]:
        return frozenset(clog_id for clog_id, page in self.pages.items() if page.has_written)


def _name(key: RowKey) -> str:
    match key.scope:
        case "run":
            return f"row of run {key.run_id}"
        case "tick":
            return f"row {key.row_id!r} of tick {key.tick}"
        case scope:
            return f"{scope} row"
