"""From a filter to the stretches of indexes that hold its runs, each already in the order asked for.

A set of values becomes one stretch per value, so every one begins with equalities and ends with the columns of the
order: SQLite walks it, sorts nothing, and stops with the page. What no index has is asked of each row on the way.
Statements are put together from fixed pieces only, and each names its index, so no statistics can change the plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ocean.kernel.filters import RunFilter, Span
from ocean.kernel.records import ENDED, RunStatus
from ocean.stores.sqlite.unit import Unit

Key = tuple[int | str, ...]
"""Where a run stands in the order: the values of the order's columns, its id last."""


@dataclass(frozen=True, slots=True)
class Lead:
    """One stretch: the values it fixes, the columns that order it, and the span of the first of them."""

    table: str
    fixed: dict[str, str]
    order: tuple[str, ...]
    span: Span[Any]
    answers: frozenset[str]
    """The parts of the filter that need not be asked of each row."""


@dataclass(slots=True)
class Statement:
    """Conditions with their values, growing."""

    conditions: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def value(self, value: Any) -> str:
        name = f"v{len(self.values)}"
        self.values[name] = value
        return f":{name}"

    def compare(self, columns: tuple[str, ...], sign: str, values: Key) -> None:
        left = ", ".join(columns[: len(values)])
        self.conditions.append(f"({left}) {sign} ({', '.join(map(self.value, values))})")

    def any_of(self, column: str, values: tuple[Any, ...]) -> None:
        self.conditions.append(f"{column} IN ({', '.join(map(self.value, values))})")


def order_of(where: RunFilter) -> str:
    """What the runs are ordered by; a cursor is good for one order."""
    if where.ranged is not None:
        return f"attribute {where.ranged[0]}"
    return "creation" if where.ended.is_any else "end"


