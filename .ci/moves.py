"""Move modules from the flat tree into packages, and rewrite every import, dotted name and path that names them.

    python .ci/moves.py

The table below is the whole move, which was one commit. A branch that was begun before it runs this script, commits and
then merges. In a tree that has been moved it does nothing: some old names are new names of other modules.
"""

import re
import subprocess
import sys
from pathlib import Path

MOVES = """
ocean.guarding = ocean.access.guard
ocean.ticking = ocean.ticker

ocean.kernel.access = ocean.state.access
ocean.kernel.attributes = ocean.state.attributes
ocean.kernel.backoff = ocean.state.backoff
ocean.kernel.clock = ocean.state.clock
ocean.kernel.counters = ocean.state.counters
ocean.kernel.dry_run = ocean.state.dry_run_result
ocean.kernel.effects = ocean.state.effects
ocean.kernel.eligibility = ocean.state.eligibility
ocean.kernel.errors = ocean.state.errors
ocean.kernel.facts = ocean.state.facts
ocean.kernel.filters = ocean.state.filters
ocean.kernel.ids = ocean.state.ids
ocean.kernel.json_text = ocean.state.json_text
ocean.kernel.lanes = ocean.state.claim_order
ocean.kernel.names = ocean.state.names
ocean.kernel.outcomes = ocean.state.outcomes
ocean.kernel.records = ocean.state.records
ocean.kernel.redacting = ocean.state.redact
ocean.kernel.retrying = ocean.state.retry_as_new
ocean.kernel.transitions = ocean.state.transitions
ocean.kernel.values = ocean.state.values

ocean.kernel.advancing = ocean.kernel.advance
ocean.kernel.working = ocean.kernel.tick_run
ocean.kernel.scene = ocean.kernel.call_context
ocean.kernel.calling = ocean.kernel.invoke
ocean.kernel.read_before_write = ocean.kernel.ledger
ocean.kernel.stepping = ocean.kernel.steps
ocean.kernel.rehearsing = ocean.kernel.dry_run
ocean.kernel.observing = ocean.kernel.metrics
ocean.kernel.finding = ocean.kernel.run_query
ocean.kernel.operating = ocean.kernel.verbs.admin
ocean.kernel.lending = ocean.kernel.verbs.leases
ocean.kernel.poking = ocean.kernel.verbs.advance
ocean.kernel.receiving = ocean.kernel.verbs.webhooks
ocean.kernel.bulk = ocean.kernel.verbs.bulk

ocean.kernel.api_keys = ocean.access.api_keys

ocean.kernel.clog = ocean.clog.clog
ocean.kernel.mounting = ocean.clog.routes
ocean.kernel.webhooks = ocean.clog.webhooks

ocean.kernel.toolboxes = ocean.tools.author
ocean.kernel.tools = ocean.tools.builtin
ocean.kernel.toolset = ocean.tools.registry
ocean.kernel.using_tools = ocean.tools.invoke
ocean.kernel.calling_tools = ocean.tools.call
ocean.kernel.credentials = ocean.tools.credentials
ocean.kernel.fetch = ocean.tools.fetch
ocean.kernel.addresses = ocean.tools.addresses
ocean.kernel.reaching = ocean.tools.outside

ocean.stores.cursors = ocean.stores.shared.cursors
ocean.stores.deciding = ocean.stores.shared.row_rules
ocean.stores.planning = ocean.stores.shared.claim_plan
ocean.stores.refusals = ocean.stores.shared.refusals
ocean.stores.rows = ocean.stores.shared.rows
ocean.stores.streams = ocean.stores.shared.index_ranges
ocean.stores.waiting = ocean.stores.shared.waiter
ocean.stores.queries = ocean.stores.sqlite.engine.queries
ocean.stores.migrate = ocean.stores.sqlite.migrate

ocean.stores.sqlite.database = ocean.stores.sqlite.engine.database
ocean.stores.sqlite.groups = ocean.stores.sqlite.engine.group_commit
ocean.stores.sqlite.transaction = ocean.stores.sqlite.engine.transaction
ocean.stores.sqlite.unit = ocean.stores.sqlite.engine.unit_of_work
ocean.stores.sqlite.units = ocean.stores.sqlite.engine.executor
ocean.stores.sqlite.held = ocean.stores.sqlite.engine.write_buffer
ocean.stores.sqlite.known = ocean.stores.sqlite.engine.cache
ocean.stores.sqlite.looking = ocean.stores.sqlite.engine.reader
ocean.stores.sqlite.info = ocean.stores.sqlite.run_info
ocean.stores.sqlite.inspecting = ocean.stores.sqlite.inspection
ocean.stores.sqlite.log = ocean.stores.sqlite.event_log
ocean.stores.sqlite.owing = ocean.stores.sqlite.overdue
ocean.stores.sqlite.retrying = ocean.stores.sqlite.retry_as_new

ocean.stores.postgres.claiming = ocean.stores.postgres.claims
ocean.stores.postgres.committing = ocean.stores.postgres.commits
ocean.stores.postgres.reading = ocean.stores.postgres.reads
ocean.stores.postgres.inspecting = ocean.stores.postgres.inspection
ocean.stores.postgres.retrying = ocean.stores.postgres.retry_as_new
ocean.stores.postgres.row_reads = ocean.stores.postgres.client.row_batches
ocean.stores.postgres.link = ocean.stores.postgres.client.connection
ocean.stores.postgres.writing = ocean.stores.postgres.client.batches
ocean.stores.postgres.sending = ocean.stores.postgres.client.exactly_once
ocean.stores.postgres.courier = ocean.stores.postgres.client.lock_thread
ocean.stores.postgres.waking = ocean.stores.postgres.client.notifications
ocean.stores.postgres.wording = ocean.stores.postgres.client.payloads
ocean.stores.postgres.ordering = ocean.stores.postgres.client.pending_claims
ocean.stores.postgres.options = ocean.stores.postgres.client.options
ocean.stores.postgres.server_clock = ocean.stores.postgres.client.server_clock
ocean.stores.postgres.test_clock = ocean.stores.postgres.client.test_clock
ocean.stores.postgres.asking = ocean.stores.postgres.client.reading

ocean.http.access = ocean.http.framework.authorization
ocean.http.answering = ocean.http.framework.middleware
ocean.http.bodies = ocean.http.framework.bodies
ocean.http.calls = ocean.http.framework.call
ocean.http.errors = ocean.http.framework.errors
ocean.http.queries = ocean.http.framework.query_strings
ocean.http.repeating = ocean.http.framework.idempotency
ocean.http.routing = ocean.http.framework.routing
ocean.http.table = ocean.http.framework.operation
ocean.http.traffic = ocean.http.framework.traffic
ocean.http.wire = ocean.http.framework.wire
ocean.http.stopping = ocean.http.framework.shutdown
ocean.http.openapi = ocean.http.framework.openapi
ocean.http.mounted = ocean.http.framework.clog_routes
ocean.http.mounted_pages = ocean.http.framework.clog_routes_openapi
ocean.http.poking = ocean.http.framework.poker
ocean.http.waiting = ocean.http.framework.disconnect
ocean.http.settling = ocean.http.handlers.wait_for_run
ocean.http.hooks = ocean.http.handlers.webhooks
ocean.http.pages = ocean.http.handlers.api_docs
ocean.http.session = ocean.http.handlers.web_session
ocean.http.creating = ocean.http.handlers.create_run
ocean.http.feeds = ocean.http.handlers.events
ocean.http.health = ocean.http.handlers.health
ocean.http.house = ocean.http.handlers.system
ocean.http.leases = ocean.http.handlers.leases
ocean.http.many = ocean.http.handlers.bulk
ocean.http.metrics = ocean.http.handlers.metrics
ocean.http.outcomes = ocean.http.handlers.outcome_bodies
ocean.http.runs = ocean.http.handlers.runs
ocean.http.frames = ocean.http.streaming.frames
ocean.http.lines = ocean.http.streaming.direct_write
ocean.http.stream = ocean.http.streaming.sse

ocean.cli.acting = ocean.cli.commands.change_runs
ocean.cli.looking = ocean.cli.commands.inspect_runs
ocean.cli.making = ocean.cli.commands.create_runs
ocean.cli.poking = ocean.cli.commands.advance
ocean.cli.keeping = ocean.cli.commands.maintenance
ocean.cli.keyring = ocean.cli.commands.keys
ocean.cli.scheduling = ocean.cli.commands.schedule
ocean.cli.schedule_tables = ocean.cli.commands.schedule_tables
ocean.cli.benching = ocean.cli.commands.bench
ocean.cli.serving = ocean.cli.commands.serve
ocean.cli.notifying = ocean.cli.commands.systemd
ocean.cli.agents = ocean.cli.commands.mcp
ocean.cli.tailing = ocean.cli.commands.tail
ocean.cli.remote = ocean.cli.commands.remote_log
ocean.cli.frames = ocean.cli.commands.sse_parser
ocean.cli.doctor = ocean.cli.commands.doctor
ocean.cli.new_clog = ocean.cli.commands.new_clog
ocean.cli.bulk = ocean.cli.commands.bulk
ocean.cli.clog_commands = ocean.cli.commands.clog_commands
ocean.cli.screen = ocean.cli.output
ocean.cli.records = ocean.cli.json_output
ocean.cli.refusals = ocean.cli.server_errors
ocean.cli.running = ocean.cli.runner
ocean.cli.saying = ocean.cli.parsing
ocean.cli.showing = ocean.cli.tables
ocean.cli.demo = ocean.cli.demo.play
ocean.cli.demo_checks = ocean.cli.demo.checks
ocean.cli.demo_clog = ocean.cli.demo.clog
ocean.cli.demo_screen = ocean.cli.demo.screen
ocean.cli.demo_worker = ocean.cli.demo.worker

ocean.events.watching = ocean.events.watchers

ocean.flows.asking = ocean.flows.calls
ocean.flows.gathering = ocean.flows.parallel
ocean.flows.handling = ocean.flows.handlers
ocean.flows.playing = ocean.flows.replay
ocean.flows.registering = ocean.flows.register
ocean.flows.stepping = ocean.flows.steps
ocean.flows.undoing = ocean.flows.undo
ocean.flows.waiting = ocean.flows.waits

ocean.mcp.asking = ocean.mcp.in_process
ocean.mcp.methods = ocean.mcp.method_tools
ocean.mcp.serving = ocean.mcp.transport

ocean.testing.asking = ocean.testing.requests
ocean.testing.crashing = ocean.testing.crashes
ocean.testing.lives = ocean.testing.crash_points
ocean.testing.mortal = ocean.testing.crashable
ocean.testing.inline_database = ocean.testing.simulation.inline_database
ocean.testing.processes = ocean.testing.simulation.processes
ocean.testing.virtual_clock = ocean.testing.simulation.virtual_clock
ocean.testing.virtual_loop = ocean.testing.simulation.virtual_loop

tests.house = tests.project
tests.house.test_house = tests.project.test_rules
"""

