"""Read the tables: parse the query of a GET strictly, list the runs by their attributes, and show their rows."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clogs.ops.errors import NO_COLUMN, wrong
from clogs.ops.records import ATTEMPTS, POLICY, Row
from clogs.ops.tables import ACTION_STATUS, POLICY_COLUMNS, POLICY_TABLE, Table
from ocean import Ocean, Refuse, RunInfo, RunStatus, Within

MOST_ROWS = 1_000
OPERATORS = ("eq", "in", "is", "not")
AT_ONCE = 100
"""How many rows one call reads."""
POLICY_QUERY_TABLE = Table(POLICY_TABLE, POLICY, POLICY_COLUMNS, {"key": "key"}, {"key": None, "updated_at": None})


@dataclass(slots=True)
class TableQuery:
    filters: dict[str, Any] = field(default_factory=dict)
    ids: list[str] | None = None
    order: str = ""
    is_descending: bool = True
    select: tuple[str, ...] = ()
    limit: int = 100
    cursor: str | None = None


def parse_query(table: Table, pairs: Iterable[tuple[str, str]]) -> TableQuery:
    """Parse `status=eq.queued&order=created_at.desc&select=id,status&limit=10`; a plain value means `eq.`."""
    first = next(iter(table.orders))
    query = TableQuery(order=first, is_descending=first.endswith("_at"))
    seen: set[str] = set()
    for name, text in pairs:
        if name in seen:
            raise wrong(f"{name} must be given once; use {name}=in.(a,b) for several values")
        seen.add(name)
        match name:
            case "order":
                query.order, query.is_descending = _order(table, text)
            case "select":
                query.select = _select(table.columns, text)
            case "limit":
                query.limit = _limit(text)
            case "cursor":
                query.cursor = text
            case "id":
                query.ids = _values(name, text)
            case _:
                _filter(query, table, name, text)
    return query


def _filter(query: TableQuery, table: Table, name: str, text: str) -> None:
    if name not in table.filters and not (name == "status" and "status" in table.columns):
        known = ", ".join(["id", *table.filters])
        raise _no_column(f"{table.name} cannot be filtered by {name!r}; filter by {known}", name)
    if name.endswith("_at"):
        if text not in ("is.null", "not.is.null"):
            raise wrong(f"{name} must be is.null or not.is.null, got {text!r}")
        query.filters[name] = text == "not.is.null"
    else:
        query.filters[name] = _values(name, text)


def _values(name: str, text: str) -> list[str]:
    operator, dot, value = text.partition(".")
    if not dot or operator not in OPERATORS:
        return [text]
    if operator == "eq":
        return [value]
    if operator == "in" and value.startswith("(") and value.endswith(")"):
        return value[1:-1].split(",")
    raise wrong(f"{name} must be eq.VALUE or in.(A,B), got {text!r}")


def _order(table: Table, text: str) -> tuple[str, bool]:
    column, _, direction = text.partition(".")
    if column not in table.orders:
        raise _no_column(f"{table.name} cannot be ordered by {column!r}; order by {', '.join(table.orders)}", column)
    if direction not in ("", "asc", "desc"):
        raise wrong(f"order must be {column}.asc or {column}.desc, got {text!r}")
    return column, direction == "desc"


def _select(columns: Collection[str], text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in columns:
            raise _no_column(f"there is no column {name!r}; there are {', '.join(columns)}", name)
    return names


def _limit(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 4 or not 1 <= int(text) <= MOST_ROWS:
        raise wrong(f"limit must be between 1 and {MOST_ROWS}, got {text!r}")
    return int(text)


def _no_column(message: str, name: str) -> Refuse:
    return Refuse(message, code=NO_COLUMN, http_status=400, details={"column": name})


async def list_rows(ocean: Ocean, project: str, table: Table, query: TableQuery) -> tuple[list[Row], str | None]:
    """Return a page of a table, and the cursor of the next one."""
    if query.ids is not None:
        found = [await ocean.get_run(id) for id in dict.fromkeys(query.ids) if id]
        runs = [run for run in found if run is not None and _matches(run, project, table, query)]
        return await shown(ocean, project, table, runs[: query.limit]), None
    runs, cursor = [], query.cursor
    while len(runs) < query.limit:
        page = await _page(ocean, project, table, query, cursor, min(query.limit - len(runs), AT_ONCE))
        runs += page.runs
        cursor = page.next_cursor
        if cursor is None:
            break
    return await shown(ocean, project, table, runs), cursor


async def _page(ocean: Ocean, project: str, table: Table, query: TableQuery, cursor: str | None, limit: int) -> Any:
    statuses, attributes = _split_filters(table, query)
    by = table.orders[query.order]
    order: Literal["newest", "oldest", "ascending", "descending"]
    if by is not None:
        order = "descending" if query.is_descending else "ascending"
        attributes[by] = Within(gte=0)
    else:
        order = "newest" if query.is_descending else "oldest"
    return await ocean.list_runs(
        clog_id=table.clog_id, session_id=project, status=statuses, attributes=attributes, order=order, limit=limit,
        cursor=cursor,
    )  # fmt: skip


def _split_filters(table: Table, query: TableQuery) -> tuple[list[RunStatus] | None, dict[str, Any]]:
    """Split the filters into statuses and attributes: the status of an attempt is that of its run."""
    filters = dict(query.filters)
    statuses = _run_statuses(filters.pop("status")) if table.clog_id == ATTEMPTS and "status" in filters else None
    return statuses, {table.filters[name]: value for name, value in filters.items()}


def _run_statuses(wanted: Iterable[str]) -> list[RunStatus]:
    return [status for status in RunStatus if ACTION_STATUS.get(status, "started") in wanted]


def _matches(run: RunInfo, project: str, table: Table, query: TableQuery) -> bool:
    if run.session_id != project or run.clog_id != table.clog_id:
        return False
    statuses, attributes = _split_filters(table, query)
    if table.clog_id == ATTEMPTS and "started_at" not in run.attributes:
        return False
    return (statuses is None or run.status in statuses) and all(
        run.attributes.get(name) in (value if isinstance(value, list) else [value])
        for name, value in attributes.items()
    )


async def shown(ocean: Ocean, project: str, table: Table, runs: Sequence[RunInfo]) -> list[Row]:
    """Return the rows of these runs in the table's columns. Before a record's first tick, its row is its input."""
    rows: dict[str, Row] = {}
    for begin in range(0, len(runs), AT_ONCE):
        ids = [run.run_id for run in runs[begin : begin + AT_ONCE]]
        rows |= await ocean.call_clog(clog_id=table.clog_id, session_id=project, method="show", payload=ids)
    for run in runs:
        if run.run_id not in rows:
            rows[run.run_id] = (await ocean.list_inputs(run.run_id, limit=1))[0].body
    return [table.shown(run, rows[run.run_id]) for run in runs]


def policy_query(rows: list[Row], pairs: Iterable[tuple[str, str]]) -> list[Row]:
    ask: TableQuery = parse_query(POLICY_QUERY_TABLE, pairs)
    wanted = ask.filters.get("key")
    found = [row for row in rows if wanted is None or row["key"] in wanted]
    found.sort(key=lambda row: str(row[ask.order]), reverse=ask.is_descending)
    names = ask.select or POLICY_COLUMNS
    return [{name: row[name] for name in names} for row in found[: ask.limit]]
