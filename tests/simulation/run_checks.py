"""Checks at the end of a simulation: how runs were called, and how they ended."""

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import Any

from ocean.state.retry_as_new import retry_id
from tests.simulation.clogs import END_BACKOFF_MS
from tests.simulation.end_checks import ENDINGS, second_ends
from tests.simulation.event_log import FinalState
from tests.simulation.plan import VERBS_FOR_MANY
from tests.simulation.verbs import LONGEST_REST_MS, RATE_LIMIT, RATE_PER_MS, REST_MS

GIVE_BACKS = 2
CALLS_OF_A_CLAIM = 6
"""The first call, three for conflicts, and some for counters."""


def parents_are_notified_once(final: FinalState) -> None:
    notified: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    again = second_ends(final)
    asks = {
        event["payload"]["child"]: event["payload"]["notify"]
        for event in final.of("did")
        if "child" in event["payload"]
    }
    for event in final.of("run.signalled", "signal.undelivered", "run.done", "run.failed"):
        payload = event["payload"]
        if event["type"] in ("run.done", "run.failed"):
            # After `retry_end` a run ends a second time, of which its parent is not notified.
            ended[event["run_id"]] += event["seq"] not in again
        elif payload.get("kind") == "child":
            notified[payload.get("child_run_id", event["run_id"])] += 1
    for child, notify in asks.items():
        assert notified[child] == (ended[child] if notify else 0), (
            f"{child} ended {ended[child]} times, its parent was notified {notified[child]} times"
        )


def every_call_of_a_tick_is_the_same(final: FinalState) -> None:
    lives = Counter(event["run_id"] for event in final.of("run.created"))
    for (run_id, tick), calls in final.history.calls.items():
        if lives[run_id] > 1:
            continue
        assert len({(call.reason, call.inputs) for call in calls}) == 1, f"same input: {run_id} {tick}: {calls}"
        numbers = [call.call for call in calls]
        assert len(set(numbers)) == len(numbers), f"call numbers of {run_id} {tick}: {numbers}"


def _is_of(event: dict[str, Any], run_id: str, tick: int) -> bool:
    return (event["run_id"], event["tick"]) == (run_id, tick)


def waste_is_bounded(final: FinalState) -> None:
    lives = Counter(event["run_id"] for event in final.of("run.created"))
    for (run_id, tick), calls in final.history.calls.items():
        run = final.world.watcher.rows.get(run_id)
        if lives[run_id] != 1 or run is None:
            continue
        most = run.max_attempts
        restarts = [event["payload"] for event in final.of("tick.restarted") if _is_of(event, run_id, tick)]
        if calls[0].reason in ENDINGS:
            retried = [event for event in final.of("run.end_incomplete") if event["run_id"] == run_id]
            most = final.world.plan.end_attempts * (1 + len(retried))
        if most is not None:
            claims = 1 + sum(each["because"] in ("crash", "retry", "give_back") for each in restarts)
            # A crash beside others is no attempt, and the give-back of an orderly stop is not counted.
            given_back = [event["payload"] for event in final.of("tick.given_back") if _is_of(event, run_id, tick)]
            given_back = [each["give_backs"] for each in given_back if "give_backs" in each]
            counted = {number for number in given_back if number}
            free = sum("company" in each for each in restarts) + len(given_back) - len(counted)
            assert claims <= most + GIVE_BACKS + free, f"{run_id} {tick} was claimed {claims} times"
            allowed = (most + GIVE_BACKS + free) * CALLS_OF_A_CLAIM
            assert len(calls) <= allowed, f"{run_id} {tick} was called {len(calls)} times"


def same_keys_make_the_same_runs(final: FinalState) -> None:
    """A run id makes one run, until that run is deleted."""
    alive: set[str] = set()
    for event in final.of("run.created", "run.deleted"):
        if event["type"] == "run.created":
            assert event["run_id"] not in alive, f"{event['run_id']} was created twice"
            alive.add(event["run_id"])
        else:
            alive.discard(event["run_id"])


