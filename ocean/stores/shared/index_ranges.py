"""From a run filter to ranges of one index, each already in the order of the list.

A set of values becomes one range per value, so each range starts with equalities and ends with the columns of the
order: the database walks it, sorts nothing, and stops at the end of the page. Conditions that the index does not cover
are checked for each row. Statements are built from fixed pieces only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from ocean.state.filters import RunFilter, Span
from ocean.state.records import ENDED, RunStatus

Key = tuple[int | str, ...]
"""The position of a run in the order: the values of the order's columns, its id last."""


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """Ranges of one index, one for each combination of values from `sets`; a set of None stands for every clog.

    `order` are the columns that come next in the index, and `span` limits the first of them. The index contains only
    rows in which `present` is not null.
    """

    table: Literal["runs r", "ocean_attributes a"]
    index: str
    sets: Mapping[str, tuple[str, ...] | None]
    order: tuple[str, ...]
    span: Span[Any]
    covers: frozenset[str]
    """The parts of the filter that the ranges already satisfy."""
    present: str | None = None


@dataclass(frozen=True, slots=True)
class RangeBound:
    """The start or end of a range: how the first columns of its order compare, and the parameters they compare with."""

    sign: str
    places: tuple[str, ...]


class Dialect(Protocol):
    """The differences between the databases' SQL, and how each is made to use the chosen index."""

    def parameter(self, number: int, value: Any) -> str:
        """The placeholder of a statement's value, counted from 1."""

    def from_clause(self, choice: IndexChoice) -> str: ...

    def join(self, table: str) -> str:
        """Join a second table, in which one row is looked up for each row of the first."""

    def range_conditions(
        self, choice: IndexChoice, fixed: Mapping[str, str], low: RangeBound | None, high: RangeBound | None
    ) -> list[str]:
        """The conditions of one range. `fixed` has the value that each column of the sets equals."""

    def order_columns(self, choice: IndexChoice) -> tuple[str, ...]: ...

    def without_index(self, column: str) -> str:
        """A column, written so that no index is used for it, where the ranges leave a choice."""

    def without_any_index(self, column: str) -> str:
        """A text column, written so that no index can be used for it."""

    def flag(self, column: str, is_set: bool) -> str:
        """The condition on a flag, as in the predicate of a partial index."""


@dataclass(slots=True)
class QueryBuilder:
    """Conditions and their values, added one by one."""

    dialect: Dialect
    conditions: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def value(self, value: Any) -> str:
        self.values.append(value)
        return self.dialect.parameter(len(self.values), value)

    def bound(self, sign: str, values: Key | None) -> RangeBound | None:
        return None if values is None else RangeBound(sign, tuple(map(self.value, values)))

    def any_of(self, column: str, values: tuple[Any, ...]) -> str:
        return f"{column} IN ({', '.join(map(self.value, values))})"


def order_of(where: RunFilter) -> str:
    """What the runs are ordered by. A cursor is valid for one order."""
    if where.ranged is not None:
        return f"attribute {where.ranged[0]}"
    return "creation" if where.ended.is_any else "end"


def choose_index(where: RunFilter) -> IndexChoice:
    """Choose the index by which the filter's runs are found. No two of its ranges have a run in common."""
    if where.ranged is not None:
        return _by_range(where, *where.ranged)
    if not where.ended.is_any:
        return _by_end(where)
    if where.end_incomplete:
        return _by_creation("runs_end_incomplete", where)
    if where.parent_run_ids is not None:
        choice = _by_creation("runs_parent", where, parent_run_id=where.parent_run_ids, status=_statuses(where))
        return replace(choice, present="r.parent_run_id")
    if where.attributes:
        return _by_attribute(where)
    if where.session_ids is not None:
        sets = {"session_id": where.session_ids, "clog_id": where.clog_ids, "status": _statuses(where)}
        return _by_creation("runs_session", where, **sets)
    if where.clog_ids is not None or where.statuses is not None:
        return _by_creation("runs_clog", where, clog_id=where.clog_ids, status=_statuses(where))
    return _by_creation("runs_created", where)


def _by_creation(index: str, where: RunFilter, **sets: tuple[str, ...] | None) -> IndexChoice:
    order, covers = ("r.created_at", "r.run_id"), frozenset({*sets, "created"})
    return IndexChoice(
        "runs r", index, {f"r.{column}": values for column, values in sets.items()}, order, where.created, covers
    )


def _by_end(where: RunFilter) -> IndexChoice:
    ended = tuple(status for status in _statuses(where) if status in ENDED)
    sets = {"r.clog_id": where.clog_ids, "r.status": ended}
    order, covers = ("r.ended_at", "r.run_id"), frozenset({"clog_id", "status", "ended"})
    return IndexChoice("runs r", "runs_clog_ended", sets, order, where.ended, covers, present="r.ended_at")


