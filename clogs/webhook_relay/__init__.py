"""A relay: receives signed webhooks and delivers each to every target, with a new signature, until it is acknowledged.

A delivery to one target is a run. Its step stores the response, so an acknowledged delivery is never sent again. Others
are retried with growing delays. A run without attempts left is the dead letter: it keeps the body, and `retry` sends it
once more. Targets and secrets come from the environment, never from callers. The whole clog is in this file.
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
"""Reasons of `FetchRefused` that a later attempt cannot change."""

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
    """The relay is not configured. Unlike after a `Refuse`, no id is stored: a repeated webhook counts as new."""

    code = "not_ready"
    http_status = 503


class NotAcknowledged(Exception):
    """The target responded with a status other than 2xx."""

    def __init__(self, response: FetchResponse) -> None:
        super().__init__(f"the target responded with {response.status}")
        self.status = response.status
        self.after_ms = _retry_after_ms(response)


@webhook_relay.webhook("in", secrets=f"env:{SECRET_IN}", session=SESSION, most_bytes=MOST_BYTES)
async def take_in(tick: Tick, delivery: Delivery) -> dict[str, int]:
    """Create all deliveries in the commit that stores the webhook's id, so it is taken once and completely."""
    targets = list(dict.fromkeys(os.environ.get(TARGETS, "").split()))
    if not targets:
        raise RelayNotReady(f"{TARGETS} is not set; set it to the URLs of the targets")
    if not os.environ.get(SECRET_OUT):
        raise RelayNotReady(f"{SECRET_OUT} is not set; set it to the secret that signs deliveries")
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
    delivery = tick.input

    async def post(key: str) -> int:
        return await _post(tick, delivery["id"], delivery["url"], delivery["body"])

    try:
        status = await tick.step("post", post)
    except NotAcknowledged as refusal:
        if refusal.status == 410:
            return await _fail_permanently(tick, "gone", "the target responded with 410: it accepts no more deliveries")
        return Retry({"code": "not_acknowledged", "message": str(refusal)}, after_ms=refusal.after_ms)
    except FetchRefused as refusal:
        if refusal.details.get("reason") in HOPELESS:
            return await _fail_permanently(tick, refusal.code, refusal.message)
        raise
    await tick.emit("relay.delivered", {"delivery": delivery["id"], "status": status})
    return Done({"status": status})


@webhook_relay.on_end
async def end(tick: Tick) -> Outcome:
    """Mark a delivery as dead: it has no attempts left, or it was cancelled."""
    await _mark_dead(tick, (tick.run.error or {}).get("code", tick.reason))
    return Ok()


async def _post(tick: Tick, id: str, url: str, body: Any) -> int:
    """Send the body and return the status. Nothing else of the response is stored: it is untrusted text."""
    raw = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    headers = sign_webhook(os.environ[SECRET_OUT], id, raw, sent_at=tick.now)
    headers |= {"Content-Type": "application/json", "Idempotency-Key": id}
    response = await tick.fetch(url, method="POST", headers=headers, body=raw, max_redirects=0)
    if not 200 <= response.status < 300:
        raise NotAcknowledged(response)
    return response.status


async def _fail_permanently(tick: Tick, code: str, message: str) -> Outcome:
    await _mark_dead(tick, code)
    return Failed({"code": code, "message": message})


async def _mark_dead(tick: Tick, code: str) -> None:
    await tick.set_attributes(dead=True)
    await tick.emit("relay.dead", {"delivery": tick.run.attributes.get("delivery"), "code": code})


def _retry_after_ms(response: FetchResponse) -> int | None:
    """Return the delay of `Retry-After` in seconds, limited; a date is ignored."""
    text = response.headers.get("retry-after", "")
    return min(int(text) * 1_000, LONGEST_WAIT_MS) if text.isascii() and text.isdigit() and len(text) < 10 else None