def acknowledged_creations_are_there(final: FinalState) -> None:
    created = {event["run_id"] for event in final.of("run.created")}
    for sent in final.history.requests:
        if sent.verb.startswith("create") and sent.results:
            assert all(answer.run_id in created for answer in sent.results), f"durable ack: {sent}"


def a_dedupe_key_makes_one_run(final: FinalState) -> None:
    """A dedupe key makes one run until that is deleted: it does not expire, and no tick of these seeds releases it."""
    if "release" in final.world.plan.deeds:
        return
    made = [sent.results[0].run_id for sent in final.history.requests if sent.verb == "create_kept" and sent.results]
    alive = dict.fromkeys(run_id for run_id in made if run_id not in final.deleted)
    assert len(alive) <= 1, f"one dedupe key, and {list(alive)}"


def signals_are_not_early(final: FinalState) -> None:
    for sent in final.history.requests:
        if sent.deliver_at is not None:
            sql = "SELECT available_at FROM ocean_inbox WHERE body = ?"
            at = final.one(sql, f'{{"t":"{sent.token}"}}')
            assert at is None or at >= sent.deliver_at, f"{sent} is available at {at}"


def a_continuation_comes_first(final: FinalState) -> None:
    continued: dict[str, bool] = {}
    for event in final.of("run.created", "tick.committed"):
        run_id = event["run_id"]
        if event["type"] == "run.created":
            continued[run_id] = False
            continue
        reason = event["payload"]["reason"]
        is_last = reason in ENDINGS
        assert not continued.get(run_id) or is_last or reason == "continue", f"something came before: {event}"
        continued[run_id] = event["payload"]["outcome"] == "continue"


def debounced_runs_wait_for_rest(final: FinalState) -> None:
    created: dict[str, int] = {}
    for event in final.of("run.created", "run.debounced"):
        created.setdefault(event["run_id"], event["ts"])
        if event["type"] == "run.debounced" or event["payload"].get("delayed_by") == "debounce":
            rest_at = max(event["ts"] + REST_MS, created[event["run_id"]])
            allowed = (rest_at, min(rest_at, created[event["run_id"]] + LONGEST_REST_MS))
            assert event["payload"]["wake_at"] in allowed, f"it starts too early: {event}"


def children_end_with_their_parents(final: FinalState) -> None:
    rows = final.world.watcher.rows
    for event in final.of("did"):
        parent, child = rows.get(event["run_id"]), rows.get(event["payload"].get("child", ""))
        if event["payload"].get("fate") == "cancel" and parent and child and parent.is_ended:
            assert child.is_ended or child.ending, f"{child.run_id} lives on after its parent {parent.run_id}"


def the_undelivered_are_named(final: FinalState) -> None:
    named = {
        event["run_id"]: event["payload"]["count"]
        for event in final.of("signal.undelivered")
        if event["payload"]["to"] == event["run_id"] and "count" in event["payload"]
    }
    sql = (
        "SELECT i.run_id, count(*) AS n FROM ocean_inbox i JOIN runs r ON r.run_id = i.run_id"
        " WHERE r.ended_at IS NOT NULL AND i.consumed_tick IS NULL GROUP BY i.run_id"
    )
    for row in final.db.execute(sql).fetchall():
        count = named.get(row["run_id"], 0)
        assert count == row["n"], f"{row['run_id']} ended with {row['n']} undelivered, and named {count}"


def healthy_instances_keep_their_locks(final: FinalState) -> None:
    """Without faults no lock expires: it is renewed in time, however long a handler works."""
    if final.world.plan.rates:
        return
    for event in final.of("tick.restarted"):
        is_ours = event["clog_id"] != "errand"
        assert not (is_ours and event["payload"]["because"] == "crash"), f"a lock lapsed: {event}"


