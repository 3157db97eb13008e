"""Runs as their readers see them."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from ocean.kernel.attributes import sort_key
from ocean.kernel.records import Run, RunInfo, TickInfo
from ocean.kernel.transitions import due_at
from ocean.kernel.values import decode, encode
from ocean.stores.sqlite.keys import keys_of
from ocean.stores.sqlite.unit import Unit


def info(u: Unit, run: Run) -> RunInfo:
    details = u.one("get_details", run_id=run.run_id)
    assert details is not None
    attributes = {row["name"]: decode(row["value"]) for row in u.all("get_attributes", run_id=run.run_id)}
    return _info(u, run, details, attributes)


def infos(u: Unit, runs: Sequence[Run]) -> list[RunInfo]:
    """A page of them, in two statements."""
    run_ids = encode([run.run_id for run in runs])
    details = {row["run_id"]: row for row in u.all("get_details_of", run_ids=run_ids)}
    attributes: dict[str, dict[str, Any]] = {run.run_id: {} for run in runs}
    for row in u.all("get_attributes_of", run_ids=run_ids):
        attributes[row["run_id"]][row["name"]] = decode(row["value"])
    return [_info(u, run, details[run.run_id], attributes[run.run_id]) for run in runs]


def _info(u: Unit, run: Run, details: sqlite3.Row, attributes: dict[str, Any]) -> RunInfo:
    return RunInfo(
        **{name: getattr(run, name) for name in _SHARED},
        due_at=due_at(run),
        output=decode(details["output"]),
        error=decode(details["error"]),
        attributes=attributes,
        dedupe_key=details["dedupe_key"],
        concurrency_keys=keys_of(u, run),
        retry_of=details["retry_of"],
    )


_SHARED = tuple(name for name in RunInfo.__slots__ if name in Run.__slots__)


def put_attribute(u: Unit, run: Run, name: str, value: Any) -> None:
    u.do(
        "put_attribute",
        run_id=run.run_id,
        name=name,
        clog_id=run.clog_id,
        sort_key=sort_key(name, value),
        value=encode(value),
        created_at=run.created_at,
    )


def tick_from(row: sqlite3.Row) -> TickInfo:
    return TickInfo(**{name: row[name] for name in TickInfo.__slots__})
