"""A Hypothesis state machine against a small model: claim, commit, crash and time are separate steps, so that holders
that were overtaken are explicit. Removing the fence, the version check or consume-at-commit is found.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from ocean.kernel.arguments import UNSET, new_run, new_signal
from ocean.kernel.backoff import RetryPolicy
from ocean.kernel.effects import Effects, NewEvent, RowKey, RowWrite
from ocean.kernel.eligibility import holds
from ocean.kernel.errors import LockLost, RunEnded
from ocean.kernel.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.kernel.records import Claim, ClogRecord, RunStatus
from ocean.kernel.store import (
    CallCommit,
    CallConflict,
    CallDone,
    ClaimableClog,
    ClaimAsk,
    Committed,
    NotClaimable,
    RowsAsk,
    TickCommit,
)
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.invariants import check_tables

LOCK_MS = 1_000
CLOGS = {"c": ClaimableClog("c", LOCK_MS, "1", False)}
ENDED = (RunStatus.DONE, RunStatus.FAILED)


@dataclass
class ModelRun:
    """What a run must be, kept by hand."""

    run_id: str
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


@dataclass
class Holder:
    """A call at work somewhere: what it was given and what it read."""

    claim: Claim
    version: int
    row: list[str]
    name: str


class KernelMachine(RuleBasedStateMachine):
    runs = Bundle("runs")
    holders = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.store = SqliteStore(":memory:", self.clock)
        self.do(self.store.open())
        self.do(self.store.register_clogs([ClogRecord("c", "1", False)]))
        self.model: dict[str, ModelRun] = {}
        self.body = 0
        self.names = 0

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()

    def next_body(self) -> int:
        self.body += 1
        return self.body

    @precondition(lambda self: len(self.model) < 3)
    @rule(target=runs, has_input=st.booleans(), attempts=st.sampled_from([1, 2, 3, None]))
    def create(self, has_input: bool, attempts: int | None) -> str:
        body = self.next_body() if has_input else UNSET
        run_id = f"run-{len(self.model)}"
        new = new_run(
            run_id=run_id,
            is_id_given=False,
            session_id="s",
            clog_id="c",
            input=body,
            retry=RetryPolicy(max_attempts=attempts, backoff_ms=500),
            priority=5,
            attributes=None,
            deadline_at=None,
            dedupe_key=None,
            dedupe_ms=None,
            actor=None,
        )
        self.do(self.store.create_run(new, None))
        self.model[run_id] = ModelRun(run_id, accepted=[body] if isinstance(body, int) else [])
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

    @rule(target=holders, instance=st.sampled_from(["i-1", "i-2"]), limit=st.integers(1, 3))
    def claim(self, instance: str, limit: int) -> Any:
        claims = self.do(self.store.claim_due(ClaimAsk(CLOGS, instance, limit)))
        self._note_kernel_ends()
        return multiple(*[self._hold(claim) for claim in claims])

    @rule(target=holders, run_id=runs)
    def explain_and_claim(self, run_id: str) -> Any:
        """An explanation is empty exactly when a claim takes the run, or makes the end it is owed; a preview is it."""
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
        return multiple(*[self._hold(claim) for claim in claims])

    @rule(run_id=runs, is_paused=st.booleans())
    def pause_or_resume(self, run_id: str, is_paused: bool) -> None:
        model = self.model[run_id]
        try:
            self.do(self.store.set_run_paused(run_id, is_paused, None, None))
        except RunEnded:
            assert model.is_ended
        else:
            model.is_paused = is_paused

    def _hold(self, claim: Claim) -> Holder:
        model = self.model[claim.run.run_id]
        assert not model.is_ended
        assert not model.is_paused, "claimed a run that is paused"
        assert not model.is_held or model.expires_at <= self.clock.now(), "claimed a run that is held"
        assert claim.lock.epoch == model.epoch + 1, "the epoch rises by one per claim"
        model.attempt += model.is_held
        assert claim.run.attempt == model.attempt, "a crash is a failed attempt"
        assert claim.tick == model.committed_ticks + 1, "a tick keeps its number until it commits"
        model.epoch, model.is_held, model.expires_at = claim.lock.epoch, True, claim.lock_expires_at
        key = RowKey("run", "c", run_id=model.run_id)
        stored = self.do(self.store.read_rows(RowsAsk("c", "s", model.run_id, (key,)))).rows[key]
        self.names += 1
        return Holder(claim, stored.version, list(model.row), f"h{self.names}")

    @rule(
        holder=holders,
        outcome=st.sampled_from([Ok(), Wait(for_ms=700), Continue(0), Done(1), Failed("no"), Retry("again")]),
    )
    def commit(self, holder: Holder, outcome: Outcome) -> None:
        model = self.model[holder.claim.run.run_id]
        key = RowKey("run", "c", run_id=model.run_id)
        effects = Effects()
        if not isinstance(outcome, Retry):
            effects.events.append(NewEvent("said", f'"{holder.name}"', "c"))
            text = str([*holder.row, holder.name]).replace("'", '"')
            effects.writes.append(RowWrite(key, holder.version, text=text))
        commit = TickCommit(
            lock=holder.claim.lock,
            clog_id="c",
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
        else:
            assert holder.row != model.row, "a conflict without a rival"
            holder.row = list(model.row)
            holder.version = self.do(self.store.read_rows(RowsAsk("c", "s", model.run_id, (key,)))).rows[key].version

    def _committed(self, model: ModelRun, holder: Holder, outcome: Outcome, answer: Committed) -> None:
        model.is_held = False
        model.is_ended = answer.status in ENDED
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

    def _committed_epochs(self, run_id: str) -> list[int]:
        def read(db: Any) -> list[int]:
            rows = db.execute("SELECT epoch FROM ocean_ticks WHERE run_id = ? AND outcome IS NOT NULL", (run_id,))
            return [row["epoch"] for row in rows]

        epochs: list[int] = self.do(self.store.database.read(read))
        return epochs

    @rule(holder=holders)
    def give_back(self, holder: Holder) -> None:
        model = self.model[holder.claim.run.run_id]
        is_current = model.is_held and model.epoch == holder.claim.lock.epoch
        status = self.do(self.store.give_back(holder.claim.lock, holder.claim.tick))
        assert (status is not None) == is_current
        if is_current:
            model.is_held = False
            model.is_ended = status in ENDED
            model.give_backs += 1
            model.attempt += model.give_backs > 2

    @rule(holder=holders)
    def renew(self, holder: Holder) -> None:
        model = self.model[holder.claim.run.run_id]
        is_current = model.is_held and model.epoch == holder.claim.lock.epoch
        lost = self.store.renew_locks([holder.claim.lock])
        assert (holder.claim.lock in lost) == (not is_current)
        if is_current:
            model.expires_at = max(model.expires_at, self.clock.now() + LOCK_MS)

    @rule(holder=holders)
    def call(self, holder: Holder) -> None:
        """A direct call writes the run row beside whoever holds the run."""
        run_id = holder.claim.run.run_id
        model = self.model[run_id]
        key = RowKey("run", "c", run_id=run_id)
        stored = self.do(self.store.read_rows(RowsAsk("c", "s", run_id, (key,)))).rows[key]
        self.names += 1
        text = str([*model.row, f"h{self.names}"]).replace("'", '"')
        effects = Effects(writes=[RowWrite(key, stored.version, text=text)])
        commit = CallCommit("c", "s", run_id, "note", effects, "null", None, None)
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
            model.is_ended, model.is_held = True, False

    @rule(ms=st.sampled_from([1, 400, 1_001, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.jump(ms)

    def _note_kernel_ends(self) -> None:
        """A claim ends runs whose last call crashed."""
        for model in self.model.values():
            run = self.do(self.store.get_run(model.run_id))
            if run.is_ended and not model.is_ended:
                assert model.is_held
                assert model.expires_at <= self.clock.now()
                assert run.error["code"] == "crashed"
                model.is_ended, model.is_held = True, False

    @invariant()
    @precondition(lambda self: bool(self.model))
    def the_tables_agree_with_the_model(self) -> None:
        def read(db: Any) -> None:
            check_tables(db, self.clock.now())
            for model in self.model.values():
                self._check_run(db, model)

        self.do(self.store.database.read(read))

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
        said = str(model.row).replace("'", '"') if model.row else None
        assert (row["value"] if row else None) == said, "the row is not the sum of the committed writes"
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
