"""Public records of runs."""

from collections.abc import Sequence
from typing import Any

from ocean.state.attributes import sort_key
from ocean.state.records import Run, RunInfo
from ocean.state.values import encode
from ocean.stores.shared.rows import Row, info_from
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.keys import keys_of


class RunDetails:
    """What the public records of some runs need in addition to their rows, read in two statements for all of them."""

    def __init__(self, u: Unit, run_ids: Sequence[str]) -> None:
        self._u = u
        self._attributes: dict[str, list[tuple[str, str]]] = {}
        # A buffered new run has no attributes or keys: writing one of those would have written the buffers first.
        self._details: dict[str, Row] = {}
        for run_id in run_ids:
            buffered = u.buffered_details(run_id)
            if buffered is not None:
                self._details[run_id] = {**buffered, "output": None, "error": None}
        asked = encode([run_id for run_id in run_ids if run_id not in self._details])
        if len(self._details) == len(run_ids):
            return
        # Of the buffered writes, only an end changes stored details.
        query = u.all if any(run.is_ended for run in map(u.find, run_ids) if run is not None) else u.stored
        self._details |= {row["run_id"]: row for row in query("get_details_of", run_ids=asked)}
        for row in u.all("get_attributes_of", run_ids=asked):
            self._attributes.setdefault(row["run_id"], []).append((row["name"], row["value"]))

    def info(self, run: Run) -> RunInfo:
        attributes = self._attributes.get(run.run_id, ())
        return info_from(run, self._details[run.run_id], attributes, keys_of(self._u, run))


def info(u: Unit, run: Run) -> RunInfo:
    return RunDetails(u, [run.run_id]).info(run)


def infos(u: Unit, runs: Sequence[Run]) -> list[RunInfo]:
    details = RunDetails(u, [run.run_id for run in runs])
    return [details.info(run) for run in runs]


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
