"""An agent proposes, a human decides, and the effect happens once; without a decision the proposal expires."""

import tempfile
from pathlib import Path
from typing import Any, Literal

import anyio
from pydantic import BaseModel

from ocean import Caller, CallRefused, Clog, Done, Ocean, Ok, Outcome, Refuse, Tick


class Proposal(BaseModel):
    what: str
    state: Literal["proposed", "approved", "rejected", "expired"] = "proposed"
    by: str | None = None


approval = Clog("approval", run_state=Proposal)
outbox: list[str] = []


@approval.on_advance
async def advance(tick: Tick) -> Outcome:
    """Act on the decision in the row. A signal only wakes the run, so a forged signal approves nothing."""
    proposal: Proposal | None = (await tick.read(run=True)).run
    if proposal is None:
        await tick.write(run=Proposal(what=tick.input["what"]))
        await tick.set_timer("expiry", after_ms=tick.input["expires_ms"])
        await tick.emit("approval.asked", {"what": tick.input["what"]})
        return Ok()
    match proposal.state:
        case "approved":
            receipt = await tick.step("send", lambda key: send(proposal.what, key))
            return Done({"decision": "approved", "by": proposal.by, "receipt": receipt})
        case "proposed" if tick.timer != "expiry":
            return Ok()
        case "proposed":
            await tick.write(run=proposal.model_copy(update={"state": "expired"}))
            return Done({"decision": "expired", "by": None})
        case decision:
            return Done({"decision": decision, "by": proposal.by})


def send(what: str, idempotency_key: str) -> str:
    """Simulate an external effect; a real one would pass the key on, so that a repeated request is recognised."""
    outbox.append(what)
    return f"sent {what!r}"


@approval.method
async def approve(tick: Tick, payload: Any) -> str:
    return await decide(tick, "approved")


@approval.method
async def reject(tick: Tick, payload: Any) -> str:
    return await decide(tick, "rejected")


async def decide(tick: Tick, decision: Literal["approved", "rejected"]) -> str:
    """Store the decision and wake the run in one commit."""
    proposal: Proposal | None = (await tick.read(run=True)).run
    if proposal is None:
        raise Refuse("there is no proposal yet; retry", code="not_proposed")
    if proposal.state != "proposed":
        raise Refuse(f"already {proposal.state}", code="already_decided", details={"by": proposal.by})
    await tick.write(run=proposal.model_copy(update={"state": decision, "by": tick.caller.actor}))
    await tick.emit("approval.decided", {"decision": decision, "by": tick.caller.actor})
    await tick.signal(tick.run_id)
    return decision


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=[approval]) as ocean:
            await demonstrate(ocean)


async def demonstrate(ocean: Ocean) -> None:
    async def propose(what: str, expires_ms: int) -> str:
        body = {"what": what, "expires_ms": expires_ms}
        run = await ocean.create_run(session_id="office", clog_id="approval", input=body)
        await ocean.advance(run_id=run.run_id)
        print("the agent proposes", what)
        return run.run_id

    letter = await propose("a letter to Ada", 3_600_000)
    payment = await propose("a payment to Mallory", 3_600_000)
    ignored = await propose("a reminder to Grace", 200)
    for hold in (await ocean.explain(letter)).holds:
        print(f"why is the letter not moving? {hold.code}: {hold.message}")

    print("kim:", await ocean.call_clog(run_id=letter, method="approve", caller=Caller("kim")))
    print("kim:", await ocean.call_clog(run_id=payment, method="reject", caller=Caller("kim")))
    try:
        await ocean.call_clog(run_id=payment, method="approve", caller=Caller("lee"))
    except CallRefused as error:
        print(f"lee is too late: {error} ({error.code})")

    for run_id in (letter, payment, ignored):
        print("result:", await ocean.result(run_id, timeout_ms=10_000))
    print("sent:", outbox)


if __name__ == "__main__":
    anyio.run(main)