def back_offs_are_kept(final: FinalState) -> None:
    for event in final.of("run.retrying"):
        run = final.world.watcher.rows.get(event["run_id"])
        calls = final.history.calls[event["run_id"], event["tick"]]
        is_last = bool(calls) and calls[0].reason in ENDINGS
        if run is not None and run.max_attempts and "the handler raises" in event["payload"]["error"]["message"]:
            base = END_BACKOFF_MS if is_last else 100 if run.max_attempts == 2 else 1_000
            least = base * 2 ** (event["payload"]["attempt"] - 1)
            delay = event["payload"]["wake_at"] - event["ts"]
            assert least <= delay <= 1.5 * least, f"attempt budget: waits {delay} ms: {event}"


def a_commit_that_stood_is_known(final: FinalState) -> None:
    if "forget" in final.world.plan.deeds:
        return
    committed = {
        (event["run_id"], event["tick"], event["payload"]["epoch"])
        for event in final.of("tick.committed")
        if event["run_id"] not in final.deleted
    }
    for lost in final.history.lost:
        assert lost not in committed, f"{lost} has committed, and got the error that its lock was lost"


def completed_work_stays_completed(final: FinalState) -> None:
    for sent in final.history.requests:
        if sent.verb == "complete_work" and sent.results:
            assert "lease_lost" not in sent.refusals, f"a repeated completion was refused: {sent}"


def rates_are_kept(final: FinalState) -> None:
    """A token is free exactly when the rate allows it. Seeds in which clocks differ are not checked."""
    rated = final.world.watcher.rated
    if {"skew", "jump"} & final.world.plan.rates.keys() or None in rated.values():
        return
    owed_until = Fraction(0)
    for event in final.of("run.created"):
        if rated[event["seq"]]:
            owed_until = max(owed_until, Fraction(event["ts"])) + Fraction(RATE_PER_MS, RATE_LIMIT)
            free_at = max(event["ts"], ceil(owed_until - RATE_PER_MS))
            starts_at = event["payload"].get("wake_at", event["ts"])
            assert starts_at == free_at, f"rate: its token is free at {free_at}: {event}"


def verbs_for_many_reach_all(final: FinalState) -> None:
    """A verb for many runs reaches all runs that existed when it was called and still exist."""
    rows, db = final.world.watcher.rows, final.db
    created = Counter(event["run_id"] for event in final.of("run.created"))
    for sent in final.history.requests:
        for answer in sent.results if sent.verb in VERBS_FOR_MANY else ():
            refused = sum(answer.errors.values())
            assert (answer.refused, answer.seen) == (refused, answer.done + refused), f"{sent.verb} counts {answer}"
            runs = [rows[run_id] for run_id in sent.meant if run_id in rows and created[run_id] == 1]
            for run in [] if answer.more else runs:
                match sent.verb:
                    case "cancel_runs":
                        is_reached = run.is_ended or run.ending is not None
                    case "signal_runs":
                        sql = "SELECT 1 FROM ocean_inbox WHERE run_id = ? AND signal_id = ?"
                        is_there = db.execute(sql, (run.run_id, f"id-{sent.token}")).fetchone()
                        # A run that is ending takes no more signals.
                        is_reached = run.is_ended or run.ending is not None or is_there is not None
                    case "retry_runs":
                        is_reached = bool(refused or created[retry_id(run)])
                    case _:
                        is_reached = bool(refused)
                assert is_reached, f"{sent.verb} has skipped {run}: {answer}"


CHECKS = (
    parents_are_notified_once,
    every_call_of_a_tick_is_the_same,
    waste_is_bounded,
    same_keys_make_the_same_runs,
    acknowledged_creations_are_there,
    a_dedupe_key_makes_one_run,
    signals_are_not_early,
    a_continuation_comes_first,
    debounced_runs_wait_for_rest,
    children_end_with_their_parents,
    the_undelivered_are_named,
    healthy_instances_keep_their_locks,
    back_offs_are_kept,
    a_commit_that_stood_is_known,
    completed_work_stays_completed,
    rates_are_kept,
    verbs_for_many_reach_all,
)
