"""Checks after every commit: its changes must be allowed, and the tables must be consistent.

Only what the units of the commit have touched is checked; now and then, and at the end, everything is.
"""

import json
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ocean.kernel.store.claims import ClaimableClog, ClaimAsk
from ocean.state.eligibility import FAIR_EVERY, holds, is_lapsed_lease, kernel_end
from ocean.state.records import ENDED, Run, RunStatus, changed
from ocean.state.suspects import most_together
from ocean.state.transitions import attempts, due_at, next_call_at
from ocean.stores.shared.rows import run_from
from ocean.stores.sqlite.claiming import surroundings
from ocean.stores.sqlite.crashes import as_if_noted
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit
from tests import invariants
from tests.simulation.crash_checks import check_crash, peers_of, was_alone

if TYPE_CHECKING:
    from tests.simulation.instances import Instance
    from tests.simulation.world import World

ALL_EVERY = 40
CLAIMS_EVERY = 6
UNENDED = "SELECT * FROM runs WHERE ended_at IS NULL ORDER BY run_id"
OUTCOMES = ("tick.committed", "tick.failed", "run.retrying")
PLACE = attrgetter("status", "attempt", "end_attempt", "ending")
FINAL = ("status", "tick", "lock_epoch", "attempt", "inbox_count", "ended_at")


