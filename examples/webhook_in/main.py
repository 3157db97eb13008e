"""Orders wait for their payment, which somebody else's system tells of by a signed webhook, sometimes twice."""

import json
import os
import socket
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import anyio
import anyio.to_thread
import uvicorn

from ocean import Clog, Delivery, Done, Ocean, Ok, Outcome, Refuse, Tick, sign_webhook
from ocean.http.app import make_app

SECRET = "whsec_" + "bm90IGEgcmVhbCBzZWNyZXQsIGJ1dCBsb25nIGVub3VnaA=="
"""Both sides know it. A server has it in its environment, never in its code; this program plays both."""

orders = Clog("orders")


@orders.on_advance
async def advance(tick: Tick) -> Outcome:
    if tick.reason == "created":
        await tick.set_timer("unpaid", after_ms=7 * 86_400_000)
        return Ok()
    return Done("never paid") if tick.timer == "unpaid" else Done(tick.input)


@orders.webhook("paid", secrets="env:ORDERS_SECRET", session="shop")
async def paid(tick: Tick, delivery: Delivery) -> str:
    """The signal, the event and the delivery's id are one commit: what comes again finds the id, and does nothing."""
    order = delivery.body["order"]
    found = (await tick.read(keys=[order])).by_key[order]
    if found is None:
        raise Refuse(f"there is no order {order!r}", code="no_order", http_status=404)
    await tick.emit("orders.paid", {"order": order, "delivery": delivery.id})
    await tick.signal(found.run_id, {"paid": delivery.body["sum"]})
    return f"thank you for {order}"


@asynccontextmanager
async def serving(ocean: Ocean) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(make_app(ocean), access_log=False, log_level="error", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True


def deliver(url: str, id: str, said: Any, secret: str = SECRET, sent_at: int | None = None) -> str:
    """What the other system does; any library for Standard Webhooks makes the same three headers."""
    body = json.dumps(said).encode()
    headers = sign_webhook(secret, id, body, sent_at=sent_at or int(time.time() * 1_000))
    request = urllib.request.Request(f"{url}/hooks/orders/paid", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            told: str = answer.read().decode()
            return f"{answer.status} {told}"
    except HTTPError as refusal:
        with refusal:
            return f"{refusal.code} {json.load(refusal)['error']['message']}"


async def main() -> None:
    os.environ.setdefault("ORDERS_SECRET", SECRET)
    with tempfile.TemporaryDirectory() as folder:
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=[orders]) as ocean, serving(ocean) as url:
            await tell(ocean, url)


async def tell(ocean: Ocean, url: str) -> None:
    async def told(*said: Any) -> str:
        return await anyio.to_thread.run_sync(deliver, url, *said)

    run = await ocean.create_run(session_id="shop", clog_id="orders", input={}, dedupe_key="order-17")
    await ocean.settle(run.run_id)
    payment = {"order": "order-17", "sum": 40}
    print("paid:", await told("msg_1", payment))
    print("again:", await told("msg_1", payment))
    print("another body:", await told("msg_1", payment | {"sum": 4}))
    print("another's secret:", await told("msg_2", payment, SECRET.replace("bm90", "bm91")))
    print("an hour late:", await told("msg_3", payment, SECRET, int(time.time() * 1_000) - 3_600_000))
    print("unknown:", await told("msg_4", {"order": "order-18", "sum": 40}))
    print("result:", await ocean.result(run.run_id))
    events = await ocean.read_events(types=["orders.paid"])
    print("paid in all:", [event.payload["delivery"] for event in events])


if __name__ == "__main__":
    anyio.run(main)
