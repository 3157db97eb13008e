"""`ocean doctor`: looks at everything that can keep runs from moving, and says what to do about it."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ocean import Clog, Ocean, OceanError, RunInfo
from ocean.cli.output import Screen, cell, table
from ocean.cli.runner import REFUSED, settings_of
from ocean.cli.tables import counted, span
from ocean.compose import store_facts
from ocean.config import load_clogs
from ocean.state.records import StoreFacts

OLDEST_PYTHON = (3, 11)
LATE_MS = 60_000
MOST_LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice` is empty if all is well."""

    check: str
    said: str
    advice: str = ""

    @property
    def is_good(self) -> bool:
        return not self.advice


def before_opening(facts: StoreFacts) -> list[Finding]:
    """What can be seen without touching the database."""
    version = ".".join(map(str, sys.version_info[:3]))
    findings = [
        Finding("python", version, "" if sys.version_info >= OLDEST_PYTHON else "Ocean needs Python 3.11 or newer"),
        Finding(
            "engine",
            f"{facts.engine} {facts.engine_version}",
            "" if facts.is_engine_new_enough else "Ocean needs SQLite 3.38 or PostgreSQL 14, or newer",
        ),
    ]
    schema = Finding("schema", f"{facts.schema} of {facts.newest_schema}")
    if facts.trouble is not None:
        return [*findings, Finding("database", f"{facts.place}: {facts.trouble}", "check --db, and the file's rights")]
    if facts.schema is None and facts.engine != "SQLite":
        found = f"{facts.place} has no tables of Ocean's yet"
        return [*findings, Finding("database", found, "check --db, or make them: ocean migrate")]
    if facts.schema is None:
        return [*findings, Finding("database", f"there is no {facts.place}", "check --db, or make it: ocean migrate")]
    if facts.schema > facts.newest_schema:
        schema = replace(schema, advice="the database is newer than this Ocean: upgrade ocean-runtime")
    elif facts.schema < facts.newest_schema:
        schema = replace(schema, advice="bring it up to date: ocean migrate")
    if facts.engine != "SQLite":
        return [*findings, Finding("database", facts.place), schema]
    journal = Finding("journal", f"{facts.journal_mode}")
    if facts.journal_mode not in ("wal", "memory"):
        journal = replace(journal, advice="Ocean opens the file in WAL mode: ocean migrate; not on a network drive")
    return [*findings, Finding("database", facts.place), schema, journal]


async def once_open(ocean: Ocean, clogs: list[Clog]) -> list[Finding]:
    """What the runs say."""
    agenda = await ocean.advance(budget_ms=0)
    late = agenda.oldest_due_age_ms > LATE_MS
    due = Finding(
        "due",
        f"{counted(agenda.due_now, 'run')} due, the oldest for {span(agenda.oldest_due_age_ms)}",
        "nobody pokes: ocean serve, ocean advance from cron, or a request" if late else "",
    )
    return [due, await _unclaimable(ocean, clogs, agenda.unclaimable), await _parked(ocean), await _lapsed(ocean)]


async def _unclaimable(ocean: Ocean, clogs: list[Clog], count: int) -> Finding:
    here = {clog.clog_id for clog in clogs}
    needed = []
    for clog in await ocean.list_clogs() if count else ():
        if clog.clog_id not in here and not clog.external:
            waiting = await ocean.count_runs(clog_id=clog.clog_id, status=("pending", "active", "waiting"), cap=1_000)
            needed += [f"{clog.clog_id} ({waiting.count})"] if waiting.count else []
    said = f"{counted(count, 'due run')} of clogs that are not loaded here"
    if not needed:
        return Finding("clogs needed", said if count else "none that is not loaded here")
    return Finding("clogs needed", f"{said}: {', '.join(needed)}", "load them with --clogs, or poke where they are")


async def _parked(ocean: Ocean) -> Finding:
    keys = [key for key in await ocean.list_keys(limit=MOST_LOOKED_AT) if key.parked]
    said = ", ".join(f"{key.parked} on {key.key} ({key.in_use} of {key.limit} in use)" for key in keys)
    stuck = [key.key for key in keys if key.limit == 0]
    advice = f"a limit of 0 stops them: ocean limit set {stuck[0]} N" if stuck else ""
    return Finding("parked", said or "none", advice)


async def _lapsed(ocean: Ocean) -> Finding:
    """Locks and leases whose holder has not renewed them: the next poke takes them back."""
    now = ocean.clock.now()
    page = await ocean.list_runs(status="active", order="oldest", limit=MOST_LOOKED_AT)
    lapsed: list[RunInfo] = [run for run in page.runs if (run.lock_expires_at or now) + LATE_MS < now]
    if not lapsed:
        return Finding("lapsed locks", "none")
    said = f"{len(lapsed)}, the first held by {lapsed[0].locked_by}"
    return Finding("lapsed locks", said, "a poke takes them back: ocean advance, with their clogs loaded")


async def examine(screen: Screen, db: str | None, clogs: str | None) -> int:
    findings: list[Finding] = []
    loaded: list[Clog] = []
    try:
        settings = settings_of(db, clogs)
        findings += before_opening(store_facts(settings.db))
        loaded = load_clogs(settings, Path.cwd())
        names = ", ".join(clog.clog_id for clog in loaded)
        advice = "" if loaded else "name some: --clogs, OCEAN_CLOGS, [tool.ocean] clogs, entry points"
        findings.append(Finding("clogs", f"{names} (from {settings.clogs_from})" if names else "none named", advice))
    except OceanError as error:
        findings.append(Finding("settings", error.message, "correct it; docs/cli.md has the settings"))
    else:
        if all(found.is_good for found in findings if found.check in ("engine", "database", "schema")):
            findings += await _opened(settings.db, loaded)
    is_good = all(found.is_good for found in findings)
    if screen.is_json:
        checks = [{"check": f.check, "ok": f.is_good, "said": f.said, "advice": f.advice or None} for f in findings]
        screen.json({"ok": is_good, "checks": checks})
    else:
        show(screen, findings)
    return 0 if is_good else REFUSED


async def _opened(url: str, clogs: list[Clog]) -> list[Finding]:
    try:
        async with Ocean.open(url, clogs=clogs) as ocean:
            return await once_open(ocean, clogs)
    except OceanError as error:
        return [Finding("opening", error.message, "try again when the database is free")]


def show(screen: Screen, findings: list[Finding]) -> None:
    made = table("", "CHECK", "FOUND", folds=("FOUND",))
    for found in findings:
        mark = cell("ok", "green") if found.is_good else cell("NO", "bold red")
        made.add_row(mark, found.check, cell(found.said))
        if found.advice:
            made.add_row("", "", cell(f"-> {found.advice}", "yellow"))
    screen.show(made)
