"""Reactions: each makes its proposal through the single entry, in the commit in which it is done."""

from clogs.ops.matrix import unfilled
from clogs.ops.proposing import proposed
from clogs.ops.records import PROPOSALS, REACTIONS, count, record_clog, state_of
from clogs.ops.refusals import BAD_TEMPLATE, violates
from ocean import Done, Outcome, Refuse, Tick

reactions = record_clog(REACTIONS)


@reactions.on_advance
async def advance(tick: Tick) -> Outcome:
    row, _ = await state_of(tick)
    payload = dict(row["payload"])
    try:
        if "error" in payload:
            raise violates(payload["error"])
        asked = proposed(payload.get("dedupe_key"), payload["proposal_source"], payload["proposal_template"])
        made = await tick.call(PROPOSALS, "create", asked)
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
