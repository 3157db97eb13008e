"""A relay: takes signed webhooks in, and delivers each to every target, signed anew, until it is acknowledged.

A delivery to one target is a run. Its answer is stored by its step, so what was acknowledged is never sent again; what
was not is tried again ever more slowly, and a run whose attempts are spent is the dead letter: it keeps the body, and
`retry` sends it once more. The environment says where to and with which secrets, as nobody who may call us should.
"""

import hashlib
import json
import os
from typing import Any
from urllib.parse import urlsplit

from ocean import (
    Clog,
    Delivery,
    Done,
    Failed,
    FetchRefused,
    FetchResponse,
    OceanError,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    Tick,
    sign_webhook,
)

__all__ = ["webhook_relay"]

SESSION = "webhook-relay"
TARGETS, SECRET_IN, SECRET_OUT = "RELAY_TARGETS", "RELAY_IN_SECRET", "RELAY_OUT_SECRET"
MOST_BYTES = 512 * 1_024
LONGEST_WAIT_MS = 6 * 3_600_000
MINUTE_MS = 60_000
ATTEMPTS = RetryPolicy(
    max_attempts=9,
    delays_ms=(5_000, 30_000, 2 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS, 120 * MINUTE_MS, 360 * MINUTE_MS),
    jitter=0.1,
)
HOPELESS = {"url", "request", "blocked"}
"""Refusals of `fetch` that no later attempt will mend."""

webhook_relay = Clog(
    "webhook-relay",
    tools=[
        "ocean.runs.create",
        "ocean.runs.set_attributes",
        "ocean.events.emit",
        "ocean.steps.run",
        "ocean.http.fetch",
    ],
    generic=["cancel", "pause", "retry", "delete"],
)


class RelayNotReady(OceanError):
    """Nothing is kept of the webhook, not even its id: when it comes again, it is as new. A `Refuse` would be kept."""

    code = "not_ready"
    http_status = 503


class NotAcknowledged(Exception):
    """The target answered something else than 2xx."""

    def __init__(self, answer: FetchResponse) -> None:
        super().__init__(f"the target answered {answer.status}")
        self.status = answer.status
        self.after_ms = _asked_to_wait(answer)


@webhook_relay.webhook("in", secrets=f"env:{SECRET_IN}", session=SESSION, most_bytes=MOST_BYTES)
async def take_in(tick: Tick, delivery: Delivery) -> dict[str, int]:
    """All deliveries are created with the webhook's id, in one commit: it cannot come in twice, or half."""
    targets = list(dict.fromkeys(os.environ.get(TARGETS, "").split()))
    if not targets:
        raise RelayNotReady(f"{TARGETS} names no target")
    if not os.environ.get(SECRET_OUT):
        raise RelayNotReady(f"the environment has no {SECRET_OUT}")
    for url in targets:
        await tick.create_run(
            clog_id="webhook-relay",
            input={"id": delivery.id, "url": url, "body": delivery.body},
            dedupe_key=hashlib.sha256(f"{delivery.id} {url}".encode()).hexdigest(),
            attributes={"delivery": delivery.id, "target": urlsplit(url).netloc[:256]},
            retry=ATTEMPTS,
        )
    return {"targets": len(targets)}


@webhook_relay.on_advance
async def advance(tick: Tick) -> Outcome:
    said = tick.input

    async def post(key: str) -> int:
        return await _post(tick, said["id"], said["url"], said["body"])

    try:
        status = await tick.step("post", post)
    except NotAcknowledged as refusal:
        if refusal.status == 410:
            return await _dead(tick, "gone", "the target answered 410: it wants no more")
        return Retry({"code": "not_acknowledged", "message": str(refusal)}, after_ms=refusal.after_ms)
    except FetchRefused as refusal:
        if refusal.details.get("reason") in HOPELESS:
            return await _dead(tick, refusal.code, refusal.message)
        raise
    await tick.emit("relay.delivered", {"delivery": said["id"], "status": status})
    return Done({"status": status})


@webhook_relay.on_end
async def end(tick: Tick) -> Outcome:
    """The last tick of a delivery whose attempts are spent, or that somebody has cancelled."""
    await _bury(tick, (tick.run.error or {}).get("code", tick.reason))
    return Ok()


async def _post(tick: Tick, id: str, url: str, body: Any) -> int:
    """Nothing of what the target says is kept but its status: it is somebody else's text."""
    raw = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    headers = sign_webhook(os.environ[SECRET_OUT], id, raw, sent_at=tick.now)
    headers |= {"Content-Type": "application/json", "Idempotency-Key": id}
    answer = await tick.fetch(url, method="POST", headers=headers, body=raw, max_redirects=0)
    if not 200 <= answer.status < 300:
        raise NotAcknowledged(answer)
    return answer.status


async def _dead(tick: Tick, code: str, message: str) -> Outcome:
    await _bury(tick, code)
    return Failed({"code": code, "message": message})


async def _bury(tick: Tick, code: str) -> None:
    await tick.set_attributes(dead=True)
    await tick.emit("relay.dead", {"delivery": tick.run.attributes.get("delivery"), "code": code})


def _asked_to_wait(answer: FetchResponse) -> int | None:
    """What `Retry-After` says in seconds, within reason; as a date it is not understood."""
    text = answer.headers.get("retry-after", "")
    return min(int(text) * 1_000, LONGEST_WAIT_MS) if text.isascii() and text.isdigit() and len(text) < 10 else None
