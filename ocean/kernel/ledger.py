"""The ledger of one tick: one read and one write per clog, and only rows that were read may be written. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from ocean.kernel.store.claims import RowsAnswer, RowsAsk
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
    """One page per clog: all calls of a tick that run a clog's code share its page, however they are nested."""

    pages: dict[str, _Page] = field(default_factory=dict)

    def _page(self, clog_id: str) -> _Page:
        page = self.pages.get(clog_id)
        if page is None:
            page = self.pages[clog_id] = _Page()
        return page

    def answer_for(self, ask: RowsAsk) -> RowsAnswer | None:
        """Return the result of the clog's one read if it covers `ask`, or None if the clog has not read yet."""
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
                f"clog {ask.clog_id!r} has used its one read of this tick, which did not name these rows; "
                "name all rows in one read"
            )
        return page.answer

    def row(self, clog_id: str, key: RowKey) -> StoredRow:
        """Return a row as this tick has read it, or raise `NotRead`."""
        page = self._page(clog_id)
        if page.answer is None or key not in page.answer.rows:
            raise NotRead(f"clog {clog_id!r} must read the {_name(key)} in this tick before it writes it")
        return page.answer.rows[key]

    def has_read_as_free(self, clog_id: str, session_id: str, dedupe_key: str) -> bool:
        """Return whether the clog's one read found the dedupe key unused."""
        page = self._page(clog_id)
        if page.ask is None or page.answer is None or page.ask.session_id != session_id:
            return False
        held = page.answer.run_by_dedupe_key
        return dedupe_key in held and held[dedupe_key] is None

    def record_read(self, ask: RowsAsk, answer: RowsAnswer) -> None:
        page = self._page(ask.clog_id)
        page.ask, page.answer = ask, answer

    def record_write(self, clog_id: str, keys: Iterable[RowKey], ticks: Iterable[int]) -> None:
        """Record the one write. Its rows and ticks must all have been named in the one read."""
        page = self._page(clog_id)
        if page.has_written:
            raise WriteSpent(f"clog {clog_id!r} has used its one write of this tick; write all rows at once")
        for key in keys:
            self.row(clog_id, key)
        named = page.ask.ticks if page.ask is not None else ()
        for tick in ticks:
            if tick not in named:
                raise NotRead(f"clog {clog_id!r} must read tick {tick} with ticks=[{tick}] before it deletes it")
        page.has_written = True

    def unspend_write(self, clog_id: str) -> None:
        """Undo `record_write` for a nested call that was rolled back."""
        self._page(clog_id).has_written = False

    def writers(self) -> frozenset[str]:
        return frozenset(clog_id for clog_id, page in self.pages.items() if page.has_written)


def _name(key: RowKey) -> str:
    match key.scope:
        case "run":
            return f"row of run {key.run_id}"
        case "tick":
            return f"row {key.row_id!r} of tick {key.tick}"
        case "session" | "global":
            return f"{key.scope} row"
        case _:
            assert_never(key.scope)
