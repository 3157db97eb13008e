"""The arguments of the verbs: the kernel's records as the JSON that the database's functions read. Values of clogs are
JSON text in it, as in the tables."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, assert_never

from ocean.kernel.store.claims import ClaimAsk, LeaseAsk, LeaseCompletion, TickCommit
from ocean.kernel.store.runs import Request
from ocean.state.attributes import sort_key
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import Effects, NewEvent, NewRun, NewSignal, RowKey, RowWrite, SetTimer
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait, error_info, outcome_name
from ocean.state.records import ClogRecord
from ocean.state.values import encode
from ocean.stores.postgres.client.batches import Predictions

Payload = dict[str, Any]


def request_payload(request: Request | None) -> list[str] | None:
    return None if request is None else [request.key, request.hash]


def run_payload(new: NewRun) -> Payload:
    """Only fields that are set: most runs have few of them."""
    payload: Payload = {name: value for name, value in zip(NewRun._fields, new, strict=True) if value is not None}
    payload["retry"] = _policy_payload(new.retry)
    if _is_plain_run(new):
        del payload["attributes"], payload["concurrency_keys"], payload["is_id_given"]
        payload["is_plain"] = True
        return payload
    payload["attributes"] = [[name, sort_key(name, value), encode(value)] for name, value in new.attributes.items()]
    payload["concurrency_keys"] = [[key.name, key.hold] for key in new.concurrency_keys]
    if new.rate is not None:
        payload["rate"] = take_payload(new.rate)
        payload["rate_kept"] = encode([new.rate.key, new.rate.limit, new.rate.per_ms])
    if new.debounce is not None:
        payload["debounce"] = {"ms": new.debounce.ms, "max_ms": new.debounce.max_ms}
    return payload


def _is_plain_run(new: NewRun) -> bool:
    """Return whether a creation is plain (see `plain.sql`): an input at most, and an id that no other process knows."""
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
def _policy_payload(policy: RetryPolicy) -> Payload:
    """Cached: most runs have the same policy."""
    return policy.as_json()


def signal_payload(signal: NewSignal) -> Payload:
    return {name: getattr(signal, name) for name in NewSignal.__slots__}


def take_payload(take: Take) -> Payload:
    return {name: getattr(take, name) for name in Take.__slots__}


def event_payload(events: Iterable[NewEvent]) -> list[list[str | None]]:
    return [list(event if event.step is not None else event[:3]) for event in events]


def address(key: RowKey) -> list[str | int]:
    return list(key)


def outcome_payload(outcome: Outcome) -> list[Any]:
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
        case Ok():
            return [outcome_name(outcome)]
        case _:
            assert_never(outcome)


class RowTexts:
    """The row texts that a commit's functions are applied to: as read, or as the database has returned them since."""

    def __init__(self, writes: Sequence[RowWrite]) -> None:
        self._writes = writes
        self._texts = {write.key.text: write.seen for write in writes if write.apply is not None}

    @property
    def are_predicted(self) -> bool:
        return bool(self._texts)

    def update(self, stale: Iterable[tuple[int, str | None]]) -> None:
        for place, text in stale:
            self._texts[self._writes[place].key.text] = text

    def payload(self, predictions: Predictions) -> list[Payload]:
        return [self._write_payload(write, predictions) for write in self._writes]

    def _write_payload(self, write: RowWrite, predictions: Predictions) -> Payload:
        key = write.key.text
        payload: Payload = {"at": address(write.key), "key": key}
        if write.apply is None:
            predictions[key] = write.text
            return payload | {"version": write.version, "text": write.text}
        before = predictions[key] if key in predictions else self._texts[key]
        predictions[key] = write.apply(before)
        return payload | {"from": before, "text": predictions[key]}


def effects_payload(effects: Effects, rows: RowTexts, predictions: Predictions) -> Payload:
    """Only effects that there are: most ticks have few kinds of them, or none."""
    if effects.is_empty and not effects.guards:
        return {}
    payload: Payload = {
        "writes": rows.payload(predictions),
        "guards": [[address(key), version] for key, version in effects.guards],
        "events": event_payload(effects.events),
        "signals": [signal_payload(signal) for signal in effects.signals],
        "runs": [run_payload(new) for new in effects.runs],
        "timers": [_timer_payload(timer) for timer in effects.timers],
        "takes": [take_payload(take) for take in effects.takes],
        "delete_runs": effects.delete_runs,
        "delete_ticks": effects.delete_ticks,
        "delete_session_by": effects.delete_session_by,
        "release_dedupe_key": effects.release_dedupe_key,
    }
    if effects.attributes:
        payload["attributes"] = [_attribute_payload(name, value) for name, value in effects.attributes.items()]
        payload["attributes_said"] = encode(effects.attributes)
    return {name: value for name, value in payload.items() if value}


def _timer_payload(timer: Any) -> Payload:
    return (
        {"name": timer.name, "at": timer.at, "body": timer.body}
        if isinstance(timer, SetTimer)
        else {"name": timer.name}
    )


def _attribute_payload(name: str, value: Any) -> list[str | None]:
    return [name, None, None] if value is None else [name, sort_key(name, value), encode(value)]


def commit_payload(commit: TickCommit, rows: RowTexts, predictions: Predictions) -> Payload:
    effects = {} if isinstance(commit.outcome, Retry) else effects_payload(commit.effects, rows, predictions)
    return {
        "run_id": commit.lock.run_id,
        "epoch": commit.lock.epoch,
        "clog_id": commit.clog_id,
        "tick": commit.tick,
        "call": commit.call,
        "outcome": outcome_payload(commit.outcome),
        "effects": effects,
        "is_plain": not isinstance(commit.outcome, Retry) and _is_plain_commit(effects, commit.lock.run_id),
        "contested": [key.text for key in commit.effects.contested_keys],
        "instance_id": commit.instance_id,
        "version": commit.version,
        "claimed_at": commit.claimed_at,
    }


def _is_plain_commit(effects: Payload, run_id: str) -> bool:
    """Return whether a commit is plain (see `plain.sql`): its effects are events and at most a write of its own row."""
    writes: list[Payload] = effects.get("writes", [])
    if len(writes) > 1 or not effects.keys() <= {"events", "writes"}:
        return False
    return all(each["at"][0] == "run" and each["at"][3] == run_id and each["text"] is not None for each in writes)


def claim_payload(ask: ClaimAsk) -> Payload:
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


def lease_payload(ask: LeaseAsk) -> Payload:
    return {
        "clog_id": ask.clog_id,
        "instance_id": ask.worker_id,
        "lease_ms": ask.lease_ms,
        "queues": ask.queues,
        "lease": ask.hashes,
        "slot": ask.slot,
    }


def completion_payload(completion: LeaseCompletion) -> Payload:
    payload: Payload = {name: getattr(completion, name) for name in LeaseCompletion.__slots__}
    return payload | {"outcome": outcome_payload(completion.outcome)}


def clog_payload(clog: ClogRecord) -> Payload:
    payload: Payload = {name: getattr(clog, name) for name in ClogRecord.__slots__}
    return payload | {"allows": encode(list(clog.allows)), "end_retry": encode(clog.end_retry.as_json())}
