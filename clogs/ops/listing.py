"""Reading the tables: runs by their attributes, each with its row."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from clogs.ops.asking import Asked
from clogs.ops.columns import ACTION_STATUS, Table
from clogs.ops.records import ATTEMPTS, Row
from ocean import Ocean, RunInfo, RunStatus, Within

AT_ONCE = 100
"""So many rows are read by one call."""


async def list_rows(ocean: Ocean, project: str, table: Table, asked: Asked) -> tuple[list[Row], str | None]:
    """A page of a table, and where the next one begins."""
    if asked.ids is not None:
        found = [await ocean.get_run(id) for id in dict.fromkeys(asked.ids) if id]
        runs = [run for run in found if run is not None and _is_meant(run, project, table, asked)]
        return await shown(ocean, project, table, runs[: asked.limit]), None
    runs, cursor = [], asked.cursor
    while len(runs) < asked.limit:
        page = await _page(ocean, project, table, asked, cursor, min(asked.limit - len(runs), AT_ONCE))
        runs += page.runs
        cursor = page.next_cursor
        if cursor is None:
            break
    return await shown(ocean, project, table, runs), cursor


async def _page(ocean: Ocean, project: str, table: Table, asked: Asked, cursor: str | None, limit: int) -> Any:
    statuses, attributes = _sorted_out(table, asked)
    by = table.orders[asked.order]
    order: Literal["newest", "oldest", "ascending", "descending"]
    if by is not None:
        order = "descending" if asked.is_descending else "ascending"
        attributes[by] = Within(gte=0)
    else:
        order = "newest" if asked.is_descending else "oldest"
    return await ocean.list_runs(
        clog_id=table.clog_id, session_id=project, status=statuses, attributes=attributes, order=order, limit=limit,
        cursor=cursor,
    )  # fmt: skip


def _sorted_out(table: Table, asked: Asked) -> tuple[list[RunStatus] | None, dict[str, Any]]:
    """Attributes, but for the status of an attempt, which is its run's."""
    filters = dict(asked.filters)
    statuses = _run_statuses(filters.pop("status")) if table.clog_id == ATTEMPTS and "status" in filters else None
    return statuses, {table.filters[name]: value for name, value in filters.items()}


def _run_statuses(wanted: Iterable[str]) -> list[RunStatus]:
    return [status for status in RunStatus if ACTION_STATUS.get(status, "started") in wanted]


def _is_meant(run: RunInfo, project: str, table: Table, asked: Asked) -> bool:
    if run.session_id != project or run.clog_id != table.clog_id:
        return False
    statuses, attributes = _sorted_out(table, asked)
    if table.clog_id == ATTEMPTS and "started_at" not in run.attributes:
        return False
    return (statuses is None or run.status in statuses) and all(
        run.attributes.get(name) in (value if isinstance(value, list) else [value])
        for name, value in attributes.items()
    )


async def shown(ocean: Ocean, project: str, table: Table, runs: Sequence[RunInfo]) -> list[Row]:
    """Their rows in the table's columns. Of a record that is just created, the row is still its input."""
    rows: dict[str, Row] = {}
    for begin in range(0, len(runs), AT_ONCE):
        ids = [run.run_id for run in runs[begin : begin + AT_ONCE]]
        rows |= await ocean.call_clog(clog_id=table.clog_id, session_id=project, method="show", payload=ids)
    for run in runs:
        if run.run_id not in rows:
            rows[run.run_id] = (await ocean.list_inputs(run.run_id, limit=1))[0].body
    return [table.shown(run, rows[run.run_id]) for run in runs]
