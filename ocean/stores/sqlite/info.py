"""Runs as their readers see them."""

from collections.abc import Sequence
from typing import Any

from ocean.kernel.attributes import sort_key
from ocean.kernel.records import Run, RunInfo
from ocean.kernel.values import encode
from ocean.stores.rows import info_from
from ocean.stores.sqlite.keys import keys_of
from ocean.stores.sqlite.unit import Unit


def info(u: Unit, run: Run) -> RunInfo:
    details = u.one("get_details", run_id=run.run_id)
    assert details is not None
    attributes = [(row["name"], row["value"]) for row in u.all("get_attributes", run_id=run.run_id)]
    return info_from(run, details, attributes, keys_of(u, run))


def infos(u: Unit, runs: Sequence[Run]) -> list[RunInfo]:
    """A page of them, in two statements."""
    run_ids = encode([run.run_id for run in runs])
    details = {row["run_id"]: row for row in u.all("get_details_of", run_ids=run_ids)}
    attributes: dict[str, list[tuple[str, str]]] = {run.run_id: [] for run in runs}
    for row in u.all("get_attributes_of", run_ids=run_ids):
        attributes[row["run_id"]].append((row["name"], row["value"]))
    return [info_from(run, details[run.run_id], attributes[run.run_id], keys_of(u, run)) for run in runs]


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
