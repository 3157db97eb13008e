"""PostgreSQL's functions with one fault each: part of their text is replaced, in a database for the mutant alone.

Faults that show only with two statements at the same time (which lock is waited for, which is skipped) are not here: a
simulation has one call in flight. Nor are faults in the handling of a response that was lost below the store.
"""

from contextlib import ExitStack
from functools import partial
from importlib import resources

from tests.postgres.server import altered_database, drop_database, empty_database
from tests.simulation import backends
from tests.simulation.patching import Change, put

FUNCTIONS = resources.files("ocean.stores").joinpath("sql", "postgres", "functions")
MUTANTS: dict[str, Change] = {}


def _alter(script: str, undo: ExitStack) -> None:
    url = altered_database(script)
    undo.callback(drop_database, url)

    def lend() -> str:
        empty_database(url)
        return url

    put(undo, backends, "fresh_database", lend)
    put(undo, backends, "return_database", lambda url: None)


def _text(name: str, file: str, old: str, new: str) -> None:
    text = FUNCTIONS.joinpath(f"{file}.sql").read_text()
    assert text.count(old) == 1, f"{file}.sql must contain {old!r} once"
    MUTANTS[f"postgres: {name}"] = partial(_alter, text.replace(old, new))


_text("no fence", "transitions", "AND r.status = 'active' AND r.lock_epoch = epoch;", "AND r.status = 'active';")
_text(
    "no fence at the commit", "committing", "ocean_is_held(r, (a->>'epoch')::bigint)", "ocean_is_held(r, r.lock_epoch)"
)
_text("epoch not raised", "transitions", "r.lock_epoch := r.lock_epoch + 1;", "")
_text(
    "attempt not counted on crash",
    "transitions",
    "ELSIF r.status = 'active' AND ocean_counts_as_attempt(r)",
    "ELSIF false",
)
_text("crashes beside others are attempts", "transitions", "OR r.crash_company = 1;", "OR true;")
_text("suspects not noted", "crashes", "r.crash_company := jsonb_array_length(locks);", "r.crash_company := NULL;")
_text("attempts of last ticks not counted", "transitions", "r.end_attempt := count;", "NULL;")
_text("stopped calls commit", "committing", "ELSIF r.stop_by IS NOT NULL THEN", "ELSIF false THEN")
_text("stop_by ignored", "transitions", "least(r.stop_by, r.lock_expires_at)", "r.lock_expires_at")
_text("no version check", "storage", "IF NOT w ? 'from' AND (ocean_row", "IF false AND (ocean_row")
_text("guard not checked", "storage", "IF (ocean_row(w->0)).version", "IF false AND (ocean_row(w->0)).version")
_text(
    "consume at claim",
    "claiming",
    "SET assigned_tick = r.tick WHERE",
    "SET assigned_tick = r.tick, consumed_tick = r.tick WHERE",
)
_text("inputs not consumed", "committing", "SET consumed_tick = t.tick", "SET consumed_tick = NULL")
_text("inputs before their time", "claiming", "d.available_at <= now", "d.available_at <= now + 500")
_text("lost wake-up", "inbox", "r := ocean_input_arrived(r, available_at, now);", "")
_text("wake_at not cleared", "transitions", "r.wake_at := NULL;\n    r.wait_until := NULL;\n    r.ready_at := now;", "")
_text("signal id not checked", "inbox", "IF s->>'signal_id' IS NULL THEN", "IF true THEN")
_text("deliver_at ignored", "inbox", "greatest((s->>'deliver_at')::bigint, now)", "now")
_text("log not dense", "runs", "r.event_count := r.event_count + 1;", "r.event_count := r.event_count + 2;")
_text("request key not stored", "verbs", "IF request->>0 IS NOT NULL THEN", "IF false THEN")
_text("dedupe not checked", "creating", "IF n->>'dedupe_key' IS NULL THEN", "IF true THEN")
_text("key limit ignored", "keys", "IF r.key_count = 0 OR r.status = 'active' THEN", "IF true THEN")
_text("key slot leaked", "keys", "k.is_held AND NOT ocean_is_ended(r)", "k.is_held")
_text("parked runs not woken", "keys", "PERFORM ocean_wake(woken.key, woken.count, now);", "NULL;")
_text("takes not counted", "effects", "PERFORM ocean_take(each, o.now);", "NULL;")
_text("locks not renewed", "verbs", "until := now + (lock->>2)::bigint;", "until := now;")
_text("crashed runs left", "choosing", "coalesce(bool_and(d.is_plain), true)", "true")
_text("deadline ignored", "transitions", "ELSIF r.deadline_at <= now AND", "ELSIF false AND")
_text("parent not notified", "ending", "IF child.parent_run_id IS NULL\n    OR NOT", "IF true OR NOT")
_text("parent not woken", "ending", "parent := ocean_input_arrived(parent, now, now);", "")
_text("children outlive", "ending", "d.run_id = c.run_id) = 'cancel'", "d.run_id = c.run_id) = 'never'")
_text("timers not dropped at the end", "ending", "WHERE u.timer IS NOT NULL", "WHERE false")
_text("undelivered not named", "ending", "IF r.pending_count = 0 THEN", "IF true THEN")
_text("commit not repeatable", "committing", "IF t.outcome IS NOT NULL AND", "IF false AND")
_text("priority ignored", "choosing", "ORDER BY d.priority, d.due_at,", "ORDER BY d.due_at,")
_text("urgent runs only", "choosing", "% 8 = 7", "% 8 = 8")
