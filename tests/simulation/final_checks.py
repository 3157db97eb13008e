"""Checks at the end of a simulation: the histories of clients, the log and the tables must agree."""

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ocean.events.tail import LAST_EVENTS
from tests.linearizability.clients import ends_in, unexplained
from tests.linearizability.decisions import OPEN
from tests.simulation import end_checks, run_checks
from tests.simulation.actions import CAP, COUNTERS
from tests.simulation.event_log import FinalState

if TYPE_CHECKING:
    from tests.simulation.world import World

NOT_KEPT = ("explain", "dry_run", "advance_run", "sweep", "settle", "result")
SIGNALS = ("signal", "signal_later", "signal_if_idle")


def check_all(world: "World") -> None:
    final = FinalState(world)
    for check in (*CHECKS, *run_checks.CHECKS, *end_checks.CHECKS):
        try:
            check(final)
        except AssertionError as error:
            world.fail(check.__name__.replace("_", " "), str(error))
            return


def acknowledged_signals_are_there_once(final: FinalState) -> None:
    rows: Counter[str] = Counter()
    for row in final.db.execute("SELECT run_id, body FROM ocean_inbox WHERE kind = 'signal'").fetchall():
        rows[json.loads(row["body"])["t"]] += 1
    for sent in final.history.requests:
        if sent.verb in SIGNALS and sent.run_id not in final.deleted:
            count = rows[str(sent.token)]
            assert count <= 1, f"{sent} is there {count} times"
            assert count == 1 or not sent.results, f"{sent} is gone"
            assert count == 0 or sent.results or sent.is_unknown, f"{sent} was refused, and is there"


def a_repeated_request_has_the_same_result(final: FinalState) -> None:
    for sent in final.history.requests:
        if sent.key is not None and sent.verb not in NOT_KEPT:
            first = sent.results[:1] * len(sent.results)
            assert sent.results == first, f"{sent.verb} {sent.key} has different results: {sent.results}"


def signal_ids_count_once(final: FinalState) -> None:
    sql = "SELECT run_id, signal_id FROM ocean_inbox WHERE signal_id IS NOT NULL"
    ids = Counter(map(tuple, final.db.execute(sql).fetchall()))
    twice = [each for each, count in ids.items() if count > 1]
    assert not twice, f"there twice: {twice}"


def ticks_commit_once(final: FinalState) -> None:
    ticks: Counter[Any] = Counter()
    epochs: Counter[Any] = Counter()
    for event in final.of("run.created", "tick.committed"):
        run_id = event["run_id"]
        if event["type"] == "run.created":
            ticks.update({place: -ticks[place] for place in list(ticks) if place[0] == run_id})
            epochs.update({place: -epochs[place] for place in list(epochs) if place[0] == run_id})
            continue
        ticks[run_id, event["tick"]] += 1
        epochs[run_id, event["payload"]["epoch"]] += 1
        assert ticks[run_id, event["tick"]] == 1, f"tick {event['tick']} of {run_id} commits twice"
        assert epochs[run_id, event["payload"]["epoch"]] == 1, f"an epoch of {run_id} commits twice"


def rows_are_the_sum_of_what_was_committed(final: FinalState) -> None:
    ticks: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in final.of("run.created", "did", "noted"):
        run_id = event["run_id"]
        if event["type"] == "run.created":
            ticks[run_id] = calls[run_id] = 0
        elif event["type"] == "did":
            ticks[run_id] += 1
            assert event["payload"]["ticks"] == ticks[run_id], f"a row of {run_id} was lost: {event}"
        else:
            calls[run_id] += 1
            assert event["payload"]["calls"] == calls[run_id], f"a row of {run_id} was lost: {event}"
    sql = "SELECT run_id, value FROM ocean_storage_run WHERE clog_id <> 'decision'"
    for row in final.db.execute(sql).fetchall():
        value, run_id = json.loads(row["value"]), row["run_id"]
        assert value == {"ticks": ticks[run_id], "calls": calls[run_id]}, f"the row of {run_id} is {value}"


def shared_rows_lose_nothing(final: FinalState) -> None:
    bumped: Counter[str] = Counter()
    added: Counter[tuple[str, str]] = Counter()
    for event in final.of("did", "added", "session.deleted"):
        payload, clog_id, session = event["payload"], event["clog_id"], event["session_id"]
        if event["type"] == "session.deleted":
            added.update({place: -added[place] for place in list(added) if place[1] == session})
            continue
        if "seen" in payload:
            assert payload["seen"] == bumped[clog_id], f"guard: {event} has seen an old row"
        if "bumped" in payload:
            bumped[clog_id] += 1
            assert payload["bumped"] == bumped[clog_id], f"lost update: {event}"
        added[clog_id, session] += event["type"] == "added" or "added" in payload
    for (clog_id, session), count in added.items():
        sql = "SELECT value FROM ocean_storage_session WHERE clog_id = ? AND session_id = ?"
        stored = json.loads(final.one(sql, clog_id, session) or "0")
        assert stored == count, f"function adds: {clog_id} in {session} has {stored}, and {count} were committed"


