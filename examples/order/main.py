"""Orders with payment, approval, reminder and refund, as a handler and as a flow, against a payment service."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anyio

from ocean import Ocean, RunFailed
from order_flow import order_flow
from order_handler import order_handler
from payment_client import HttpPayments, charge_key

HERE = Path(__file__).parent
PATIENCE_MS = 20_000


@contextmanager
def payment_service(ledger: Path) -> Iterator[str]:
    """Start the service as a process, and yield its URL."""
    command = [sys.executable, str(HERE / "payments.py"), "--db", str(ledger)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Shop:
    """Makes orders of one clog, and prints what becomes of them."""

    def __init__(self, ocean: Ocean, clog_id: str, payments_url: str) -> None:
        self._ocean, self._clog_id, self._url = ocean, clog_id, payments_url

    async def order(self, name: str, amount: int, remind_ms: int = 3_600_000) -> str:
        body = {"amount": amount, "items": ["a book", "a lamp"], "remind_ms": remind_ms}
        run_id = f"{self._clog_id}-{name}"
        await self._ocean.create_run(session_id="shop", clog_id=self._clog_id, run_id=run_id, input=body)
        return run_id

    async def show(self, run_id: str, what: str) -> None:
        """Wait for the end, and print the result, the clog's events, and the entries in the ledger."""
        try:
            result = await self._ocean.result(run_id, timeout_ms=PATIENCE_MS)
        except RunFailed as failed:
            result = failed.error["code"]
        await self._ocean.advance()
        log = await self._ocean.read_events(run_id)
        events = [event.type.removeprefix("order.") for event in log if event.type.startswith("order.")]
        key = charge_key(run_id)
        entries = [entry["kind"] for entry in self._request("GET", "/ledger") if entry["key"] == key]
        print(f"{self._clog_id}, {what}: {result}")
        print(f"  events: {', '.join(events) or 'none'}; ledger: {', '.join(entries) or 'nothing'}")

    def slow_down(self, ms: int) -> None:
        self._request("PUT", "/latency", {"ms": ms})

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        request = Request(self._url + path, json.dumps(body).encode() if body else None, method=method)
        with urlopen(request, timeout=10) as response:
            return json.loads(response.read() or "null")


async def demonstrate(ocean: Ocean, shop: Shop) -> None:
    approved = await shop.order("approved", 500)
    await ocean.advance(run_id=approved)
    await ocean.signal(approved, {"type": "approve"}, actor="kim")
    await shop.show(approved, "approved by kim")

    await shop.show(await shop.order("small", 80, remind_ms=100), "small, no decision")
    await shop.show(await shop.order("large", 500, remind_ms=100), "large, no decision")

    cancelled = await shop.order("cancelled", 500)
    await ocean.advance(run_id=cancelled)
    await ocean.cancel_run(cancelled)
    await shop.show(cancelled, "cancelled while it waits")

    shop.slow_down(600)
    hasty = await shop.order("hasty", 500)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: ocean.advance(run_id=hasty))
        await anyio.sleep(0.2)  # The service has the request, and takes its time.
        await ocean.cancel_run(hasty)
    shop.slow_down(0)
    await shop.show(hasty, "cancelled during the charge")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, payment_service(Path(folder) / "ledger.db") as url:
        payments = HttpPayments(url)
        clogs = [order_handler(payments), order_flow(payments)]
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=clogs) as ocean:
            for clog in clogs:
                await demonstrate(ocean, Shop(ocean, clog.clog_id, url))


if __name__ == "__main__":
    anyio.run(main)
