"""Commits of ticks and of direct calls."""

from abc import ABC
from collections.abc import Mapping
from functools import partial
from typing import Any

from ocean.kernel.store.claims import Committed, Contended, TickAnswer, TickCommit
from ocean.kernel.store.runs import Behind, CallCommit, CallConflict, CallDone
from ocean.state.counters import Take, Taken
from ocean.state.outcomes import ErrorInfo, Retry
from ocean.state.records import RunStatus
from ocean.stores.postgres.client.batches import Predictions, WriteBatches
from ocean.stores.postgres.client.payloads import Payload, RowTexts, commit_payload, effects_payload, request_payload


class Commits(ABC):
    """The store's verbs that commit ticks and direct calls."""

    batches: WriteBatches

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        rows = RowTexts(commit.effects.writes)
        while True:
            payload = partial(commit_payload, commit, rows)
            match await self.batches.write("commit_tick", payload, is_predicting=rows.are_predicted):
                case {"stale": stale}:
                    # Other writers have changed rows that functions were applied to: apply them again, without a call.
                    rows.update(stale)
                case {"behind": _}:
                    return Behind()
                case {"contended": [call, must_take_turn, refused]}:
                    return Contended(call, must_take_turn, _refused(refused))
                case {"committed": status, "beaten": times} as answer:
                    return Committed(RunStatus(status), _conflict_retry(times), answer.get("next_ms"))
                case {"committed": status} as answer:
                    return Committed(RunStatus(status) if status else None, next_ms=answer.get("next_ms"))
                case answer:
                    raise AssertionError(f"ocean_commit_tick returned {answer!r}")

    async def commit_call(self, commit: CallCommit) -> CallDone | CallConflict | Behind:
        rows = RowTexts(commit.effects.writes)
        while True:
            payload = partial(_call_payload, commit, rows)
            match await self.batches.write("commit_call", payload, is_predicting=rows.are_predicted):
                case {"stale": stale}:
                    rows.update(stale)
                case {"behind": _}:
                    return Behind()
                case {"conflict": refused}:
                    return CallConflict(_refused(refused))
                case {"repeated": answer}:
                    return CallDone(answer, is_repeated=True)
                case {"done": _}:
                    return CallDone(commit.answer)
                case answer:
                    raise AssertionError(f"ocean_commit_call returned {answer!r}")


def taken_from(take: Take, answer: list[Any]) -> Taken:
    """Build the result of a take from `answer`: whether it was granted, what is used after it, and when to retry."""
    ok, used, retry_after_ms = answer
    left = None if take.limit is None else max(take.limit - used, 0)
    return Taken(ok, used, take.limit, left, retry_after_ms)


def _refused(refused: Mapping[str, Any]) -> dict[str, Taken]:
    return {key: taken_from(Take(**take), answer) for key, (take, *answer) in refused.items()}


def _conflict_retry(times: int) -> Retry:
    return Retry(ErrorInfo("conflict", f"its rows had moved on {times} times"))


def _call_payload(commit: CallCommit, rows: RowTexts, predictions: Predictions) -> Payload:
    return {
        "clog_id": commit.clog_id,
        "session_id": commit.session_id,
        "run_id": commit.run_id,
        "method": commit.method,
        "effects": effects_payload(commit.effects, rows, predictions),
        "is_empty": commit.effects.is_empty,
        "answer": commit.answer,
        "actor": commit.actor,
        "request": request_payload(commit.request),
    }
