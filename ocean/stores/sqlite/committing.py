"""The commit of a tick: fence, row versions, effects, consumed inputs and transition, all or nothing."""

from dataclasses import replace
from typing import Any, assert_never

from ocean.kernel.store.claims import Committed, Contended, TickAnswer, TickCommit
from ocean.kernel.store.runs import Behind, CallCommit, CallConflict, CallDone
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Taken
from ocean.state.effects import NewEvent
from ocean.state.ends import refuse_if_ended, stopped
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Retry, Wait, error_info, outcome_name
from ocean.state.records import InputKind, Lock, Run, RunStatus
from ocean.state.transitions import EndNow, attempts, given_back, refuse_unless_held, retried, settled, with_attempts
from ocean.state.values import decode, encode
from ocean.stores.shared import refusals
from ocean.stores.shared.rows import Row
from ocean.stores.sqlite import counters
from ocean.stores.sqlite.effects import Origin, apply_deletions, apply_effects, is_outdated, log
from ocean.stores.sqlite.ending import end_run, finish_last_tick, request_end
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.inbox import CONTINUATION_AT, append_input, consume_inputs, next_input_at
from ocean.stores.sqlite.storage import is_behind, take_turn

CONFLICTS_BEFORE_TURN = 2
MOST_CONFLICTS = 3
"""A tick whose rows have changed again although it had its turn (it wrote other rows than before) fails an attempt."""


def commit_tick(u: Unit, c: TickCommit) -> TickAnswer:
    cached = u.open_tick(c.lock.run_id)
    is_cached = cached is not None and cached.tick["tick"] == c.tick
    tick: Row | None = cached.tick if cached and is_cached else u.one("get_tick", run_id=c.lock.run_id, tick=c.tick)
    if tick is not None and tick["outcome"] is not None and tick["epoch"] == c.lock.epoch:
        left = u.find(c.lock.run_id)
        return Committed(left.status if left else None)
    run = refuse_unless_held(u.find(c.lock.run_id), c.lock.epoch, c.lock.run_id)
    if tick is None:
        raise refusals.tick_gone(c.lock.run_id, c.tick)
    if isinstance(c.outcome, Retry):
        return _commit_retry(u, run, c, c.outcome, tick)
    has_effects = not c.effects.is_empty or bool(c.effects.guards)
    origin = Origin(c.clog_id, run.session_id, run.run_id, c.tick, c.call, None, tick["caused_by"])
    if has_effects:
        obstacle = _obstacle(u, run, c, tick, origin)
        if obstacle is not None:
            return obstacle
        apply_effects(u, c.effects, origin)
    numbers = consume_inputs(u, run)
    if isinstance(c.outcome, Continue):
        body = encode(c.outcome.input, "Continue.input")
        append_input(u, run.run_id, InputKind.CONTINUE, body, available_at=CONTINUATION_AT)
    _settle(u, c, tick, numbers)
    if has_effects:
        apply_deletions(u, c.effects, origin)
    left = u.find(run.run_id)
    return Committed(left.status if left else None)


def _obstacle(u: Unit, run: Run, c: TickCommit, tick: Row, origin: Origin) -> TickAnswer | None:
    """Return the result instead of a commit, if other writers have made it impossible to apply the effects."""
    if is_behind(u, c.effects.writes, run.run_id, run.lock_epoch):
        return Behind()
    if is_outdated(u, c.effects, origin):
        if tick["conflicts"] >= MOST_CONFLICTS:
            retry = Retry(ErrorInfo("conflict", f"its rows had moved on {tick['conflicts'] + 1} times"))
            return replace(_commit_retry(u, run, c, retry, tick), instead=retry)
        return _restart(u, run, c, tick)
    refused = counters.refused(u, c.effects.takes) if c.effects.takes else {}
    return _call_again(u, run, c, tick, refused) if refused else None


def _settle(u: Unit, c: TickCommit, tick: Row, numbers: list[int]) -> None:
    """Write the outcome into the run, and append its events."""
    assert not isinstance(c.outcome, Retry)
    run = u.run(c.lock.run_id)
    following = u.save(settled(run, c.outcome, next_input_at(u, run.run_id), u.now))
    u.later("commit_tick", run.run_id, run_id=run.run_id, tick=c.tick, outcome=outcome_name(c.outcome), now=u.now)
    if tick["conflicts"]:
        u.do("release_turns", run_id=run.run_id)
    payload = {
        "outcome": outcome_name(c.outcome),
        "status": following.status,
        "reason": tick["reason"],
        "attempt": attempts(run),
        "inputs": numbers,
        **_provenance(c),
    }
    where: dict[str, Any] = {"tick": c.tick, "call": c.call, "caused_by": tick["caused_by"]}
    u.event(run.run_id, "tick.committed", payload, **where)
    if run.ending:
        finish_last_tick(u, run.run_id, **where)
        return
    match c.outcome:
        case Done(output):
            end_run(u, run.run_id, RunStatus.DONE, output=encode(output, "Done.output"), **where)
        case Failed(error):
            text = encode(error_info(error).as_json(), "Failed.error")
            end_run(u, run.run_id, RunStatus.FAILED, error=text, **where)
        case Ok() | Continue() | Wait():
            if run.attempt:
                u.do("save_error", run_id=run.run_id, error=None)
            if following.status is RunStatus.WAITING:
                u.event(run.run_id, "run.waiting", {"wake_at": following.wake_at}, **where)
        case _:
            assert_never(c.outcome)


