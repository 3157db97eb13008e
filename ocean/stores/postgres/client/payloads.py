"""What the verbs send: the kernel's records as the JSON that the database's functions read. Values are JSON text in
it, as they are in the tables."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from ocean.kernel.store.claims import ClaimAsk, LeaseAsk, LeaseCompletion, TickCommit
from ocean.kernel.store.runs import Request
from ocean.state.attributes import sort_key
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import Effects, NewEvent, NewRun, NewSignal, RowKey, RowWrite, SetTimer
from ocean.state.outcomes import Continue, Done, Failed, Outcome, Retry, Wait, error_info, outcome_name
from ocean.state.records import ClogRecord
from ocean.state.values import encode
from ocean.stores.postgres.client.batches import Guesses

Words = dict[str, Any]


def request_words(request: Request | None) -> list[str] | None:
    return None if request is None else [request.key, request.hash]


def run_words(new: NewRun) -> Words:
    """Only what there is: most runs have little of all that they may have."""
    words: Words = {name: value for name, value in zip(NewRun._fields, new, strict=True) if value is not None}
    words["retry"] = _policy_words(new.retry)
    if _is_plain_run(new):
        del words["attributes"], words["concurrency_keys"], words["is_id_given"]
        words["is_plain"] = True
        return words
    words["attributes"] = [[name, sort_key(name, value), encode(value)] for name, value in new.attributes.items()]
    words["concurrency_keys"] = [[key.name, key.hold] for key in new.concurrency_keys]
    if new.rate is not None:
        words["rate"] = take_words(new.rate)
        words["rate_kept"] = encode([new.rate.key, new.rate.limit, new.rate.per_ms])
    if new.debounce is not None:
        words["debounce"] = {"ms": new.debounce.ms, "max_ms": new.debounce.max_ms}
    return words


def _is_plain_run(new: NewRun) -> bool:
    """Whether it has nothing but an input, and an id that nobody can know."""
    return not (
        new.is_id_given
        or new.attributes
        or new.concurrency_keys
        or new.parent_run_id is not None
        or new.dedupe_key is not None
        or new.queue is not None
        or new.rate is not None
        or new.debounce is not None
        or new.deadline_at is not None
        or new.retry_of is not None
    )


@lru_cache(maxsize=256)
def _policy_words(policy: RetryPolicy) -> Words:
    """Most runs have the same."""
    return policy.as_json()


def signal_words(signal: NewSignal) -> Words:
    return {name: getattr(signal, name) for name in NewSignal.__slots__}


def take_words(take: Take) -> Words:
    return {name: getattr(take, name) for name in Take.__slots__}


def event_words(events: Iterable[NewEvent]) -> list[list[str]]:
    return [[event.type, event.payload, event.clog_id] for event in events]


def address(key: RowKey) -> list[str | int]:
    return list(key)


def outcome_words(outcome: Outcome) -> list[Any]:
    match outcome:
        case Done(output):
            return ["done", encode(output, "Done.output")]
        case Failed(error):
            return ["failed", encode(error_info(error).as_json(), "Failed.error")]
        case Continue(input):
            return ["continue", encode(input, "Continue.input")]
        case Wait(until, for_ms):
            return ["wait", until, for_ms]
        case Retry(error, after_ms):
            return ["retry", encode(error_info(error).as_json(), "Retry.error"), after_ms]
        case _:
            return [outcome_name(outcome)]


class Rows:
    """The texts that a commit's functions are applied to: as they were read, or as the database has said since."""

    def __init__(self, writes: Sequence[RowWrite]) -> None:
        self._writes = writes
        self._texts = {write.key.text: write.seen for write in writes if write.apply is not None}

    @property
    def are_guessed(self) -> bool:
        return bool(self._texts)

    def hear(self, stale: Iterable[tuple[int, str | None]]) -> None:
        for place, text in stale:
            self._texts[self._writes[place].key.text] = text

    def words(self, guesses: Guesses) -> list[Words]:
        return [self._write_words(write, guesses) for write in self._writes]

    def _write_words(self, write: RowWrite, guesses: Guesses) -> Words:
        key = write.key.text
        words: Words = {"at": address(write.key), "key": key}
        if write.apply is None:
            guesses[key] = write.text
            return words | {"version": write.version, "text": write.text}
        before = guesses[key] if key in guesses else self._texts[key]
        guesses[key] = write.apply(before)
        return words | {"from": before, "text": guesses[key]}


