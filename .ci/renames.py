"""Rename classes and functions, and rewrite the imports of names that moved to another module.

    python .ci/renames.py

The tables below are the whole change. A branch that was begun before it runs this script, commits, and then merges.
"""

import re
import subprocess
from pathlib import Path

STORE = {
    "runs": "Behind CallCommit CallConflict CallDone Request",
    "claims": "ClaimAsk ClaimOrder ClaimableClog Committed Contended LeaseAsk LeaseCompletion LeaseDone LeasedRun "
    "NotClaimable RowsAnswer RowsAsk TickAnswer TickCommit",
    "events": "SweepAsk",
}

HOMES = {
    **{
        ("ocean.kernel.store", name): f"ocean.kernel.store.{home}"
        for home, names in STORE.items()
        for name in names.split()
    },
    **{
        ("ocean.kernel.arguments", name): "ocean.kernel.new_runs"
        for name in ("DEFAULT_PRIORITY", "MOST_KEYS", "RunOptions", "checked_keys", "new_run", "new_signal")
    },
    ("ocean.state.json_text", "strict_json"): "ocean.state.values",
    ("ocean.state.names", "near_name"): "ocean.state.errors",
    ("ocean.state.facts", "StoreFacts"): "ocean.state.records",
    **{
        ("ocean.kernel.leasing", name): "ocean.kernel.verbs.leases"
        for name in ("LONGEST_LEASE_MS", "LONGEST_WAIT_MS", "SHORTEST_LEASE_MS", "Lease", "WorkDone")
    },
}
"""A name's old module and its new one."""

RENAMES = """
Crew = Runtime
_crew = _runtime
scene_of = context_of
is_along = piggyback
rehearsed = dry_run_tick
Outflow = StreamBuffer
Operating = AdminVerbs
Receiving = WebhookVerbs
Lending = LeaseVerbs
Keyring = ApiKeyVerbs
told_of = call_event
told_error = error_of
is_telling = is_secret_name
tells_of = explain_row
with_words = with_explanation
NOT_THE_TOOLS = STORE_ERRORS
"""
"""Identifiers that mean the same wherever they are used, in Python."""

TEXTS = {
    "guard.seen(": "guard.limited(",
    "guard.told(": "guard.visible(",
    "guard.meant(": "guard.allowed(",
    "Guard(ocean).meant(": "Guard(ocean).allowed(",
    "observed.tell(": "observed.add_listener(",
}
"""Methods whose names are too common to be renamed alone."""

ONLY: dict[tuple[str, ...], dict[str, str]] = {
    ("ocean/", "tests/simulation/"): {"Scene": "CallContext", "_scene": "_context"},
    ("ocean/stores/shared/rows.py", "ocean/stores/postgres/access_reading.py", "ocean/stores/sqlite/access.py"): {
        "Standing": "RunOwner"
    },
}
"""Identifiers that are renamed in some files or folders only."""


def rewrite_imports(text: str) -> str:
    """Split `from module import a, b` where some names have a new home."""

    def split(found: re.Match[str]) -> str:
        indent, module, listed = found.group(1), found.group(2), found.group(3) or found.group(4)
        names = [name.strip() for name in listed.split(",") if name.strip()]
        if not any((module, name.split(" as ")[0]) in HOMES for name in names):
            return found.group()
        homes: dict[str, list[str]] = {}
        for name in names:
            homes.setdefault(HOMES.get((module, name.split(" as ")[0]), module), []).append(name)
        return "\n".join(f"{indent}from {home} import {', '.join(names)}" for home, names in homes.items())

    return re.sub(r"(?m)^( *)from (ocean[\w.]+) import (?:\(([\w\s,]+)\)|([\w ,]+))$", split, text)


def main() -> None:
    """Rewrite every Python file that git tracks."""
    renames = dict(line.split(" = ") for line in RENAMES.splitlines() if line)
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, renames)) + r")(?!\w)")
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for name in tracked:
        file = Path(name)
        if not file.is_file() or name.startswith((".ci/", "clogs/")):
            continue
        before = file.read_text()
        after = rewrite_imports(pattern.sub(lambda found: renames[found.group(1)], before))
        for old, new in TEXTS.items():
            after = after.replace(old, new)
        for places, table in ONLY.items():
            if name.startswith(places):
                for old, new in table.items():
                    after = re.sub(rf"\b{old}\b", new, after)
        if after != before:
            file.write_text(after)


if __name__ == "__main__":
    main()