def _commit_retry(u: Unit, run: Run, c: TickCommit, outcome: Retry, tick: Row) -> Committed:
    error = error_info(outcome.error)
    following = retried(run, outcome, _policy(u, run), tick["first_claimed_at"], u.now)
    u.do("release_turns", run_id=run.run_id)
    where: dict[str, Any] = {"tick": c.tick, "call": c.call, "caused_by": tick["caused_by"]}
    if isinstance(following, EndNow):
        payload = {"error": error.as_json(), "attempt": following.attempt, **_provenance(c)}
        u.event(run.run_id, "tick.failed", payload, **where)
        return _exhaust(u, run, following, error, **where)
    u.save(following)
    if run.ending is None:
        # The error of a run that is ending is the reason for its end.
        u.do("save_error", run_id=run.run_id, error=encode(error.as_json(), "Retry.error"))
    payload = {
        "error": error.as_json(),
        "attempt": attempts(following),
        "wake_at": following.wake_at,
        "status": following.status,
        **_provenance(c),
    }
    u.event(run.run_id, "run.retrying", payload, **where)
    return Committed(following.status, next_ms=(following.wake_at or u.now) - u.now)


def _policy(u: Unit, run: Run) -> RetryPolicy:
    """The retry policy of the run, or of its clog's last ticks if it is ending."""
    if run.ending is not None:
        clog = u.clog(run.clog_id)
        assert clog is not None
        return clog.end_retry
    details = u.one("get_details", run_id=run.run_id)
    assert details is not None
    return RetryPolicy(**decode(details["retry"]))


def _provenance(c: TickCommit) -> dict[str, Any]:
    """The instance that made this call, when, with which epoch and which version of the clog."""
    return {
        "claimed_at": c.claimed_at,
        "epoch": c.lock.epoch,
        "instance": c.instance_id,
        "version": c.version,
    }


def _exhaust(u: Unit, run: Run, end: EndNow, error: ErrorInfo, **where: Any) -> Committed:
    u.save(with_attempts(u.run(run.run_id), end.attempt))
    return Committed(request_end(u, run.run_id, end.reason, error, **where).status)


def _restart(u: Unit, run: Run, c: TickCommit, tick: Row) -> Contended:
    """Call the tick again after a conflict. The lock stays, no attempt is spent; from the second on it takes a turn."""
    again = u.one("restart_tick", run_id=run.run_id, tick=c.tick)
    assert again is not None
    payload = {"because": "conflict", "attempt": attempts(run), "conflicts": again["conflicts"]}
    u.event(run.run_id, "tick.restarted", payload, tick=c.tick, call=again["calls"], caused_by=tick["caused_by"])
    must_take_turn = again["conflicts"] >= CONFLICTS_BEFORE_TURN
    has_turn = must_take_turn and take_turn(u, run.run_id, run.lock_epoch, c.effects.contested_keys)
    return Contended(again["calls"], must_take_turn and not has_turn)


def _call_again(u: Unit, run: Run, c: TickCommit, tick: Row, refused: dict[str, Taken]) -> Contended:
    """Call the tick again because counters refused it.

    No conflict is counted: the next call knows the refusals, so this happens once for each key.
    """
    again = u.one("call_tick_again", run_id=run.run_id, tick=c.tick)
    assert again is not None
    payload = {"because": "counter", "attempt": attempts(run), "keys": list(refused)}
    u.event(run.run_id, "tick.restarted", payload, tick=c.tick, call=again["calls"], caused_by=tick["caused_by"])
    return Contended(again["calls"], False, refused)


def give_back(u: Unit, lock: Lock, tick: int, *, counts: bool = True) -> RunStatus:
    run = refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id, even_if_ending=True)
    row = u.one("count_give_back", run_id=run.run_id, tick=tick, counted=int(counts))
    give_backs = row["give_backs"] if row else 1
    where: dict[str, Any] = {"tick": tick, "call": row["calls"], "caused_by": row["caused_by"]} if row else {}
    u.do("release_turns", run_id=run.run_id)
    following = given_back(run, give_backs if counts else 0, u.now) if run.stop_by is None else stopped(run, u.now)
    if isinstance(following, EndNow):
        error = ErrorInfo("given_back", f"its callers stopped tick {tick} {give_backs} times before it ended")
        _exhaust(u, run, following, error, **where)
    else:
        u.save(following)
        payload = {
            "give_backs": give_backs,
            "attempt": attempts(following),
            "status": following.status,
            "epoch": lock.epoch,
            "instance": run.locked_by,
        }
        u.event(run.run_id, "tick.given_back", payload, **where)
    return u.run(run.run_id).status


def commit_call(u: Unit, c: CallCommit) -> CallDone | CallConflict | Behind:
    """Commit a direct call: it has no lock, only row versions. On an ended run it may change nothing."""
    effects = c.effects
    origin = Origin(c.clog_id, c.session_id, c.run_id, actor=c.actor)
    if effects.is_empty:
        return CallConflict() if is_outdated(u, effects, origin) else CallDone(c.answer)
    if is_behind(u, effects.writes, None, 0):
        return Behind()
    run = u.run(c.run_id) if c.run_id is not None else None
    if run is not None:
        refuse_if_ended(run)
    if is_outdated(u, effects, origin):
        return CallConflict()
    refused = counters.refused(u, effects.takes)
    if refused:
        return CallConflict(refused)
    if c.session_id is not None:
        u.ensure_session(c.session_id)
    apply_effects(u, effects, origin)
    status = u.run(c.run_id).status if c.run_id is not None else None
    log(u, NewEvent("call.committed", encode({"method": c.method, "status": status}), c.clog_id), origin)
    apply_deletions(u, effects, origin)
    return CallDone(c.answer)
