"""Records as text: tables and lines. Pure: the current time is an argument."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from ocean import (
    AdvanceResult,
    ApiKey,
    BulkProgress,
    ClogRecord,
    DryRun,
    Event,
    Explanation,
    Input,
    KeyInfo,
    RunInfo,
    RunStatus,
    StreamedBy,
    TickInfo,
)
from ocean.cli.output import cell, printable, table
from ocean.state.outcomes import place_text

STYLES = {
    RunStatus.IDLE: "dim",
    RunStatus.PENDING: "yellow",
    RunStatus.ACTIVE: "cyan",
    RunStatus.WAITING: "blue",
    RunStatus.DONE: "green",
    RunStatus.FAILED: "bold red",
}
LONGEST_VALUE = 200
END_OF_CALENDAR = 253_402_300_800_000
"""The year 10000, which Python's calendar does not have."""
STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))


def span(ms: int) -> str:
    """Format a duration in its largest unit: 3d, 5h, 12m, 8s."""
    for size, unit in STEPS:
        if ms >= size:
            return f"{ms // size}{unit}"
    return "0s" if ms < 1 else f"{ms}ms"


def moment(at: int | None) -> str:
    """Format a time in UTC; "-" for None."""
    if at is None:
        return "-"
    if at >= END_OF_CALENDAR:
        return f"{at} ms after 1970"
    return (
        datetime.fromtimestamp(at // 1000, UTC)
        .replace(microsecond=at % 1000 * 1000)
        .isoformat(" ", "milliseconds")[:-6]
        + "Z"
    )


def due(at: int | None, now: int) -> str:
    """Format how long it is until a time: "in 5m", "now", or "-" for None."""
    if at is None:
        return "-"
    return f"in {span(at - now)}" if at > now else "now"


def value(body: Any) -> str:
    """Format a JSON value in one line, cut after 200 characters."""
    text = json.dumps(body, ensure_ascii=False, default=str)
    return printable(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…")


def status(run: RunInfo) -> Text:
    """Format the status of a run, with its colour."""
    text = f"{run.status} (paused)" if run.paused else str(run.status)
    return Text(text, STYLES[run.status])


def runs_table(runs: Sequence[RunInfo], now: int) -> Table:
    """Return the table of `ocean ps`."""
    made = table("RUN", "CLOG", "SESSION", "STATUS", "TICK", "AGE", "DUE", folds=("RUN", "CLOG", "SESSION"))
    for run in runs:
        age, due_in = span(now - run.created_at), due(run.due_at, now)
        made.add_row(cell(run.run_id), cell(run.clog_id), cell(run.session_id), status(run), str(run.tick), age, due_in)
    return made


def run_table(run: RunInfo, now: int) -> Table:
    """Return one run, a field a line. Empty fields are left out."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    shown: dict[str, Any] = {
        "run": run.run_id,
        "clog": run.clog_id,
        "session": run.session_id,
        "status": status(run),
        "tick": run.tick,
        "attempt": f"{run.attempt} of {run.max_attempts or 'any number'}" if run.attempt else None,
        "priority": run.priority,
        "inbox": f"{run.pending_count} not delivered" if run.pending_count else None,
        "created": moment(run.created_at),
        "ended": None if run.ended_at is None else moment(run.ended_at),
        "due": None if run.due_at is None else due(run.due_at, now),
        "deadline": None if run.deadline_at is None else moment(run.deadline_at),
        "locked by": run.locked_by,
        "waits for": run.parked_on and f"key {run.parked_on}",
        "parent": run.parent_run_id,
        "retry of": run.retry_of,
        "queue": run.queue,
        "attributes": value(run.attributes) if run.attributes else None,
        "output": value(run.output) if run.status is RunStatus.DONE else None,
        "error": value({name: part for name, part in run.error.items() if name != "where"}) if run.error else None,
        "raised at": place_text(run.error),
    }
    for name, text in shown.items():
        if text is not None:
            made.add_row(name, text if isinstance(text, Text) else cell(text))
    return made


def traceback_lines(error: Mapping[str, Any] | None) -> list[Text]:
    """Return the traceback of an error, after an empty line; nothing if it has none."""
    text = ((error or {}).get("where") or {}).get("traceback")
    return [Text(), *(cell(line, "dim") for line in text.split("\n"))] if text else []


def ticks_table(ticks: Iterable[TickInfo]) -> Table:
    """Return the ticks of a run."""
    made = table("TICK", "REASON", "OUTCOME", "CALLS", "COMMITTED", "BY", folds=("BY",))
    for tick in ticks:
        committed = moment(tick.committed_at)
        made.add_row(
            str(tick.tick), tick.reason, tick.outcome or "open", str(tick.calls), committed, cell(tick.instance_id)
        )
    return made


def inputs_table(inputs: Iterable[Input]) -> Table:
    """Return the inbox of a run, delivered inputs included."""
    made = table("NO", "KIND", "TICK", "BODY", folds=("BODY",))
    for each in inputs:
        kind = f"{each.kind} {each.timer or each.signal_id or ''}".strip()
        tick = "-" if each.consumed_tick is None else str(each.consumed_tick)
        made.add_row(str(each.number), cell(kind), tick, value(each.body))
    return made


def event_line(event: Event, *, with_run: bool) -> Text:
    """Return an event as one line."""
    line = Text(f"{event.seq:>6}  {moment(event.ts)}  ", "dim")
    if with_run:
        line.append(f"{printable(event.run_id or '-')}  ", "cyan")
    if event.tick is not None:
        line.append(f"tick {event.tick}  ", "dim")
    line.append(printable(event.type), "bold")
    if event.payload not in (None, {}):
        line.append(f"  {value(event.payload)}")
    return line


def obsolete_line(obsolete: StreamedBy, *, with_run: bool) -> Text:
    """Return a line about streamed events that were shown and do not count any more."""
    line = Text(f"{'':>6}  {'':8}  ", "dim")
    if with_run:
        line.append(f"{printable(obsolete.run_id)}  ", "cyan")
    line.append(f"tick {obsolete.tick}  ", "dim")
    step = f" in step {printable(obsolete.step)}" if obsolete.step else ""
    return line.append(f"does not count: what call {obsolete.call} streamed{step}", "yellow")


def api_keys_table(keys: Iterable[ApiKey], now: int) -> Table:
    """Return the table of `ocean keys list`."""
    made = table(
        "KEY", "ACTOR", "SCOPES", "ROLES", "SESSIONS", "CREATED", "STATE", folds=("ACTOR", "ROLES", "SESSIONS")
    )
    for key in keys:
        sessions = "all" if key.sessions is None else ", ".join(key.sessions)
        made.add_row(
            key.key_id,
            cell(key.actor),
            ", ".join(key.scopes),
            cell(", ".join(key.roles) or "-"),
            cell(sessions),
            moment(key.created_at),
            _key_state(key, now),
        )
    return made


def _key_state(key: ApiKey, now: int) -> Text:
    if key.revoked_at is not None:
        return Text("revoked", "dim")
    if key.expires_at is None:
        return Text("valid", "green")
    return Text("expired", "dim") if key.expires_at <= now else Text(f"valid for {span(key.expires_at - now)}", "green")


def holds_lines(explained: Explanation, now: int) -> list[Text]:
    """Return why a run is not claimed, a reason a line; or that it can be claimed now."""
    if explained.is_claimable:
        return [Text("The run is due: the next advance here claims it.", "green")]
    lines = []
    for hold in explained.holds:
        when = "" if hold.until is None else f" ({due(hold.until, now)})"
        lines.append(Text.assemble((hold.code, "yellow"), f": {printable(hold.message)}{when}"))
    return lines


def advance_lines(result: AdvanceResult, now: int) -> list[Text]:
    """Return what `ocean advance` did, and what is due next."""
    outcomes = Counter(outcome.outcome for outcome in result.outcomes)
    each = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    lines = [Text(f"{counted(result.advanced, 'tick')}{f': {each}' if each else ''}")]
    if result.due_now:
        lines.append(Text(f"{result.due_now} due now, the oldest for {span(result.oldest_due_age_ms)}", "yellow"))
    elif result.next_wake_at is not None:
        lines.append(Text(f"next due {due(result.next_wake_at, now)}, at {moment(result.next_wake_at)}"))
    else:
        lines.append(Text("nothing is due"))
    if result.unclaimable:
        lines.append(Text(f"{result.unclaimable} due, but their clogs are not loaded here; see ocean doctor", "yellow"))
    return lines


def dry_run_lines(shown: DryRun) -> list[Text]:
    """Return the next tick as it would be committed, an effect a line."""
    if shown.holds:
        held = [Text(f"  {hold.code}: {printable(hold.message)}") for hold in shown.holds]
        return [Text("The run would not be claimed now:"), *held]
    if shown.end is not None:
        return [Text(f"The run would be ended: {shown.end}.")]
    lines = [Text(f"tick {shown.tick}, call {shown.call}, reason {shown.reason}; nothing is committed", "bold")]
    effects: list[tuple[str, str]] = [("input", value(each.body)) for each in shown.inputs]
    effects += [("event", f"{event.type}  {value(event.payload)}") for event in shown.events]
    for row in shown.rows:
        after = "removed" if row.is_cleared else value(row.after)
        effects.append(
            ("row", f"{row.scope} of {row.clog_id}: {'new' if row.is_new else value(row.before)} -> {after}")
        )
    effects += [("signal", f"to {signal.run_id}  {value(signal.input)}") for signal in shown.signals]
    effects += [("run", f"{run.clog_id} {run.run_id}  {value(run.input)}") for run in shown.runs]
    effects += [("timer", f"{t.name} {'cancelled' if t.at is None else moment(t.at)}") for t in shown.timers]
    effects += [("take", f"{take.n} of {take.key}") for take in shown.takes]
    if shown.attributes:
        effects.append(("attributes", value(dict(shown.attributes))))
    effects += [("delete", f"run {run_id}") for run_id in shown.deleted_runs]
    if shown.stopped_at is not None:
        stop = shown.stopped_at
        effects.append(
            ("stopped", f"at {stop.kind} {stop.name!r} of {stop.clog_id}, which would have an effect outside")
        )
    if shown.outcome is not None:
        effects.append(("outcome", printable(repr(shown.outcome))))
    return lines + [Text.assemble((f"  {name:<10} ", "dim"), printable(text)) for name, text in effects]


def clogs_table(clogs: Iterable[ClogRecord], here: set[str]) -> Table:
    """Return the registered clogs; `here` are the ids of those that are loaded."""
    made = table("CLOG", "VERSION", "LOADED", "KIND", "STATE", folds=("CLOG",))
    for clog in clogs:
        kind = "external" if clog.external else "calls" if clog.has_handler else "methods"
        loaded = "yes" if clog.clog_id in here else "no"
        made.add_row(cell(clog.clog_id), cell(clog.version), loaded, kind, "paused" if clog.paused else "runs")
    return made


def keys_table(keys: Iterable[KeyInfo]) -> Table:
    """Return concurrency keys with their limits and use."""
    made = table("KEY", "LIMIT", "IN USE", "PARKED", folds=("KEY",))
    for key in keys:
        made.add_row(cell(key.key), str(key.limit), str(key.in_use), str(key.parked))
    return made


def bulk_line(verb: str, result: BulkProgress, more: bool = False) -> str:
    """Return how many runs a verb was applied to; `verb` is in the past tense."""
    refused = "".join(f", {count} refused ({code})" for code, count in sorted(result.errors.items()))
    return f"{verb} {counted(result.done, 'run')}{refused}{'; there are more' if more else ''}"


def counted(count: int, noun: str) -> str:
    """Return "1 run" or "2 runs"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
