"""Somebody else's transaction, held open for as long as a test wants: who waits for whom is arranged, not awaited."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg

from ocean.kernel.store.claims import ClaimAsk
from ocean.stores.postgres.client.payloads import claim_words

PATIENCE_S = 20
"""Longer than anything here takes, shorter than a hung test."""


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
        """Be the writer."""
        await self.db.execute("SELECT ocean_lock()")

    async def claim(self, ask: ClaimAsk, token: str = "rival") -> list[str]:
        """The runs that are this one's, once it commits."""
        found = await self.ask("SELECT ocean_claim($1, $2::text::jsonb, false)::text", token, claim_words(ask))
        return [claim["shown"]["run"]["run_id"] for claim in found["claims"]]

    async def write(self, *items: tuple[str, Any], token: str = "written") -> list[Any]:
        sent = [[verb, args, None] for verb, args in items]
        done = await self.ask("SELECT ocean_write($1, $2::text::jsonb, false)::text", token, sent)
        return list(done["answers"])

    async def ask(self, statement: str, token: str, *values: Any) -> Any:
        text = await self.db.fetchval(statement, token, *map(json.dumps, values))
        return None if text is None else json.loads(text)

    async def is_waited_for(self) -> int:
        """Wait until the server says that somebody waits for this transaction; answers who."""
        asked = "SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) LIMIT 1"
        with anyio.fail_after(PATIENCE_S):
            while (blocked := await self._watcher.fetchval(asked, self.db.get_server_pid())) is None:
                pass
        return int(blocked)

    async def has_nobody_locked(self, run_id: str) -> bool:
        """Whether this transaction gets the run's row at once."""
        asked = "SELECT run_id FROM runs WHERE run_id = $1 FOR UPDATE SKIP LOCKED"
        return await self.db.fetchval(asked, run_id) is not None


@asynccontextmanager
async def rival(url: str) -> AsyncIterator[Rival]:
    """With a transaction begun. What it has not committed is undone."""
    db, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        found = Rival(db, watcher)
        await found.begin()
        yield found
    finally:
        db.terminate()
        watcher.terminate()