def streams(u: Unit, where: RunFilter, after: Key | None, is_descending: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Statements without a run in common; each answers keys in the order asked for, after the one given."""
    if where.is_nothing:
        return
    for lead in _leads(u, where):
        yield _statement(lead, where, after, is_descending)


def _leads(u: Unit, where: RunFilter) -> Iterator[Lead]:
    if where.ranged is not None:
        yield from _by_range(where, *where.ranged)
    elif not where.ended.is_any:
        yield from _by_end(u, where)
    elif where.parent_run_ids is not None:
        for parent_run_id, status in product(where.parent_run_ids, _statuses(where)):
            yield _by_creation("runs_parent", where, parent_run_id=parent_run_id, status=status)
    elif where.attributes:
        yield from _by_attribute(where)
    elif where.session_ids is not None:
        for session_id in where.session_ids:
            for clog_id, status in product(_clogs(u, where, session_id), _statuses(where)):
                yield _by_creation("runs_session", where, session_id=session_id, clog_id=clog_id, status=status)
    elif where.clog_ids is not None or where.statuses is not None:
        for clog_id, status in product(_clogs(u, where), _statuses(where)):
            yield _by_creation("runs_clog", where, clog_id=clog_id, status=status)
    else:
        yield _by_creation("runs_created", where)


def _by_creation(index: str, where: RunFilter, **fixed: str) -> Lead:
    return Lead(
        f"runs r INDEXED BY {index}",
        {f"r.{column}": value for column, value in fixed.items()},
        ("r.created_at", "r.run_id"),
        where.created,
        frozenset({*fixed, "created"}),
    )


def _by_end(u: Unit, where: RunFilter) -> Iterator[Lead]:
    for clog_id, status in product(_clogs(u, where), _statuses(where)):
        if status in ENDED:
            fixed: dict[str, str] = {"r.clog_id": clog_id, "r.status": status}
            order, answers = ("r.ended_at", "r.run_id"), frozenset({"clog_id", "status", "ended"})
            yield Lead("runs r INDEXED BY runs_clog_ended", fixed, order, where.ended, answers)


_ATTRIBUTES = "ocean_attributes a INDEXED BY ocean_attributes_value"


def _by_attribute(where: RunFilter) -> Iterator[Lead]:
    """The attribute named first leads; the others are looked up."""
    name, keys = next(iter(where.attributes.items()))
    for clog_id, key in product(where.clog_ids or (), keys):
        fixed = {"a.clog_id": clog_id, "a.name": name, "a.sort_key": key}
        answers = frozenset({"clog_id", "created", name_of(name)})
        yield Lead(_ATTRIBUTES, fixed, ("a.created_at", "a.run_id"), where.created, answers)


def _by_range(where: RunFilter, name: str, span: Span[str]) -> Iterator[Lead]:
    for clog_id in where.clog_ids or ():
        fixed = {"a.clog_id": clog_id, "a.name": name}
        order = ("a.sort_key", "a.created_at", "a.run_id")
        yield Lead(_ATTRIBUTES, fixed, order, span, frozenset({"clog_id", name_of(name)}))


def name_of(attribute: str) -> str:
    """An attribute among the parts of a filter, told apart from a column of its name."""
    return f"attribute {attribute}"


def _statuses(where: RunFilter) -> tuple[RunStatus, ...]:
    return tuple(RunStatus) if where.statuses is None else where.statuses


def _clogs(u: Unit, where: RunFilter, session_id: str | None = None) -> tuple[str, ...]:
    """The clogs asked for; else those that have runs, found by one probe each."""
    if where.clog_ids is not None:
        return where.clog_ids
    found: list[str] = []
    while True:
        last = found[-1] if found else ""
        if session_id is None:
            row = u.one("next_clog", clog_id=last)
        else:
            row = u.one("next_clog_of_session", session_id=session_id, clog_id=last)
        if row is None:
            return tuple(found)
        found.append(row["clog_id"])


def _statement(lead: Lead, where: RunFilter, after: Key | None, is_descending: bool) -> tuple[str, dict[str, Any]]:
    statement = Statement()
    for column, value in lead.fixed.items():
        statement.conditions.append(f"{column} = {statement.value(value)}")
    _bound(statement, lead, after, is_descending)
    asks_of_runs = _ask_of_runs(statement, where, lead.answers)
    _ask_of_attributes(statement, where, lead)
    join = " CROSS JOIN runs r ON r.run_id = a.run_id" if asks_of_runs and lead.table == _ATTRIBUTES else ""
    direction = "DESC" if is_descending else "ASC"
    sql = (
        f"SELECT {', '.join(lead.order)} FROM {lead.table}{join} WHERE {' AND '.join(statement.conditions) or '1'} "
        f"ORDER BY {', '.join(f'{column} {direction}' for column in lead.order)}"
    )
    return sql, statement.values


def _bound(statement: Statement, lead: Lead, after: Key | None, is_descending: bool) -> None:
    """The span's ends. The cursor replaces the end that it has passed: of two, SQLite might walk from the wrong one."""
    span = lead.span
    low: Key | None = None if span.low is None else (span.low,)
    high: Key | None = None if span.high is None else (span.high,)
    above, below = ">=" if span.has_low else ">", "<=" if span.has_high else "<"
    if after is not None and is_descending and span.goes_up_to(after[0]):
        high, below = after, "<"
    elif after is not None and not is_descending and span.goes_down_to(after[0]):
        low, above = after, ">"
    if low is not None:
        statement.compare(lead.order, above, low)
    if lead.order[0] == "r.ended_at" and (low is None or low == after):
        # Neither an end nor a cursor tells SQLite that the rows are among those that the index has.
        statement.conditions.append("r.ended_at IS NOT NULL")
    if high is not None:
        statement.compare(lead.order, below, high)


def _ask_of_runs(statement: Statement, where: RunFilter, answers: frozenset[str]) -> bool:
    """Conditions on the run's row. The plus keeps SQLite from thinking of an index for them."""
    before = len(statement.conditions)
    sets = {
        "clog_id": where.clog_ids,
        "session_id": where.session_ids,
        "status": where.statuses,
        "parent_run_id": where.parent_run_ids,
    }
    for column, values in sets.items():
        if values is not None and column not in answers:
            statement.any_of(f"+r.{column}", values)
    for name, span in (("created", where.created), ("ended", where.ended)):
        if name not in answers:
            if span.low is not None:
                statement.conditions.append(f"+r.{name}_at >= {statement.value(span.low)}")
            if span.high is not None:
                statement.conditions.append(f"+r.{name}_at < {statement.value(span.high)}")
    return len(statement.conditions) > before


def _ask_of_attributes(statement: Statement, where: RunFilter, lead: Lead) -> None:
    for name, keys in where.attributes.items():
        if name_of(name) not in lead.answers:
            inner = Statement(values=statement.values)
            inner.any_of("b.sort_key", keys)
            statement.conditions.append(
                f"EXISTS (SELECT 1 FROM ocean_attributes b WHERE b.run_id = {lead.order[-1]} "
                f"AND b.name = {inner.value(name)} AND {inner.conditions[0]})"
            )
