"""Agent events and reactions. Each event is processed once and never blocks another.

An event queues a reaction for each pattern that matches; a reaction creates its proposal in the commit that ends it.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from clogs.ops.errors import BAD_TEMPLATE, NO_SUCH_REFERENCE, violates
from clogs.ops.heartbeat import count
from clogs.ops.patterns import Pattern, RenderedTooLarge, matches, render, unfilled
from clogs.ops.policies import patterns_of
from clogs.ops.records import (
    EVENTS,
    MISSIONS,
    POLICY,
    PROPOSALS,
    REACTIONS,
    Row,
    new_event,
    record_clog,
    state_of,
)
from clogs.ops.validation import checked_proposal
from ocean import Clog, Done, Outcome, Refuse, Tick

Chance = Callable[[str], float]
"""Return a number from 0 up to 1 for a text, which is the same in every call of a tick."""


def even_chance(text: str) -> float:
    """Return the same number for the same event and pattern, so that a repeated tick does not draw again."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2**56


def event_clog(chance: Chance) -> Clog:
    events = record_clog(EVENTS)

    @events.on_advance
    async def process(tick: Tick) -> Outcome:
        row, _ = await state_of(tick)
        queued = 0
        if not row["is_own"]:
            for pattern in patterns_of(await tick.call(POLICY, "values")):
                if matches(pattern, row["type"], row["data"]) and await _is_due(tick, pattern, chance):
                    await _react(tick, pattern, row)
                    queued += 1
            await count(tick, "events")
            await count(tick, "queued", queued)
        await tick.write(run={**row, "processed_at": tick.now})
        await tick.set_attributes(processed=True)
        return Done({"queued": queued})

    events.method(insert)
    return events


async def _is_due(tick: Tick, pattern: Pattern, chance: Chance) -> bool:
    """Return whether chance and cooldown allow a reaction. Chance is first: a lost draw must not start a cooldown."""
    if pattern.probability < 1 and chance(f"{tick.run_id}:{pattern.id}") >= pattern.probability:
        return False
    cooldown_ms = int(pattern.cooldown_minutes * 60_000)
    if not cooldown_ms:
        return True
    return bool(await tick.take(f"ops:{tick.session_id}:cooldown:{pattern.id}", limit=1, per_ms=cooldown_ms))


async def _react(tick: Tick, pattern: Pattern, event: Row) -> None:
    seen = {"id": tick.run_id, **{name: event[name] for name in ("type", "data", "mission_id", "dedupe_key")}}
    payload: dict[str, Any] = {
        "pattern_id": pattern.id,
        "event_type": event["type"],
        "proposal_template": pattern.template,
        "proposal_source": pattern.proposal_source,
    }
    try:
        payload["proposal_template"] = render(pattern.template, seen)
        if pattern.dedupe_key is not None:
            payload["dedupe_key"] = render(pattern.dedupe_key, seen)
    except RenderedTooLarge as error:
        payload["error"] = str(error)
    row = {"event_id": tick.run_id, "status": "queued", "payload": payload, "created_at": tick.now}
    attributes = {"state": "queued", "event_id": tick.run_id, "pattern_id": pattern.id}
    await tick.create_run(clog_id=REACTIONS, input={**row, "updated_at": tick.now}, attributes=attributes)


async def insert(tick: Tick, given: list[Row]) -> list[str]:
    """Insert events, all of them or none. A repeat of an event with its key returns the first one.

    A different event with the same key raises `DedupeKeyReused`, which, unlike `Refuse`, commits nothing.
    """
    missions = sorted({event["mission_id"] for event in given if event["mission_id"] is not None})
    known = await tick.call(MISSIONS, "show", missions) if missions else {}
    for mission_id in missions:
        if mission_id not in known:
            raise Refuse(
                f"Key (mission_id)=({mission_id}) is not present in table ops_missions",
                code=NO_SUCH_REFERENCE,
                http_status=409,
            )
    ids = []
    for event in given:
        made = new_event(event["type"], event["data"], event["mission_id"], event["dedupe_key"])
        ids.append(await tick.create_run(clog_id=EVENTS, dedupe_key=event["dedupe_key"], **made))
    return ids


reactions = record_clog(REACTIONS)


@reactions.on_advance
async def advance(tick: Tick) -> Outcome:
    row, _ = await state_of(tick)
    payload = dict(row["payload"])
    try:
        if "error" in payload:
            raise violates(payload["error"])
        given = checked_proposal(payload.get("dedupe_key"), payload["proposal_source"], payload["proposal_template"])
        made = await tick.call(PROPOSALS, "create", given)
    except Refuse as refusal:
        status = "failed"
        payload |= {"error": refusal.message, "code": BAD_TEMPLATE}
    else:
        status = "done"
        payload["result"] = {name: made[name] for name in ("proposal_id", "status", "reason") if name in made}
        await count(tick, "created", int(made["is_new"]))
    if left := unfilled(payload["proposal_template"]):
        payload["unfilled"] = left
    await count(tick, "processed")
    await tick.write(run={**row, "status": status, "payload": payload, "updated_at": tick.now})
    await tick.set_attributes(state=status)
    return Done({"status": status})