PACKAGES = {
    "ocean.state": "What Ocean's rules are about, pure: records, outcomes, and the functions that decide.",
    "ocean.kernel.verbs": "What `Ocean` offers, a file for each group of verbs.",
    "ocean.access": "API keys, and what their holders may do.",
    "ocean.clog": "What a clog is: its handlers, its routes, its webhooks.",
    "ocean.tools": "The tools of ticks: Ocean's own, and those that authors write.",
    "ocean.stores.shared": "What both stores use: rows to records, refusals, plans of claims.",
    "ocean.stores.sqlite.engine": "Transactions on SQLite.",
    "ocean.stores.postgres.client": "Connections to PostgreSQL, and batches over them.",
    "ocean.http.framework": "Requests and responses around the handlers.",
    "ocean.http.handlers": "The handlers of Ocean's own routes.",
    "ocean.http.streaming": "Server-Sent Events.",
    "ocean.cli.commands": "The commands.",
    "ocean.cli.demo": "`ocean demo`.",
    "ocean.testing.simulation": "Virtual time and simulated processes, for Ocean's own tests.",
}
"""New packages and what their `__init__` starts with."""

ENDINGS = {".py", ".md", ".toml", ".json", ".sql", ".txt", ".sh", ".yml", ".yaml"}


def table() -> dict[str, str]:
    """Return the moves: old module, new module."""
    pairs = (line.split(" = ") for line in MOVES.splitlines() if line)
    return {old: new for old, new in pairs}  # noqa: C416


