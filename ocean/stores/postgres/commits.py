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
from ocean.stores.postgres.client.batches import Guesses, Writing
from ocean.stores.postgres.client.payloads import Rows, Words, commit_words, effects_words, request_words


class Commits(ABC):
    writing: Writing

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        rows = Rows(commit.effects.writes)
        while True:
            words = partial(commit_words, commit, rows)
            match await self.writing.write("commit_tick", words, is_guessing=rows.are_guessed):
                case {"stale": stale}:
                    # Others have changed what functions were applied to: they are applied again, no handler is called.
                    rows.hear(stale)
                case {"behind": _}:
                    return Behind()
                case {"contended": [call, must_take_turn, refused]}:
                    return Contended(call, must_take_turn, _refused(refused))
                case {"committed": status, "beaten": times}:
                    return Committed(RunStatus(status), _beaten(times))
                case {"committed": status}:
                    return Committed(RunStatus(status) if status else None)
                case answer:
                    raise AssertionError(f"ocean_commit_tick answered {answer!r}")

    async def commit_call(self, commit: CallCommit) -> CallDone | CallConflict | Behind:
        rows = Rows(commit.effects.writes)
        while True:
            words = partial(_call_words, commit, rows)
            match await self.writing.write("commit_call", words, is_guessing=rows.are_guessed):
                case {"stale": stale}:
                    rows.hear(stale)
                case {"behind": _}:
                    return Behind()
                case {"conflict": refused}:
                    return CallConflict(_refused(refused))
                case {"repeated": answer}:
                    return CallDone(answer, is_repeated=True)
                case {"done": _}:
                    return CallDone(commit.answer)
                case answer:
                    raise AssertionError(f"ocean_commit_call answered {answer!r}")


def taken_from(take: Take, answer: list[Any]) -> Taken:
    """From whether it was granted, what is used after it, and when to try again."""
    ok, used, retry_after_ms = answer
    left = None if take.limit is None else max(take.limit - used, 0)
    return Taken(ok, used, take.limit, left, retry_after_ms)


def _refused(refused: Mapping[str, Any]) -> dict[str, Taken]:
    return {key: taken_from(Take(**take), answer) for key, (take, *answer) in refused.items()}


def _beaten(times: int) -> Retry:
    return Retry(ErrorInfo("conflict", f"its rows had moved on {times} times"))


def _call_words(commit: CallCommit, rows: Rows, guesses: Guesses) -> Words:
    return {
        "clog_id": commit.clog_id,
        "session_id": commit.session_id,
        "run_id": commit.run_id,
        "method": commit.method,
        "effects": effects_words(commit.effects, rows, guesses),
        "is_empty": commit.effects.is_empty,
        "answer": commit.answer,
        "actor": commit.actor,
        "request": request_words(commit.request),
    }