def counters_admit_what_their_limits_allow(final: FinalState) -> None:
    granted: Counter[str] = Counter()
    for event in final.of("did"):
        if "took" in event["payload"]:
            key, is_granted, used = event["payload"]["took"]
            granted[key] += is_granted
            assert is_granted or used == CAP, f"refused although it was not empty: {event}"
    for key in COUNTERS:
        takes = [sent for sent in final.history.requests if sent.verb == "take" and sent.run_id == key]
        sure = granted[key] + sum(any(taken.ok for taken in sent.results) for sent in takes)
        perhaps = sum(sent.is_unknown and not sent.results for sent in takes)
        used = final.one("SELECT used FROM ocean_counters WHERE key = ?", key) or 0
        assert sure <= used <= min(CAP, sure + perhaps), f"{key}: {used} taken, {sure} (+{perhaps}) granted"


def steps_are_taken_once(final: FinalState) -> None:
    for (run_id, tick, scope), results in final.history.steps.items():
        if run_id not in final.deleted and not (tick and "forget" in final.world.plan.deeds):
            assert len(set(results)) == 1, f"step of {run_id} {tick} ({scope}): {results}"
            sql = "SELECT result FROM ocean_steps WHERE run_id = ? AND tick = ?"
            assert json.loads(final.one(sql, run_id, tick) or "0") == results[0], f"step of {run_id} {tick} is gone"


def streamed_events_have_a_living_call(final: FinalState) -> None:
    """After a tick was called again or has committed, no event of an older call appears."""
    newest: dict[Any, float] = defaultdict(int)
    for event in final.of("part", "tick.restarted", "tick.committed", "run.created"):
        place = (event["run_id"], event["tick"])
        if event["type"] == "part":
            assert event["call"] >= newest[place], f"fencing: {event} was streamed by a call that was over"
        elif event["type"] == "run.created":
            newest = defaultdict(int, {at: call for at, call in newest.items() if at[0] != event["run_id"]})
        else:
            newest[place] = event["call"] if event["type"] == "tick.restarted" else float("inf")


def readers_miss_nothing(final: FinalState) -> None:
    log = [event["seq"] for event in final.log]
    for name, seen in final.history.followed.items():
        got = [seq for seq, type in seen if type != "reset"]
        if got and len(got) == len(seen):
            expected = [seq for seq in log if seq <= got[-1]]
            assert got == expected, f"{name} has read {got} of {expected}"
        assert sorted(set(got)) == got, f"{name} has read twice, or in another order: {got}"
        assert len(got) == len(seen) or final.floor, f"{name} was reset, and nothing was removed"


def direct_calls_are_linearizable(final: FinalState) -> None:
    """Some order explains the results of all calls, and the state at the end."""
    histories = final.world.contest.history
    for run_id in histories.of:
        row = final.one("SELECT value FROM ocean_storage_run WHERE run_id = ?", run_id)
        state = json.loads(row) if row else OPEN
        histories.record_response(run_id, histories.record_request(run_id, ("look",)), ["refused", *state])
    for run_id in unexplained(histories.of):
        raise AssertionError(f"no order explains {run_id}: {histories.of[run_id]}")


def decisions_end_once(final: FinalState) -> None:
    for run_id in final.world.contest.runs:
        ends_in(run_id, [event["type"] for event in final.log if event["run_id"] == run_id])


def feeds_of_a_run_miss_nothing(final: FinalState) -> None:
    """The parts of a feed together are the log of the run, and the feed ends after the run has."""
    logs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for event in final.log:
        logs[event["run_id"]].append((event["seq"], event["type"]))
    for feed in final.history.feeds:
        got = [notified for notified in feed.seen if notified[1] != "reset"]
        if len(got) == len(feed.seen):
            expected = [notified for notified in logs[feed.run_id] if got and notified <= got[-1]]
            assert got == expected, f"{feed.run_id} has delivered {got} of {expected}"
        assert sorted(set(got)) == got, f"{feed.run_id} has delivered twice, or in another order: {got}"
        assert len(got) == len(feed.seen) or final.floor, f"{feed.run_id} was reset, and nothing was removed"
        if feed.has_ended:
            assert LAST_EVENTS & {type for _, type in logs[feed.run_id]}, f"{feed.run_id} lives, and its feed ended"


CHECKS = (
    direct_calls_are_linearizable,
    decisions_end_once,
    acknowledged_signals_are_there_once,
    a_repeated_request_has_the_same_result,
    signal_ids_count_once,
    ticks_commit_once,
    rows_are_the_sum_of_what_was_committed,
    shared_rows_lose_nothing,
    counters_admit_what_their_limits_allow,
    steps_are_taken_once,
    streamed_events_have_a_living_call,
    readers_miss_nothing,
    feeds_of_a_run_miss_nothing,
)