def path_of(module: str) -> Path:
    """Return the file of a module, relative to the root."""
    return Path(module.replace(".", "/") + ".py")


def move_files(moves: dict[str, str]) -> None:
    """Move the files that are still in their old places."""
    for package, opening in PACKAGES.items():
        init = Path(package.replace(".", "/")) / "__init__.py"
        if not init.exists() and not path_of(package).exists():
            init.parent.mkdir(parents=True, exist_ok=True)
            init.write_text(f'"""{opening}"""\n')
    waiting = [(path_of(old), path_of(new)) for old, new in moves.items() if path_of(old).is_file()]
    # A module whose old place is another's new one goes out of the way first.
    for number, (old, _) in enumerate(waiting):
        subprocess.run(["git", "mv", str(old), f".moving-{number}.py"], check=True)
    for number, (_, new) in enumerate(waiting):
        new.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", f".moving-{number}.py", str(new)], check=True)


def rewrite(text: str, moves: dict[str, str]) -> str:
    """Return the text with dotted names, paths and `from package import module` in their new form."""
    names = sorted(moves, key=len, reverse=True)
    dotted = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, names)) + r")(?!\w)(?!\.py\b)")
    text = dotted.sub(lambda found: moves[found.group(1)], text)
    paths = {str(path_of(old)): str(path_of(new)) for old, new in moves.items()}
    slashed = re.compile("|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True)))
    text = slashed.sub(lambda found: paths[found.group()], text)
    text = text.replace("tests/house", "tests/project").replace('"tests" / "house"', '"tests" / "project"')

    def from_package(found: re.Match[str]) -> str:
        package, listed = found.group(1), found.group(2) or found.group(3)
        homes: dict[str, list[str]] = {}
        for item in filter(None, (part.strip() for part in listed.split(","))):
            name, _, alias = item.partition(" as ")
            home, _, last = moves.get(f"{package}.{name}", f"{package}.{name}").rpartition(".")
            alias = alias or name
            homes.setdefault(home, []).append(last if alias == last else f"{last} as {alias}")
        if not any(f"{package}.{name}" in moves for name in re.findall(r"\w+", listed)):
            return found.group()
        return "\n".join(f"from {home} import {', '.join(names)}" for home, names in homes.items())

    return re.sub(r"(?m)^from ([\w.]+) import (?:\(([\w\s,]+)\)|([\w ,]+))$", from_package, text)


def main() -> None:
    """Move and rewrite everything that git tracks below the current folder."""
    if Path("ocean/state").exists():
        sys.exit("this tree has been moved already; run the script only on a branch that was begun before the move")
    moves = table()
    move_files(moves)
    Path("tests/project").mkdir(exist_ok=True)
    for file in sorted(Path("tests/house").glob("*.py")):
        subprocess.run(["git", "mv", str(file), f"tests/project/{file.name}"], check=True)
    tracked = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.splitlines()
    for name in tracked:
        file = Path(name)
        if file.suffix not in ENDINGS or not file.is_file() or file == Path(".ci/moves.py"):
            continue
        before = file.read_text()
        after = rewrite(before, moves)
        if after != before:
            file.write_text(after)


if __name__ == "__main__":
    main()
