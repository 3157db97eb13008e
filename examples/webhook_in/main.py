"""Orders wait for their payment, which another system reports by a signed webhook, sometimes twice."""

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
"""Shared by both sides. A real server reads it from its environment; this program is both sides."""

orders = Clog("orders")


@orders.on_advance
async def advance(tick: Tick) -> Outcome:
    if tick.reason == "created":
        await tick.set_timer("unpaid", after_ms=7 * 86_400_000)
        return Ok()
    return Done("never paid") if tick.timer == "unpaid" else Done(tick.input)


@orders.webhook("paid", secrets="env:ORDERS_SECRET", session="shop")
async def paid(tick: Tick, delivery: Delivery) -> str:
    """Signal the order. The signal, the event and the delivery's id are one commit, so a repetition has no effect."""
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


def deliver(url: str, id: str, payload: Any, secret: str = SECRET, sent_at: int | None = None) -> str:
    """Send a delivery as the other system does; any Standard Webhooks library makes the same three headers."""
    body = json.dumps(payload).encode()
    headers = sign_webhook(secret, id, body, sent_at=sent_at or int(time.time() * 1_000))
    request = urllib.request.Request(f"{url}/hooks/orders/paid", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return f"{response.status} {response.read().decode()}"
    except HTTPError as refusal:
        with refusal:
            return f"{refusal.code} {json.load(refusal)['error']['message']}"


async def main() -> None:
    os.environ.setdefault("ORDERS_SECRET", SECRET)
    with tempfile.TemporaryDirectory() as folder:
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=[orders]) as ocean, serving(ocean) as url:
            await demonstrate(ocean, url)


async def demonstrate(ocean: Ocean, url: str) -> None:
    async def delivered(*arguments: Any) -> str:
        return await anyio.to_thread.run_sync(deliver, url, *arguments)

    run = await ocean.create_run(session_id="shop", clog_id="orders", input={}, dedupe_key="order-17")
    await ocean.settle(run.run_id)
    payment = {"order": "order-17", "sum": 40}
    print("paid:", await delivered("msg_1", payment))
    print("repeated:", await delivered("msg_1", payment))
    print("another body:", await delivered("msg_1", payment | {"sum": 4}))
    print("wrong secret:", await delivered("msg_2", payment, SECRET.replace("bm90", "bm91")))
    print("an hour late:", await delivered("msg_3", payment, SECRET, int(time.time() * 1_000) - 3_600_000))
    print("unknown:", await delivered("msg_4", {"order": "order-18", "sum": 40}))
    print("result:", await ocean.result(run.run_id))
    events = await ocean.read_events(types=["orders.paid"])
    print("payments:", [event.payload["delivery"] for event in events])


if __name__ == "__main__":
    anyio.run(main)
