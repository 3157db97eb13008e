"""`ocean doctor`: checks for what can keep runs from moving, and gives advice."""

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
MOST_CHECKED = 1_000
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check. `advice` is empty if the check passed."""

    name: str
    found: str
    advice: str = ""

    @property
    def has_passed(self) -> bool:
        """Whether nothing is to be done."""
        return not self.advice


def checks_before_opening(facts: StoreFacts) -> list[DoctorCheck]:
    """Return the checks that need no open database."""
    version = ".".join(map(str, sys.version_info[:3]))
    checks = [
        DoctorCheck("python", version, "" if sys.version_info >= OLDEST_PYTHON else "Ocean needs Python 3.11 or newer"),
        DoctorCheck(
            "engine",
            f"{facts.engine} {facts.engine_version}",
            "" if facts.is_engine_new_enough else "Ocean needs SQLite 3.38 or PostgreSQL 14, or newer",
        ),
    ]
    schema = DoctorCheck("schema", f"{facts.schema} of {facts.newest_schema}")
    if facts.trouble is not None:
        return [
            *checks,
            DoctorCheck("database", f"{facts.place}: {facts.trouble}", "check --db and the permissions of the file"),
        ]
    if facts.schema is None and facts.engine != "SQLite":
        found = f"{facts.place} does not have Ocean's tables yet"
        return [*checks, DoctorCheck("database", found, "check --db, or create them: ocean migrate")]
    if facts.schema is None:
        return [
            *checks,
            DoctorCheck("database", f"there is no {facts.place}", "check --db, or create it: ocean migrate"),
        ]
    if facts.schema > facts.newest_schema:
        older = f"a newer Ocean migrated the database, this one supports up to {facts.newest_schema}"
        schema = replace(schema, advice=f"{older}: upgrade ocean-runtime")
    elif facts.schema < facts.newest_schema:
        schema = replace(schema, advice="bring it up to date: ocean migrate")
    if facts.engine != "SQLite":
        return [*checks, DoctorCheck("database", facts.place), schema]
    journal = DoctorCheck("journal", f"{facts.journal_mode}")
    if facts.journal_mode not in ("wal", "memory"):
        journal = replace(journal, advice="it must be WAL: run ocean migrate, and keep the file off network drives")
    return [*checks, DoctorCheck("database", facts.place), schema, journal]


async def checks_of_runs(ocean: Ocean, clogs: list[Clog]) -> list[DoctorCheck]:
    """Return the checks of an open database."""
    agenda = await ocean.advance(budget_ms=0)
    late = agenda.oldest_due_age_ms > LATE_MS
    due = DoctorCheck(
        "due",
        f"{counted(agenda.due_now, 'run')} due, the oldest for {span(agenda.oldest_due_age_ms)}",
        "nothing pokes this database: run ocean serve, or ocean advance from cron" if late else "",
    )
    return [
        due,
        await _unclaimable(ocean, clogs, agenda.unclaimable),
        await _parked(ocean),
        await _expired(ocean),
        await _instances(ocean),
    ]


async def _unclaimable(ocean: Ocean, clogs: list[Clog], count: int) -> DoctorCheck:
    here = {clog.clog_id for clog in clogs}
    needed = []
    for clog in await ocean.list_clogs() if count else ():
        if clog.clog_id not in here and not clog.external:
            waiting = await ocean.count_runs(clog_id=clog.clog_id, status=("pending", "active", "waiting"), cap=1_000)
            needed += [f"{clog.clog_id} ({waiting.count})"] if waiting.count else []
    found = f"{counted(count, 'due run')} of clogs that are not loaded here"
    if not needed:
        return DoctorCheck("clogs needed", found if count else "none")
    return DoctorCheck(
        "clogs needed", f"{found}: {', '.join(needed)}", "load them with --clogs, or poke where they are loaded"
    )


async def _parked(ocean: Ocean) -> DoctorCheck:
    keys = [key for key in await ocean.list_keys(limit=MOST_CHECKED) if key.parked]
    found = ", ".join(f"{key.parked} on {key.key} ({key.in_use} of {key.limit} in use)" for key in keys)
    stuck = [key.key for key in keys if key.limit == 0]
    advice = f"a limit of 0 stops all runs of a key: ocean limit set {stuck[0]} N" if stuck else ""
    return DoctorCheck("parked", found or "none", advice)


async def _expired(ocean: Ocean) -> DoctorCheck:
    """Check for locks and leases that have expired and that no poke has taken back."""
    now = ocean.clock.now()
    page = await ocean.list_runs(status="active", order="oldest", limit=MOST_CHECKED)
    expired: list[RunInfo] = [run for run in page.runs if (run.lock_expires_at or now) + LATE_MS < now]
    if not expired:
        return DoctorCheck("lapsed locks", "none")
    found = f"{len(expired)}, the first held by {expired[0].locked_by}"
    return DoctorCheck("lapsed locks", found, "a poke takes them back: ocean advance, with their clogs loaded")


async def _instances(ocean: Ocean) -> DoctorCheck:
    """List the other instances, last seen first."""
    now, here = ocean.clock.now(), ocean.instances.here.place
    others = await ocean.instances.others(MOST_SHOWN + 1)
    found = [
        f"{each.instance_id} (last seen {span(now - each.seen_at)} ago, "
        f"{f'process {each.process.pid} here' if here and each.process.place == here else 'elsewhere'})"
        for each in others[:MOST_SHOWN]
    ]
    return DoctorCheck("instances", ", ".join([*found, *(["…"] if len(others) > MOST_SHOWN else [])]) or "none other")


async def examine(screen: Screen, db: str | None, clogs: str | None) -> int:
    """Run all checks, print them, and return the exit code."""
    checks: list[DoctorCheck] = []
    loaded: list[Clog] = []
    try:
        settings = settings_of(db, clogs)
        checks += checks_before_opening(store_facts(settings.db))
        loaded = load_clogs(settings, Path.cwd())
        names = ", ".join(clog.clog_id for clog in loaded)
        advice = "" if loaded else "name them: --clogs, OCEAN_CLOGS, [tool.ocean] clogs, entry points"
        checks.append(DoctorCheck("clogs", f"{names} (from {settings.clogs_from})" if names else "none named", advice))
    except OceanError as error:
        checks.append(DoctorCheck("settings", error.message, "correct it; the settings are in docs/cli.md"))
    else:
        if all(check.has_passed for check in checks if check.name in ("engine", "database", "schema")):
            checks += await _checks_once_open(settings.db, loaded)
    has_passed = all(check.has_passed for check in checks)
    if screen.is_json:
        shown = [{"check": c.name, "ok": c.has_passed, "said": c.found, "advice": c.advice or None} for c in checks]
        screen.json({"ok": has_passed, "checks": shown})
    else:
        _show(screen, checks)
    return 0 if has_passed else REFUSED


async def _checks_once_open(url: str, clogs: list[Clog]) -> list[DoctorCheck]:
    try:
        async with Ocean.open(url, clogs=clogs) as ocean:
            return await checks_of_runs(ocean, clogs)
    except OceanError as error:
        return [DoctorCheck("opening", error.message, "try again when the database is not busy")]


def _show(screen: Screen, checks: list[DoctorCheck]) -> None:
    made = table("", "CHECK", "FOUND", folds=("FOUND",))
    for check in checks:
        mark = cell("ok", "green") if check.has_passed else cell("NO", "bold red")
        made.add_row(mark, check.name, cell(check.found))
        if check.advice:
            made.add_row("", "", cell(f"-> {check.advice}", "yellow"))
    screen.show(made)
