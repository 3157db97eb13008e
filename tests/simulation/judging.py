"""At the end: the histories of those outside, the log and the tables must tell one story."""

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.simulation.clogs import CAP

if TYPE_CHECKING:
    from tests.simulation.world import World

SIGNALS = ("signal", "signal_later", "signal_if_idle")
GIVE_BACKS = 2
CALLS_OF_A_CLAIM = 6
"""The first, three for conflicts, one for each counter."""


class Story:
    """The log, read once."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.history = world.history
        self.db = world.db
        self.log = [{**event, "payload": json.loads(event["payload"])} for event in world.watcher.log]
        self.floor = self.one("SELECT seq FROM ocean_log_floor WHERE id = 1")
        self.deleted = {event["run_id"] for event in self.log if event["type"] == "run.deleted"}

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event for event in self.log if event["type"] in types]

    def one(self, sql: str, *values: Any) -> Any:
        row = self.db.execute(sql, values).fetchone()
        return row[0] if row else None


def judge(world: "World") -> None:
    story = Story(world)
    for check in CHECKS:
        try:
            check(story)
        except AssertionError as error:
            world.fail(check.__name__.replace("_", " "), str(error))
            return


def acknowledged_signals_are_there_once(story: Story) -> None:
    rows: Counter[str] = Counter()
    for row in story.db.execute("SELECT run_id, body FROM ocean_inbox WHERE kind = 'signal'").fetchall():
        rows[json.loads(row["body"])["t"]] += 1
    for asked in story.history.asked:
        if asked.verb in SIGNALS and asked.run_id not in story.deleted:
            count = rows[str(asked.token)]
            assert count <= 1, f"{asked} is there {count} times"
            assert count == 1 or not asked.answers, f"{asked} is gone"
            assert count == 0 or asked.answers or asked.is_unknown, f"{asked} was refused, and is there"


def the_same_request_is_answered_the_same(story: Story) -> None:
    for asked in story.history.asked:
        if asked.key is not None and asked.verb not in ("explain", "dry_run", "advance_run", "sweep"):
            first = asked.answers[:1] * len(asked.answers)
            assert asked.answers == first, f"{asked.verb} {asked.key} was answered {asked.answers}"


def signal_ids_count_once(story: Story) -> None:
    sql = "SELECT run_id, signal_id, count(*) FROM ocean_inbox WHERE signal_id IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
    assert not story.db.execute(sql).fetchall()


def ticks_commit_once(story: Story) -> None:
    ticks: Counter[Any] = Counter()
    epochs: Counter[Any] = Counter()
    for event in story.of("run.created", "tick.committed"):
        run_id = event["run_id"]
        if event["type"] == "run.created":
            ticks.update({place: -ticks[place] for place in list(ticks) if place[0] == run_id})
            epochs.update({place: -epochs[place] for place in list(epochs) if place[0] == run_id})
            continue
        ticks[run_id, event["tick"]] += 1
        epochs[run_id, event["payload"]["epoch"]] += 1
        assert ticks[run_id, event["tick"]] == 1, f"tick {event['tick']} of {run_id} commits twice"
        assert epochs[run_id, event["payload"]["epoch"]] == 1, f"an epoch of {run_id} commits twice"


def rows_are_the_sum_of_what_was_committed(story: Story) -> None:
    ticks: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in story.of("run.created", "did", "noted"):
        run_id = event["run_id"]
        if event["type"] == "run.created":
            ticks[run_id] = calls[run_id] = 0
        elif event["type"] == "did":
            ticks[run_id] += 1
            assert event["payload"]["ticks"] == ticks[run_id], f"a row of {run_id} was lost: {event}"
        else:
            calls[run_id] += 1
            assert event["payload"]["calls"] == calls[run_id], f"a row of {run_id} was lost: {event}"
    for row in story.db.execute("SELECT run_id, value FROM ocean_storage_run").fetchall():
        value, run_id = json.loads(row["value"]), row["run_id"]
        assert value == {"ticks": ticks[run_id], "calls": calls[run_id]}, f"the row of {run_id} is {value}"


def shared_rows_lose_nothing(story: Story) -> None:
    bumped: Counter[str] = Counter()
    added: Counter[tuple[str, str]] = Counter()
    for event in story.of("did", "added", "session.deleted"):
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
        stored = json.loads(story.one(sql, clog_id, session) or "0")
        assert stored == count, f"function adds: {clog_id} in {session} has {stored}, and {count} were committed"


def counters_admit_what_they_say(story: Story) -> None:
    granted: Counter[str] = Counter()
    for event in story.of("did"):
        if "took" in event["payload"]:
            key, is_granted, used = event["payload"]["took"]
            granted[key] += is_granted
            assert is_granted or used == CAP, f"refused though there was room: {event}"
    for key in ("cap-1", "cap-2"):
        takes = [asked for asked in story.history.asked if asked.verb == "take" and asked.run_id == key]
        sure = granted[key] + sum(any(taken.ok for taken in asked.answers) for asked in takes)
        perhaps = sum(asked.is_unknown and not asked.answers for asked in takes)
        used = story.one("SELECT used FROM ocean_counters WHERE key = ?", key) or 0
        assert sure <= used <= min(CAP, sure + perhaps), f"{key}: {used} taken, {sure} (+{perhaps}) told"


def steps_are_taken_once(story: Story) -> None:
    for (run_id, tick, scope), results in story.history.steps.items():
        if run_id not in story.deleted:
            assert len(set(results)) == 1, f"step of {run_id} {tick} ({scope}): {results}"
            sql = "SELECT result FROM ocean_steps WHERE run_id = ? AND tick = ?"
            assert json.loads(story.one(sql, run_id, tick) or "0") == results[0], f"step of {run_id} {tick} is gone"


def streamed_events_have_a_living_call(story: Story) -> None:
    """After a tick was called again, or has committed, nothing of an older call appears."""
    newest: dict[Any, float] = defaultdict(int)
    for event in story.of("part", "tick.restarted", "tick.committed", "run.created"):
        place = (event["run_id"], event["tick"])
        if event["type"] == "part":
            assert event["call"] >= newest[place], f"fencing: {event} was streamed by a call that was over"
        elif event["type"] == "run.created":
            newest = defaultdict(int, {at: call for at, call in newest.items() if at[0] != event["run_id"]})
        else:
            newest[place] = event["call"] if event["type"] == "tick.restarted" else float("inf")


def parents_are_told_once(story: Story) -> None:
    told: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    asks = {
        event["payload"]["child"]: event["payload"]["notify"]
        for event in story.of("did")
        if "child" in event["payload"]
    }
    for event in story.of("run.signalled", "signal.undelivered", "run.done", "run.failed"):
        payload = event["payload"]
        if event["type"] in ("run.done", "run.failed"):
            ended[event["run_id"]] += 1
        elif payload.get("kind") == "child":
            told[payload.get("child_run_id", event["run_id"])] += 1
    for child, notify in asks.items():
        assert told[child] == (ended[child] if notify else 0), f"{child} ended {ended[child]} times, told {told[child]}"


def every_call_of_a_tick_is_the_same(story: Story) -> None:
    lives = Counter(event["run_id"] for event in story.of("run.created"))
    for (run_id, tick), calls in story.history.calls.items():
        if lives[run_id] > 1:
            continue
        assert len({(call.reason, call.inputs) for call in calls}) == 1, f"same input: {run_id} {tick}: {calls}"
        numbers = [call.call for call in calls]
        assert len(set(numbers)) == len(numbers), f"call numbers of {run_id} {tick}: {numbers}"


def waste_is_bounded(story: Story) -> None:
    lives = Counter(event["run_id"] for event in story.of("run.created"))
    for (run_id, tick), calls in story.history.calls.items():
        run = story.world.watcher.rows.get(run_id)
        if lives[run_id] == 1 and run is not None and run.max_attempts is not None:
            most = (run.max_attempts + GIVE_BACKS) * CALLS_OF_A_CLAIM
            assert len(calls) <= most, f"{run_id} {tick} was called {len(calls)} times"
            claims = 1 + sum(
                event["payload"]["because"] in ("crash", "retry", "give_back")
                for event in story.of("tick.restarted")
                if (event["run_id"], event["tick"]) == (run_id, tick)
            )
            assert claims <= run.max_attempts + GIVE_BACKS, f"{run_id} {tick} was claimed {claims} times"


def readers_miss_nothing(story: Story) -> None:
    log = [event["seq"] for event in story.log]
    for name, seen in story.history.followed.items():
        got = [seq for seq, type in seen if type != "reset"]
        if got and len(got) == len(seen):
            expected = [seq for seq in log if seq <= got[-1]]
            assert got == expected, f"{name} has read {got} of {expected}"
        assert sorted(set(got)) == got, f"{name} has read twice, or in another order: {got}"
        assert len(got) == len(seen) or story.floor, f"{name} was reset, and nothing was removed"


def same_keys_make_the_same_runs(story: Story) -> None:
    """A run id makes one run for each of its lives."""
    alive: set[str] = set()
    for event in story.of("run.created", "run.deleted"):
        if event["type"] == "run.created":
            assert event["run_id"] not in alive, f"{event['run_id']} was created twice"
            alive.add(event["run_id"])
        else:
            alive.discard(event["run_id"])


def answered_creations_are_there(story: Story) -> None:
    created = {event["run_id"] for event in story.of("run.created")}
    for asked in story.history.asked:
        if asked.verb.startswith("create") and asked.answers:
            assert all(answer.run_id in created for answer in asked.answers), f"durable ack: {asked}"


CHECKS = (
    acknowledged_signals_are_there_once,
    the_same_request_is_answered_the_same,
    signal_ids_count_once,
    ticks_commit_once,
    rows_are_the_sum_of_what_was_committed,
    shared_rows_lose_nothing,
    counters_admit_what_they_say,
    steps_are_taken_once,
    streamed_events_have_a_living_call,
    parents_are_told_once,
    every_call_of_a_tick_is_the_same,
    waste_is_bounded,
    readers_miss_nothing,
    same_keys_make_the_same_runs,
    answered_creations_are_there,
)
