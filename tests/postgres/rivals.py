"""A transaction of another client, held open as long as a test wants: waits are arranged, not hoped for."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg

from ocean.kernel.store.claims import ClaimAsk
from ocean.stores.postgres.client.payloads import claim_payload

PATIENCE_S = 20
"""Longer than anything here takes, shorter than a hanging test."""


class Rival:
    """One connection with one transaction in it."""

    def __init__(self, db: "asyncpg.Connection[asyncpg.Record]", watcher: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.db = db
        self._watcher = watcher
        self._transaction = db.transaction()

    async def begin(self) -> None:
        self._transaction = self.db.transaction(isolation="read_committed")
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def lock(self) -> None:
        """Take the writers' lock."""
        await self.db.execute("SELECT ocean_lock()")

    async def claim(self, ask: ClaimAsk, token: str = "rival") -> list[str]:
        """Claim runs in this transaction; returns their ids."""
        found = await self.ask("SELECT ocean_claim($1, $2::text::jsonb, false)::text", token, claim_payload(ask))
        return [claim["shown"]["run"]["run_id"] for claim in found["claims"]]

    async def write(self, *items: tuple[str, Any], token: str = "written") -> list[Any]:
        sent = [[verb, args, None] for verb, args in items]
        done = await self.ask("SELECT ocean_write($1, $2::text::jsonb, false)::text", token, sent)
        return list(done["results"])

    async def ask(self, statement: str, token: str, *values: Any) -> Any:
        text = await self.db.fetchval(statement, token, *map(json.dumps, values))
        return None if text is None else json.loads(text)

    async def is_waited_for(self) -> int:
        """Wait until a server process waits for this transaction; returns its pid."""
        query = "SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) LIMIT 1"
        with anyio.fail_after(PATIENCE_S):
            while (blocked := await self._watcher.fetchval(query, self.db.get_server_pid())) is None:
                pass
        return int(blocked)

    async def has_nobody_locked(self, run_id: str) -> bool:
        """Whether this transaction can lock the run's row at once."""
        query = "SELECT run_id FROM runs WHERE run_id = $1 FOR UPDATE SKIP LOCKED"
        return await self.db.fetchval(query, run_id) is not None


@asynccontextmanager
async def rival(url: str) -> AsyncIterator[Rival]:
    """A client with an open transaction. What it has not committed is rolled back."""
    db, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        found = Rival(db, watcher)
        await found.begin()
        yield found
    finally:
        db.terminate()
        watcher.terminate()