class Watcher:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._last = 0
        self._commits = 0
        self._run_seq: dict[str, int] = {}
        self._consumed: dict[str, dict[int, int]] = {}
        self.log: list[dict[str, Any]] = []
        self.rows: dict[str, Run] = {}
        self.companies: dict[tuple[str, int], int | None] = {}
        """For each claim, a run and its epoch: its `crash_company`, which makes it a suspect."""
        self._verbs: list[str] = []
        self._give_backs: dict[tuple[str, int], int] = {}
        self._before: dict[str, Run] = {}
        self.rated: dict[int, bool | None] = {}
        """For each creation, by its cursor: whether it was under a rate; None if its commit also removed the run."""
        self.latest = world.clock.now()
        """The time of the clock that is furthest ahead. The checks use it, so that nothing is due later for them."""

    def after_commit(self, instance: "Instance") -> None:
        if self._world.over.done() or self._world.failure is not None:
            return
        # With PostgreSQL it is unknown what a unit has touched: it may be any run.
        units: list[tuple[str, Unit | None]] = list(instance.store.units)  # type: ignore[attr-defined]
        instance.store.units.clear()  # type: ignore[attr-defined]
        now = instance.clock.now()
        self.latest = max(self.latest, now)
        self._commits += 1
        self._verbs = [verb for verb, _ in units]
        events = self._new_events(instance, self._verbs)
        self._before = dict(self.rows)
        touched = {run_id: None for _, unit in units if unit for run_id in unit._runs}
        touched |= {} if self._world.is_on_sqlite else self._all_runs()
        touched |= {event["run_id"]: None for event in events if event["run_id"]}
        try:
            self._check_log(events)
            self._check_fence(events)
            self._check_give_backs(events)
            self._check_stops(events)
            for run_id in touched:
                self._check_run(run_id, events, now, len(units) == 1)
            if self._commits % CLAIMS_EVERY == 0:
                self._check_claims(instance, now)
            if self._commits % ALL_EVERY == 0:
                invariants.check_tables(self._world.db, self.latest)
        except AssertionError as error:
            self._world.fail(_check_of(error), str(error))

    def _all_runs(self) -> dict[str, None]:
        stored = [row["run_id"] for row in self._world.db.execute("SELECT run_id FROM runs ORDER BY run_id")]
        return dict.fromkeys([*self.rows, *stored])

    def check_all(self) -> None:
        try:
            invariants.check_tables(self._world.db, self.latest)
            kept = [dict(row) for row in self._world.db.execute("SELECT * FROM events ORDER BY seq").fetchall()]
            assert kept == self.log[len(self.log) - len(kept) :], "the log is not what was appended, cut from the front"
        except AssertionError as error:
            self._world.fail(_check_of(error), str(error))

    def _new_events(self, instance: "Instance", verbs: list[str]) -> list[dict[str, Any]]:
        sql = "SELECT * FROM events WHERE seq > ? ORDER BY seq"
        events = [dict(row) for row in self._world.db.execute(sql, (self._last,)).fetchall()]
        self.log += events
        lines = "".join(
            f"\n{'':9}  {event['seq']} {event['type']} {event['run_id']} {event['run_seq']} "
            f"{event['tick']}.{event['call']} {event['payload']}"
            for event in events
        )
        self._world.record(f"{instance.process.name} commits {'+'.join(verbs) or 'renewal'}{lines}")
        for event in events:
            self._last = event["seq"]
            self._world.count_event(f"event {event['type']}")
            if event["type"] == "run.created":
                self._see_delay(event)
            payload = json.loads(event["payload"])
            if event["type"] == "tick.restarted":
                self._world.count_event(f"again {payload['because']}")
            if event["type"] == "run.ending":
                self._world.count_event("ending at work" if payload["stop_by"] is not None else "ending at rest")
        return events

    def _see_delay(self, created: dict[str, Any]) -> None:
        self._world.count_event(f"delay {json.loads(created['payload']).get('delayed_by')}")
        sql = "SELECT rate FROM ocean_run_details WHERE run_id = ?"
        row = self._world.db.execute(sql, (created["run_id"],)).fetchone()
        self.rated[created["seq"]] = None if row is None else row["rate"] is not None

    def _check_log(self, events: list[dict[str, Any]]) -> None:
        """The log of each run has no gaps, and the events of a call are in its commit."""
        committed = {
            (event["run_id"], event["tick"], event["call"]) for event in events if event["type"] == "tick.committed"
        }
        for event in events:
            run_id, number = event["run_id"], event["run_seq"]
            if run_id is None:
                continue
            is_anew = event["type"] == "run.created" and number == 1
            assert is_anew or number == self._run_seq.get(run_id, 0) + 1, f"dense log: {run_id} at {number}"
            self._run_seq[run_id] = number
            if event["type"] == "run.created":
                self.rows.pop(run_id, None)
                self._consumed.pop(run_id, None)
                self._give_backs = {place: count for place, count in self._give_backs.items() if place[0] != run_id}
            if event["type"] in ("did", "nested") and event["tick"]:
                place = (run_id, event["tick"], event["call"])
                assert place in committed, f"atomic tick: {place} emits {event['type']!r} and does not commit"

    def _check_fence(self, events: list[dict[str, Any]]) -> None:
        """The outcome of a call has the epoch that the run had before."""
        for event in events:
            before = self.rows.get(event["run_id"])
            if event["type"] in OUTCOMES and before is not None:
                epoch = json.loads(event["payload"])["epoch"]
                assert epoch == before.lock_epoch, f"fencing: {event} does not fit {before}"

    def _check_give_backs(self, events: list[dict[str, Any]]) -> None:
        """Two of a tick are free."""
        for event in events:
            payload = json.loads(event["payload"]) if event["type"] == "tick.given_back" else {}
            before = self.rows.get(event["run_id"])
            if "give_backs" in payload and before is not None and before.status is RunStatus.ACTIVE:
                place = (event["run_id"], event["tick"])
                # An orderly stop is not counted at all.
                is_free = payload["give_backs"] == self._give_backs.get(place, 0)
                self._give_backs[place] = payload["give_backs"]
                is_counted = payload["give_backs"] > 2 and not is_free and before.stop_by is None
                counted = payload["attempt"] - attempts(before)
                assert counted == is_counted, f"attempt budget: {event} after {before}"

    def _check_stops(self, events: list[dict[str, Any]]) -> None:
        """A call whose run is ending commits nothing: only the last tick does."""
        for event in events:
            before = self.rows.get(event["run_id"])
            if event["type"] in OUTCOMES and before is not None and before.ending is not None:
                is_last = before.stop_by is None or event["tick"] > before.tick
                assert is_last, f"stopped call: {event} although the run is ending: {before}"
                reason = json.loads(event["payload"]).get("reason", before.ending)
                assert reason == before.ending, f"stopped call: {event} is not the last tick of {before}"

    def _check_run(self, run_id: str, events: Iterable[dict[str, Any]], now: int, is_alone: bool) -> None:
        row = self._world.db.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        before = self.rows.pop(run_id, None)
        if row is None:
            self._consumed.pop(run_id, None)
            return
        invariants.check_run(self._world.db, row, self.latest)
        run = self.rows[run_id] = run_from(row)
        if before is not None:
            self._check_move(before, run, now, is_alone)
        numbers = [
            number
            for event in events
            if event["run_id"] == run_id and event["type"] == "tick.committed"
            for number in json.loads(event["payload"])["inputs"]
        ]
        self._check_consumption(run_id, numbers)

    def _check_move(self, before: Run, run: Run, now: int, is_alone: bool) -> None:
        if before.status in ENDED:
            same = all(getattr(before, name) == getattr(run, name) for name in FINAL)
            is_end_retried = before.end_incomplete and run.ending is not None and run.tick == before.tick
            assert same or is_end_retried, f"terminal is final: {before} became {run}"
        assert run.lock_epoch >= before.lock_epoch, f"epoch: {before.lock_epoch} became {run.lock_epoch}"
        assert run.tick >= before.tick, f"tick number: {before.tick} became {run.tick}"
        if run.max_attempts is not None:
            assert run.attempt <= run.max_attempts, f"attempt budget: {run}"
        if run.end_max_attempts is not None:
            assert run.end_attempt <= run.end_max_attempts, f"attempt budget: the last tick of {run}"
        if run.end_incomplete:
            assert run.end_attempt == run.end_max_attempts, f"attempt budget: the last tick was given up early: {run}"
        if run.lock_epoch != before.lock_epoch:
            # A company of this epoch was noted after the claim, in the same commit.
            is_of_claim = run.crash_epoch != run.lock_epoch
            self.companies[run.run_id, run.lock_epoch] = run.crash_company if is_of_claim else None
        if not is_alone or run.event_count > before.event_count + (run.tick == before.tick):
            # Something else has happened to it in the same transaction, perhaps in the same unit.
            return
        if run.lock_epoch != before.lock_epoch:
            self._check_claim(before, run, now)
        elif run.status is RunStatus.ACTIVE:
            assert before.status is RunStatus.ACTIVE, f"epoch: at work under an old one: {run}"
            if self._verbs == ["call_apart"] and run.crash_epoch != before.crash_epoch:
                most = most_together(before.crash_company or 0)
                assert 0 < (run.crash_company or 0) <= most, f"suspects are called apart: {before} became {run}"

    def _check_claim(self, before: Run, run: Run, now: int) -> None:
        assert run.lock_epoch == before.lock_epoch + 1, f"epoch: {before.lock_epoch} became {run.lock_epoch}"
        assert not before.paused or before.ending, f"claimed though it is paused: {before}"
        peers = peers_of(before, self._before)
        company = int(before.leased or was_alone(before, peers))
        noted = changed(before, crash_epoch=before.lock_epoch, crash_company=company)
        assert kernel_end(noted, now) is None, f"claimed though its end is owed: at {now} {before}"
        # By the unit that claims it a slot may have been freed for it.
        due = next_call_at(before)
        assert due is not None, f"claimed though it is not due: {before}"
        assert due <= now, f"claimed too early: at {now} {before}"
        if before.status is RunStatus.ACTIVE:
            free_at = min(before.lock_expires_at or 0, before.stop_by or before.lock_expires_at or 0)
            assert free_at <= now, f"exclusion: claimed at {now} from {before}"
            check_crash(self._world, self._before, before, run, now)
        if run.tick == before.tick:
            assert before.tick_open, f"tick identity: {run.tick} is called again after its commit: {run}"
            return
        inputs = self._world.db.execute(
            "SELECT number, available_at, assigned_tick FROM ocean_inbox WHERE run_id = ? AND consumed_tick IS NULL"
            " ORDER BY available_at, number",
            (run.run_id,),
        ).fetchall()
        mine = [(each["available_at"], each["number"]) for each in inputs if each["assigned_tick"] == run.tick]
        others = [(each["available_at"], each["number"]) for each in inputs if each["assigned_tick"] is None]
        assert all(at <= now for at, _ in mine), f"delivered too early: at {now} {mine}"
        assert not mine or not others or max(mine) < min(others), f"order: {mine} before {others}"
        if run.ending is None:
            assert mine or before.wait_until is not None, f"called without an input, and it has not waited: {before}"
            assert mine or not others or others[0][0] > now, f"order: nothing of {others} was delivered at {now}"

    def _check_consumption(self, run_id: str, numbers: list[int]) -> None:
        """Inputs are consumed by the commit of their tick, each once."""
        sql = "SELECT number, consumed_tick FROM ocean_inbox WHERE run_id = ? AND consumed_tick IS NOT NULL"
        consumed = {row["number"]: row["consumed_tick"] for row in self._world.db.execute(sql, (run_id,)).fetchall()}
        before = self._consumed.get(run_id, {})
        assert before.items() <= consumed.items(), f"no double delivery: {before} became {consumed} in {run_id}"
        fresh = sorted(consumed.keys() - before.keys())
        assert fresh == sorted(numbers), f"consume at commit: {run_id} lists {numbers}, consumed {fresh}"
        self._consumed[run_id] = consumed

    def _check_claims(self, instance: "Instance", now: int) -> None:
        """Explain ⇔ claim: exactly the runs without holds are claimed. The claim is undone afterwards."""
        u = Unit(Transaction(self._world.db), now)
        clogs = instance.ocean._runtime.claimable(None)
        runs = [run_from(row) for row in self._world.db.execute(UNENDED).fetchall()]
        runs = [as_if_noted(u, run) for run in runs]
        free = {run.run_id: run for run in runs if not holds(run, surroundings(u, run, clogs), now)}
        has_ends = any(kernel_end(run, now) or is_lapsed_lease(run, now) for run in runs)
        claimed = self._world.backend.try_claim(ClaimAsk(clogs, "watcher", 500), now)
        for run_id, run in free.items():
            after = claimed.runs.get(run_id)
            is_moved = after is None or PLACE(after) != PLACE(run)
            is_left = run_id not in claimed.ids and not is_moved and not run.key_count
            assert not is_left, f"explain ⇔ claim: nothing is against {run}, and it is not claimed"
        if not has_ends:
            odd = set(claimed.ids) - free.keys()
            assert not odd, f"explain ⇔ claim: {odd} are claimed, and should not be"
        # Last ticks of a paused clog are claimed by age alone, and runs that wait for a key are not in this order.
        if not has_ends and free and not any(run.key_count or run.ending for run in free.values()):
            self._check_order(clogs, list(free.values()), now)

    def _check_order(self, clogs: dict[str, ClaimableClog], free: list[Run], now: int) -> None:
        """Urgent runs are claimed first; every eighth claim takes the run that has been due for longest."""
        for slot, order in ((0, lambda run: (run.priority, *_age(run))), (FAIR_EVERY - 1, _age)):
            claimed = self._world.backend.try_claim(ClaimAsk(clogs, "watcher", 1, slot), now)
            first = min(free, key=order)
            assert claimed.ids == [first.run_id], f"order: {first} should be next of {free}"


def _age(run: Run) -> tuple[int, int, str]:
    return (due_at(run) or 0, run.lock_epoch, run.run_id)


def _check_of(error: AssertionError) -> str:
    """Return the name of the invariant: the first words of the message."""
    words = str(error).split("\n")[0]
    name = words.split(":")[0].split(" of ")[0]
    return name[:60] if words else "an invariant"
