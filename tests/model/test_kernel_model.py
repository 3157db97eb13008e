"""A Hypothesis state machine against a small model: claim, commit, crash and time are separate steps, so that holders
that were overtaken are explicit. It detects a missing fence, version check or consume-at-commit; a slot taken above
its limit, not freed or not passed on; and a take that is applied twice, unguarded or without its tick.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from ocean.kernel.arguments import UNSET
from ocean.kernel.new_runs import new_run, new_signal
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk, Committed, Contended, NotClaimable, RowsAsk, TickCommit
from ocean.kernel.store.runs import CallCommit, CallConflict, CallDone
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import Effects, NewEvent, RowKey, RowWrite
from ocean.state.eligibility import holds
from ocean.state.errors import LockLost, RunEnded
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import Claim, ClogRecord, RunStatus
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.invariants import check_tables
from tests.model.admission import CAP, KEYS, Slots, keys_of

LOCK_MS = 1_000
CLOGS = {name: ClaimableClog(name, LOCK_MS, "1", False) for name in ("c", "d")}
CLAIMED_CLOGS = st.sampled_from([("c",), ("c",), ("c", "d"), ("d",)])
"""The clogs of the instance that claims: often only one of the two."""
OUTCOMES = st.sampled_from([Ok(), Wait(for_ms=700), Continue(0), Done(1), Failed("no"), Retry("again")])
TAKES = st.sampled_from([0, 1, 1, 2])
CAPS = st.integers(0, 3)
"""The counter that is taken from: some are soon exhausted, others are not."""
ENDED = (RunStatus.DONE, RunStatus.FAILED)


@dataclass
class ModelRun:
    """The model of a run."""

    run_id: str
    clog_id: str
    epoch: int = 0
    is_held: bool = False
    expires_at: int = 0
    is_ended: bool = False
    accepted: list[int] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    committed_ticks: int = 0
    attempt: int = 0
    give_backs: int = 0
    is_paused: bool = False
    instance: str = ""
    was_beside: bool = False
    """Whether its process may have been at work on another run, or was not sure about this one: see `_count_crash`."""


@dataclass
class Holder:
    """A running call: its claim and what it read."""

    claim: Claim
    version: int
    row: list[str]
    name: str
    is_refused: bool = False


def row_of(model: ModelRun) -> RowKey:
    return RowKey("run", model.clog_id, run_id=model.run_id)


class KernelMachine(RuleBasedStateMachine):
    runs = Bundle("runs")
    holders = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.store = self.open()
        self.do(self.store.register_clogs([ClogRecord(name, "1", False) for name in CLOGS]))
        self.model: dict[str, ModelRun] = {}
        self.latest: dict[str, Holder] = {}
        self.slots = Slots()
        self.paused_clogs: set[str] = set()
        self.used: Counter[int] = Counter()
        self.body = 0
        self.names = 0

    def open(self) -> Store:
        store = SqliteStore(":memory:", self.clock)
        self.do(store.open())
        return store

    def look(self, read: Callable[[Any], Any]) -> Any:
        """Return the result of a function that reads the tables."""
        assert isinstance(self.store, SqliteStore)
        return self.do(self.store.database.read(read))

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self._faults_stop()
        finally:
            self.do(self.store.close())
            self.runner.close()

    def next_body(self) -> int:
        self.body += 1
        return self.body

    @initialize(target=runs, how=st.lists(st.sampled_from(["tick", "tick", "tick", "run"]), min_size=3, max_size=3))
    def form_a_line(self, how: Any) -> Any:
        """Create a run with a slot, one that is next, and one behind it: most slot errors need all three."""
        return multiple(*[self.create(True, None, "c", ["a"], [hold], 5) for hold in how])

    @precondition(lambda self: len(self.model) < 7)
    @rule(
        target=runs,
        has_input=st.sampled_from([True, True, False]),
        attempts=st.sampled_from([1, 2, 3, None]),
        clog_id=st.sampled_from(["c", "c", "d"]),
        names=st.lists(st.sampled_from(KEYS), unique=True, max_size=3),
        how=st.lists(st.sampled_from(["tick", "tick", "run"]), min_size=3, max_size=3),
        priority=st.sampled_from([3, 5]),
    )
    def create(self, has_input: bool, attempts: int | None, clog_id: str, names: Any, how: Any, priority: int) -> str:
        body = self.next_body() if has_input else UNSET
        run_id = f"run-{len(self.model)}"
        self.slots.keys[run_id] = keys_of(names, how)
        new = new_run(
            run_id=run_id,
            is_id_given=False,
            session_id="s",
            clog_id=clog_id,
            input=body,
            retry=RetryPolicy(max_attempts=attempts, backoff_ms=500),
            priority=priority,
            concurrency_keys=self.slots.keys[run_id],
            actor=None,
        )
        self.do(self.store.create_run(new, None))
        self.model[run_id] = ModelRun(run_id, clog_id, accepted=[body] if isinstance(body, int) else [])
        return run_id

    @rule(run_id=runs, delay=st.sampled_from([None, 300, 2_000]))
    def signal(self, run_id: str, delay: int | None) -> None:
        body, model = self.next_body(), self.model[run_id]
        deliver_at = None if delay is None else self.clock.now() + delay
        signal = new_signal(run_id, body, signal_id=f"s{body}", deliver_at=deliver_at, actor=None)
        try:
            self.do(self.store.deliver_signal(signal, None))
        except RunEnded:
            assert model.is_ended
        else:
            assert not model.is_ended
            model.accepted.append(body)

    @rule(
        target=holders,
        instance=st.sampled_from(["i-1", "i-2"]),
        limit=st.sampled_from([1, 3, 3]),
        clog_ids=CLAIMED_CLOGS,
    )
    def claim(self, instance: str, limit: int, clog_ids: tuple[str, ...]) -> Any:
        clogs = {clog_id: CLOGS[clog_id] for clog_id in clog_ids}
        claims = self.do(self.store.claim_due(ClaimAsk(clogs, instance, limit)))
        self._note_kernel_ends()
        return multiple(*[self._hold(claim, instance) for claim in claims])

    @rule(target=holders, run_id=runs)
    def explain_and_claim(self, run_id: str) -> Any:
        """An explanation is empty exactly when a claim takes the run or ends it; a preview equals the claim."""
        run, around = self.do(self.store.survey(run_id, CLOGS))
        found = holds(run, around, self.clock.now())
        ask = ClaimAsk(CLOGS, "i-3", 1, run_id=run_id)
        preview = self.do(self.store.preview_claim(ask))
        claims = self.do(self.store.claim_due(ask))
        assert claims == ([preview] if isinstance(preview, Claim) else [])
        self._note_kernel_ends()
        was_ended_now = not run.is_ended and self.model[run_id].is_ended
        assert (not found) == (bool(claims) or was_ended_now), f"{found} but {claims}"
        if isinstance(preview, NotClaimable):
            assert (preview.holds, bool(preview.end)) == (found, was_ended_now)
        return multiple(*[self._hold(claim, "i-3") for claim in claims])

    @rule(run_id=runs, is_paused=st.booleans())
    def pause_or_resume(self, run_id: str, is_paused: bool) -> None:
        model = self.model[run_id]
        try:
            self.do(self.store.set_run_paused(run_id, is_paused, None, None))
        except RunEnded:
            assert model.is_ended
        else:
            model.is_paused = is_paused

    @rule(clog_id=st.sampled_from(["c", "d"]), is_paused=st.booleans())
    def pause_or_resume_clog(self, clog_id: str, is_paused: bool) -> None:
        self.do(self.store.set_clog_paused(clog_id, is_paused, None, None))
        (self.paused_clogs.add if is_paused else self.paused_clogs.discard)(clog_id)

    @rule(key=st.sampled_from(KEYS), limit=st.integers(0, 3))
    def set_limit(self, key: str, limit: int) -> None:
        self.do(self.store.set_limit(key, limit, None, None))
        self.slots.limits[key] = limit

    @rule(n=st.integers(1, 2), cap=CAPS)
    def take(self, n: int, cap: int) -> None:
        taken = self.do(self.store.take(Take(f"cap-{cap}", n, CAP), None))
        assert taken.ok == (self.used[cap] + n <= CAP)
        self.used[cap] += n if taken else 0

    def _hold(self, claim: Claim, instance: str) -> Holder:
        model = self.model[claim.run.run_id]
        assert not model.is_ended
        assert not model.is_paused, "claimed a run that is paused"
        assert model.clog_id not in self.paused_clogs, "claimed a run whose clog is paused"
        self.slots.claim(model.run_id)
        assert not model.is_held or model.expires_at <= self.clock.now(), "claimed a run that is held"
        assert claim.lock.epoch == model.epoch + 1, "the epoch rises by one per claim"
        self._count_crash(model, claim)
        self._note_company(model, claim, instance)
        assert claim.tick == model.committed_ticks + 1, "a tick keeps its number until it commits"
        model.epoch, model.is_held, model.expires_at = claim.lock.epoch, True, claim.lock_expires_at
        stored = self._row(model)
        self.names += 1
        self.latest[model.run_id] = Holder(claim, stored.version, list(model.row), f"h{self.names}")
        return self.latest[model.run_id]

    def _count_crash(self, model: ModelRun, claim: Claim) -> None:
        """A crash alone is a failed attempt. Beside others it may be none, which the conformance tests have exactly."""
        spent = claim.run.attempt - model.attempt
        if model.is_held and not model.was_beside:
            assert spent == 1, "a crash alone is a failed attempt"
        else:
            assert spent in (0, int(model.is_held)), "an attempt was counted without a crash"
        model.attempt = claim.run.attempt

    def _note_company(self, model: ModelRun, claim: Claim, instance: str) -> None:
        """Note which runs have been held by one process at the same time."""
        model.instance, model.was_beside = instance, claim.crash_company is not None
        for other in self.model.values():
            if other is not model and other.is_held and other.instance == instance:
                other.was_beside = model.was_beside = True

    def _row(self, model: ModelRun) -> Any:
        key = row_of(model)
        return self.do(self.store.read_rows(RowsAsk(model.clog_id, "s", model.run_id, (key,)))).rows[key]

    @rule(holder=holders, outcome=OUTCOMES, n=TAKES, cap=CAPS)
    def commit(self, holder: Holder, outcome: Outcome, n: int, cap: int) -> None:
        model = self.model[holder.claim.run.run_id]
        n = 0 if holder.is_refused else n
        effects = Effects(takes=[Take(f"cap-{cap}", n, CAP)] if n else [])
        if not isinstance(outcome, Retry):
            effects.events.append(NewEvent("said", f'"{holder.name}"', "c"))
            text = str([*holder.row, holder.name]).replace("'", '"')
            effects.writes.append(RowWrite(row_of(model), holder.version, text=text))
        commit = TickCommit(
            lock=holder.claim.lock,
            clog_id=model.clog_id,
            tick=holder.claim.tick,
            call=holder.claim.call,
            outcome=outcome,
            effects=effects,
            instance_id="i",
            version="1",
            claimed_at=holder.claim.claimed_at,
        )
        is_current = model.is_held and model.epoch == holder.claim.lock.epoch
        was_committed = holder.claim.lock.epoch in self._committed_epochs(model.run_id)
        try:
            answer = self.do(self.store.commit_tick(commit))
        except LockLost:
            assert not is_current, "the fence refused its own holder"
            return
        if was_committed:
            return
        assert is_current, "a stale holder got past the fence"
        if isinstance(answer, Committed):
            self._committed(model, holder, outcome, answer)
            self.used[cap] += 0 if isinstance(outcome, Retry) else n
            assert self.used[cap] <= CAP, "more was taken than the limit"
        elif isinstance(answer, Contended) and answer.refused:
            assert self.used[cap] + n > CAP, "refused although enough was left"
            holder.is_refused = True
        else:
            assert holder.row != model.row, "a conflict without another writer"
            holder.row = list(model.row)
            holder.version = self._row(model).version

    @precondition(lambda self: any(model.is_held for model in self.model.values()))
    @rule(which=st.integers(0, 2), outcome=OUTCOMES, n=TAKES, cap=CAPS)
    def finish(self, which: int, outcome: Outcome, n: int, cap: int) -> None:
        """Commit for a holder that still has its lock: most holders that are drawn have lost it."""
        held = [run_id for run_id, model in self.model.items() if model.is_held]
        self.commit(self.latest[held[which % len(held)]], outcome, n, cap)

    def _committed(self, model: ModelRun, holder: Holder, outcome: Outcome, answer: Committed) -> None:
        self._let_go(model, is_ended=answer.status in ENDED)
        if isinstance(outcome, Retry):
            model.attempt += 1
            return
        model.attempt = model.give_backs = 0
        assert holder.row == model.row, "a write over a row that had moved on"
        model.row = [*model.row, holder.name]
        model.committed_ticks += 1
        got = [entry.body for entry in holder.claim.inputs if entry.body]
        assert not set(got) & set(model.consumed), "an input was delivered twice"
        model.consumed += got
        assert model.is_ended == isinstance(outcome, Done | Failed)

    def _let_go(self, model: ModelRun, *, is_ended: bool) -> None:
        model.is_held = False
        model.is_ended = is_ended
        self.slots.free(model.run_id, is_ended=is_ended)

    def _committed_epochs(self, run_id: str) -> list[int]:
        def read(db: Any) -> list[int]:
            rows = db.execute("SELECT epoch FROM ocean_ticks WHERE run_id = ? AND outcome IS NOT NULL", (run_id,))
            return [row["epoch"] for row in rows]

        epochs: list[int] = self.look(read)
        return epochs

    @rule(holder=holders)
    def give_back(self, holder: Holder) -> None:
        model = self.model[holder.claim.run.run_id]
        is_current = model.is_held and model.epoch == holder.claim.lock.epoch
        status = self.do(self.store.give_back(holder.claim.lock, holder.claim.tick))
        assert (status is not None) == is_current
        if is_current:
            self._let_go(model, is_ended=status in ENDED)
            model.give_backs += 1
            model.attempt += model.give_backs > 2

    @rule(holder=holders)
    def renew(self, holder: Holder) -> None:
        model = self.model[holder.claim.run.run_id]
        is_current = model.is_held and model.epoch == holder.claim.lock.epoch
        renewal = self.store.renew_locks([holder.claim.lock])
        assert (holder.claim.lock in renewal.lost) == (not is_current)
        assert not renewal.ending
        if is_current:
            model.expires_at = max(model.expires_at, self.clock.now() + LOCK_MS)

    @rule(holder=holders)
    def call(self, holder: Holder) -> None:
        """A direct call writes the run row while another process holds the run."""
        run_id = holder.claim.run.run_id
        model = self.model[run_id]
        self.names += 1
        text = str([*model.row, f"h{self.names}"]).replace("'", '"')
        effects = Effects(writes=[RowWrite(row_of(model), self._row(model).version, text=text)])
        commit = CallCommit(model.clog_id, "s", run_id, "note", effects, "null", None, None)
        try:
            answer = self.do(self.store.commit_call(commit))
        except RunEnded:
            assert model.is_ended
            return
        assert not isinstance(answer, CallConflict)
        if isinstance(answer, CallDone):
            model.row = [*model.row, f"h{self.names}"]

    @rule(run_id=runs)
    def cancel(self, run_id: str) -> None:
        model = self.model[run_id]
        try:
            self.do(self.store.cancel_run(run_id, None, None, None))
        except RunEnded:
            assert model.is_ended
        else:
            assert not model.is_ended
            self._let_go(model, is_ended=True)

    @rule(stop=st.sampled_from(["cancel", "pause"]))
    def stop_the_woken_run(self, stop: str) -> None:
        """End a tick and stop the run that gets its slot before it takes it, while others wait behind."""
        held = [run_id for run_id, model in self.model.items() if model.is_held]
        if held:
            self.commit(self.latest[held[0]], Ok(), 0, 0)
        sql = "SELECT run_id FROM runs WHERE parked_at IS NOT NULL AND parked_on IS NULL AND paused = 0"
        for row in self.look(lambda db: db.execute(sql).fetchall()):
            if stop == "cancel":
                self.cancel(row["run_id"])
            else:
                self.pause_or_resume(row["run_id"], True)

    @rule(ms=st.sampled_from([1, 400, 1_001, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.jump(ms)

    def _note_kernel_ends(self) -> None:
        """Update the model with the runs that a claim ended because their last call crashed."""
        for model in self.model.values():
            run = self.do(self.store.get_run(model.run_id))
            if run.is_ended and not model.is_ended:
                assert model.is_held
                assert model.expires_at <= self.clock.now()
                assert run.error["code"] == "crashed"
                self._let_go(model, is_ended=True)

    def _faults_stop(self) -> None:
        """Check that every run gets its turn once all clogs are present, nothing is paused and each key has a slot.

        Only held runs are changed here, so that this wakes no run that should have been woken before.
        """
        for clog_id in self.paused_clogs.copy():
            self.pause_or_resume_clog(clog_id, False)
        for key in KEYS:
            if not self.slots.limits[key]:
                self.set_limit(key, 1)
        for model in self.model.values():
            if model.is_paused and not model.is_ended:
                self.pause_or_resume(model.run_id, False)
        self.clock.jump(60_000)
        while claims := self.do(self.store.claim_due(ClaimAsk(CLOGS, "i-last", 2))):
            self._note_kernel_ends()
            for holder in (self._hold(claim, "i-last") for claim in claims):
                self.commit(holder, Done(1), 0, 0)
        self._note_kernel_ends()
        for model in self.model.values():
            run = self.do(self.store.get_run(model.run_id))
            blocked = not self.slots.is_free_for(model.run_id)
            assert run.is_ended or run.status is RunStatus.IDLE or (run.parked_on and blocked), f"forgotten: {run}"
        self._free_what_idle_runs_keep()

    def _free_what_idle_runs_keep(self) -> None:
        """End the idle runs, which hold slots for their life; the runs that wait for these slots then continue."""
        idle = [model for model in self.model.values() if not model.is_ended and not self._is_parked(model)]
        for model in idle:
            self.cancel(model.run_id)
        while claims := self.do(self.store.claim_due(ClaimAsk(CLOGS, "i-last", 2))):
            for holder in (self._hold(claim, "i-last") for claim in claims):
                self.commit(holder, Done(1), 0, 0)
        left = [model for model in self.model.values() if not model.is_ended]
        assert not left, f"forgotten: {left}"
        self.the_tables_agree_with_the_model()

    def _is_parked(self, model: ModelRun) -> bool:
        return self.do(self.store.get_run(model.run_id)).parked_on is not None

    @invariant()
    @precondition(lambda self: bool(self.model))
    def the_tables_agree_with_the_model(self) -> None:
        def read(db: Any) -> None:
            check_tables(db, self.clock.now())
            for model in self.model.values():
                self._check_run(db, model)
            self._check_admission(db)

        self.look(read)

    def _check_admission(self, db: Any) -> None:
        rows = {row["key"]: row for row in db.execute("SELECT * FROM ocean_keys")}
        for key in KEYS:
            stored = (rows[key]["slots"], rows[key]["in_use"]) if key in rows else (1, 0)
            assert stored == (self.slots.limits[key], self.slots.in_use(key)), f"{key}: {self.slots}"
        counters = {row["key"]: row["used"] for row in db.execute("SELECT key, used FROM ocean_counters")}
        taken = {f"cap-{cap}": used for cap, used in self.used.items() if used}
        assert counters == taken, "the counters are not the sums of the committed takes"

    def _check_run(self, db: Any, model: ModelRun) -> None:
        bodies = {
            row["number"]: int(row["body"])
            for row in db.execute("SELECT number, body FROM ocean_inbox WHERE run_id = ?", (model.run_id,))
        }
        kept = [body for body in bodies.values() if body]
        assert sorted(kept) == sorted(model.accepted), "an acknowledged input is gone, or one appeared"
        consumed = db.execute(
            "SELECT body FROM ocean_inbox WHERE run_id = ? AND consumed_tick IS NOT NULL AND body <> '0'",
            (model.run_id,),
        )
        assert sorted(int(row["body"]) for row in consumed) == sorted(model.consumed), "consumed is not what committed"
        row = db.execute("SELECT value FROM ocean_storage_run WHERE run_id = ?", (model.run_id,)).fetchone()
        expected = str(model.row).replace("'", '"') if model.row else None
        assert (row["value"] if row else None) == expected, "the row is not the sum of the committed writes"
        status = db.execute("SELECT status FROM runs WHERE run_id = ?", (model.run_id,)).fetchone()["status"]
        assert (status in ENDED) == model.is_ended
        assert (status == RunStatus.ACTIVE) == model.is_held


TestKernelModel = KernelMachine.TestCase
TestKernelModel.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
