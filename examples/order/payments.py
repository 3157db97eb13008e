"""A payment service in a process of its own: idempotent by key, with a ledger in a SQLite file that survives it.

python payments.py --db ledger.db --port 8090

`POST /charges` and `POST /refunds` may be repeated under the same key: the first response is repeated. A refund of
a key whose charge has not arrived is recorded as a void, and the late charge is refused. So a client that does not know
whether its charge has arrived requests the refund, and whichever arrives first, nothing stays charged.
"""

import argparse
import socket
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('charge', 'refund', 'void')),
  key TEXT NOT NULL,
  order_id TEXT,
  amount INTEGER,
  repeats INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS ledger_by_key ON ledger (key);
"""


class Ledger:
    """What was charged, refunded and voided. Entries are only added; `repeats` counts repeated requests."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(SCHEMA)

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first."""
        return [dict(row) for row in self._db.execute("SELECT * FROM ledger ORDER BY number")]

    def charge(self, key: str, order_id: str, amount: int) -> tuple[int, dict[str, Any]]:
        """Charge once for each key. A key that was voided or used for something else is refused."""
        kinds = self._kinds(key)
        if "void" in kinds:
            return 409, {"error": "voided", "key": key}
        earlier = kinds.get("charge")
        if earlier is None:
            return 200, self._add("charge", key, order_id, amount)
        if (earlier["order_id"], earlier["amount"]) != (order_id, amount):
            return 409, {"error": "key_reused", "key": key}
        return 200, self._repeated(earlier)

    def refund(self, key: str) -> tuple[int, dict[str, Any]]:
        """Refund the charge of this key once; if it has not arrived, make sure that it never counts."""
        kinds = self._kinds(key)
        if (earlier := kinds.get("refund") or kinds.get("void")) is not None:
            return 200, self._repeated(earlier)
        if (charge := kinds.get("charge")) is not None:
            return 200, self._add("refund", key, charge["order_id"], charge["amount"])
        return 200, self._add("void", key, None, None)

    def _kinds(self, key: str) -> dict[str, sqlite3.Row]:
        return {row["kind"]: row for row in self._db.execute("SELECT * FROM ledger WHERE key = ?", (key,))}

    def _add(self, kind: str, key: str, order_id: str | None, amount: int | None) -> dict[str, Any]:
        self._db.execute(
            "INSERT INTO ledger (kind, key, order_id, amount) VALUES (?, ?, ?, ?)", (kind, key, order_id, amount)
        )
        return {"kind": kind, "key": key}

    def _repeated(self, entry: sqlite3.Row) -> dict[str, Any]:
        self._db.execute("UPDATE ledger SET repeats = repeats + 1 WHERE number = ?", (entry["number"],))
        return {"kind": entry["kind"], "key": entry["key"]}


def make_service(ledger: Ledger, latency_ms: int = 0) -> Starlette:
    """Return the application. It takes half of its latency before an effect, and half of it before the response."""
    seconds = latency_ms / 1_000

    async def slowly(act: Any, *arguments: Any) -> Response:
        await anyio.sleep(seconds / 2)
        status, answer = act(*arguments)
        await anyio.sleep(seconds / 2)
        return JSONResponse(answer, status)

    async def charge(request: Request) -> Response:
        body = await request.json()
        return await slowly(ledger.charge, body["key"], body["order"], body["amount"])

    async def refund(request: Request) -> Response:
        return await slowly(ledger.refund, (await request.json())["key"])

    async def entries(request: Request) -> Response:
        return JSONResponse(ledger.entries())

    async def set_latency(request: Request) -> Response:
        nonlocal seconds
        seconds = (await request.json())["ms"] / 1_000
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route("/charges", charge, methods=["POST"]),
            Route("/refunds", refund, methods=["POST"]),
            Route("/ledger", entries),
            Route("/latency", set_latency, methods=["PUT"]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", type=Path, default=Path("ledger.db"))
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--latency-ms", type=int, default=0)
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", arguments.port)) as listening:
        app = make_service(Ledger(arguments.db), arguments.latency_ms)
        server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="error", lifespan="off"))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()