def _by_attribute(where: RunFilter) -> IndexChoice:
    """Use the index for the first attribute of the filter; the others are looked up."""
    name, keys = next(iter(where.attributes.items()))
    sets = {"a.clog_id": where.clog_ids or (), "a.name": (name,), "a.sort_key": keys}
    order, covers = ("a.created_at", "a.run_id"), frozenset({"clog_id", "created", _part(name)})
    return IndexChoice("ocean_attributes a", "ocean_attributes_value", sets, order, where.created, covers)


def _by_range(where: RunFilter, name: str, span: Span[str]) -> IndexChoice:
    sets = {"a.clog_id": where.clog_ids or (), "a.name": (name,)}
    order, covers = ("a.sort_key", "a.created_at", "a.run_id"), frozenset({"clog_id", _part(name)})
    return IndexChoice("ocean_attributes a", "ocean_attributes_value", sets, order, span, covers)


def _part(attribute: str) -> str:
    """The name of an attribute as a part of a filter, distinct from a column of the same name."""
    return f"attribute {attribute}"


def _statuses(where: RunFilter) -> tuple[RunStatus, ...]:
    return tuple(RunStatus) if where.statuses is None else where.statuses


def keys_sql(
    builder: QueryBuilder,
    choice: IndexChoice,
    fixed: Mapping[str, str],
    where: RunFilter,
    after: Key | None,
    is_descending: bool,
) -> str:
    """The statement that selects the keys of one range, starting after `after`."""
    dialect = builder.dialect
    builder.conditions += dialect.range_conditions(choice, fixed, *_bounds(builder, choice.span, after, is_descending))
    needs_run_row = _add_run_conditions(builder, where, choice.covers)
    _add_attribute_conditions(builder, where, choice)
    source = dialect.from_clause(choice)
    if needs_run_row and choice.table != "runs r":
        source += f" {dialect.join('runs r')} ON r.run_id = a.run_id"
    conditions = f" WHERE {' AND '.join(builder.conditions)}" if builder.conditions else ""
    order = order_by(dialect.order_columns(choice), is_descending)
    return f"SELECT {', '.join(choice.order)} FROM {source}{conditions} ORDER BY {order}"


def order_by(columns: Iterable[str], is_descending: bool) -> str:
    return ", ".join(f"{column} {'DESC' if is_descending else 'ASC'}" for column in columns)


def row_comparison(columns: Sequence[str], sign: str, places: Sequence[str]) -> str:
    """Compare as rows: by the first column, then by the next."""
    return f"({', '.join(columns[: len(places)])}) {sign} ({', '.join(places)})"


def _bounds(
    builder: QueryBuilder, span: Span[Any], after: Key | None, is_descending: bool
) -> tuple[RangeBound | None, RangeBound | None]:
    """The bounds of the span. The cursor replaces the bound that it has passed: with both, the database might start at
    the wrong one."""
    low: Key | None = None if span.low is None else (span.low,)
    high: Key | None = None if span.high is None else (span.high,)
    above, below = ">=" if span.has_low else ">", "<=" if span.has_high else "<"
    if after is not None and is_descending and span.goes_up_to(after[0]):
        high, below = after, "<"
    elif after is not None and not is_descending and span.goes_down_to(after[0]):
        low, above = after, ">"
    return builder.bound(above, low), builder.bound(below, high)


def _add_run_conditions(builder: QueryBuilder, where: RunFilter, covers: frozenset[str]) -> bool:
    """Add the conditions on the run's row; returns whether there are any."""
    before = len(builder.conditions)
    sets = {
        "clog_id": where.clog_ids,
        "session_id": where.session_ids,
        "status": where.statuses,
        "parent_run_id": where.parent_run_ids,
    }
    # The index of runs that ended incomplete begins with no equality, so an index of a clog's runs would fit as well.
    bare = builder.dialect.without_any_index if where.end_incomplete else builder.dialect.without_index
    for column, values in sets.items():
        if values is not None and column not in covers:
            builder.conditions.append(builder.any_of(bare(f"r.{column}"), values))
    if where.end_incomplete is not None:
        builder.conditions.append(builder.dialect.flag("r.end_incomplete", where.end_incomplete))
    for name, span in (("created", where.created), ("ended", where.ended)):
        if name not in covers:
            column = builder.dialect.without_index(f"r.{name}_at")
            if span.low is not None:
                builder.conditions.append(f"{column} >= {builder.value(span.low)}")
            if span.high is not None:
                builder.conditions.append(f"{column} < {builder.value(span.high)}")
    return len(builder.conditions) > before


def _add_attribute_conditions(builder: QueryBuilder, where: RunFilter, choice: IndexChoice) -> None:
    for name, keys in where.attributes.items():
        if _part(name) not in choice.covers:
            builder.conditions.append(
                f"EXISTS (SELECT 1 FROM ocean_attributes b WHERE b.run_id = {choice.order[-1]} "
                f"AND b.name = {builder.value(name)} AND {builder.any_of('b.sort_key', keys)})"
            )
