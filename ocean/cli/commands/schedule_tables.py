"""Schedules as tables. Pure: the current time is an argument."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from ocean import RunInfo
from ocean.cli.output import cell, table
from ocean.cli.tables import due, moment, status, value


def schedules_table(runs: Sequence[RunInfo], now: int) -> Table:
    """Return the table of `ocean schedule list`."""
    made = table("NAME", "SESSION", "TIMES", "FIRES", "STATUS", "FIRED", "NEXT", folds=("NAME", "SESSION", "TIMES"))
    for run in runs:
        attributes = run.attributes
        next_in = "-" if run.is_ended else due(attributes.get("next_at"), now)
        made.add_row(
            cell(attributes.get("name") or run.run_id),
            cell(run.session_id),
            cell(attributes.get("plan", "-")),
            cell(attributes.get("target", "-")),
            status(run),
            str(attributes.get("fired", 0)),
            next_in,
        )
    return made


def schedule_table(shown: Mapping[str, Any], now: int) -> Table:
    """Return the table of `ocean schedule show`."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    next_at, fired_at = shown["next_at"], shown["fired_at"]
    rows = {
        "run": shown["run_id"],
        "status": f"{shown['status']} (paused)" if shown["paused"] else shown["status"],
        "times": shown["says"],
        "next": None if next_at is None else f"{moment(next_at)} ({due(next_at, now)})",
        "fired": f"{shown['fired']}, last for {moment(fired_at)}" if fired_at else str(shown["fired"]),
        "skipped": shown["skipped"] or None,
        "queued": len(shown["queued"]) or None,
        "spec": value(shown["spec"]),
    }
    for name, text in rows.items():
        if text is not None:
            made.add_row(name, cell(text))
    return made