def effects_words(effects: Effects, rows: Rows, guesses: Guesses) -> Words:
    """Only what there is: most ticks have few kinds of effects, or none."""
    if effects.is_empty and not effects.guards:
        return {}
    words: Words = {
        "writes": rows.words(guesses),
        "guards": [[address(key), version] for key, version in effects.guards],
        "events": event_words(effects.events),
        "signals": [signal_words(signal) for signal in effects.signals],
        "runs": [run_words(new) for new in effects.runs],
        "timers": [_timer_words(timer) for timer in effects.timers],
        "takes": [take_words(take) for take in effects.takes],
        "delete_runs": effects.delete_runs,
        "delete_ticks": effects.delete_ticks,
        "delete_session_by": effects.delete_session_by,
        "release_dedupe_key": effects.release_dedupe_key,
    }
    if effects.attributes:
        words["attributes"] = [_attribute_words(name, value) for name, value in effects.attributes.items()]
        words["attributes_said"] = encode(effects.attributes)
    return {name: value for name, value in words.items() if value}


def _timer_words(timer: Any) -> Words:
    return (
        {"name": timer.name, "at": timer.at, "body": timer.body}
        if isinstance(timer, SetTimer)
        else {"name": timer.name}
    )


def _attribute_words(name: str, value: Any) -> list[str | None]:
    return [name, None, None] if value is None else [name, sort_key(name, value), encode(value)]


def commit_words(commit: TickCommit, rows: Rows, guesses: Guesses) -> Words:
    effects = {} if isinstance(commit.outcome, Retry) else effects_words(commit.effects, rows, guesses)
    return {
        "run_id": commit.lock.run_id,
        "epoch": commit.lock.epoch,
        "clog_id": commit.clog_id,
        "tick": commit.tick,
        "call": commit.call,
        "outcome": outcome_words(commit.outcome),
        "effects": effects,
        "is_plain": not isinstance(commit.outcome, Retry) and _is_plain(effects, commit.lock.run_id),
        "contested": [key.text for key in commit.effects.contested_keys],
        "instance_id": commit.instance_id,
        "version": commit.version,
        "claimed_at": commit.claimed_at,
    }


def _is_plain(effects: Words, run_id: str) -> bool:
    """Whether the run's own row and its events are all that a tick changes of what there is besides its outcome."""
    writes: list[Words] = effects.get("writes", [])
    if len(writes) > 1 or not effects.keys() <= {"events", "writes"}:
        return False
    return all(each["at"][0] == "run" and each["at"][3] == run_id and each["text"] is not None for each in writes)


def claim_words(ask: ClaimAsk) -> Words:
    terms = {
        clog_id: {"lock_ms": clog.lock_ms, "version": clog.version, "takes_all_inputs": clog.takes_all_inputs}
        for clog_id, clog in ask.clogs.items()
    }
    return {
        "clogs": terms,
        "instance_id": ask.instance_id,
        "limit": ask.limit,
        "slot": ask.slot,
        "run_id": ask.run_id,
        "queues": ask.queues,
    }


def lease_words(ask: LeaseAsk) -> Words:
    return {
        "clog_id": ask.clog_id,
        "instance_id": ask.worker_id,
        "lease_ms": ask.lease_ms,
        "queues": ask.queues,
        "lease": ask.hashes,
        "slot": ask.slot,
    }


def completion_words(completion: LeaseCompletion) -> Words:
    words: Words = {name: getattr(completion, name) for name in LeaseCompletion.__slots__}
    return words | {"outcome": outcome_words(completion.outcome)}


def clog_words(clog: ClogRecord) -> Words:
    words: Words = {name: getattr(clog, name) for name in ClogRecord.__slots__}
    return words | {"allows": encode(list(clog.allows))}
