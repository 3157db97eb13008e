"""Count the transactions of an idle process, by PostgreSQL's own statistics."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.contestants.protocol import Request, Result

COUNT = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"


async def count_idle_transactions(request: Request) -> Result:
    """Return the transactions per minute. Counts on a connection to another database, so as not to count itself."""
    parts = urlsplit(request["db"])
    db = await asyncpg.connect(urlunsplit((parts.scheme, parts.netloc, "/postgres", parts.query, "")))
    name = parts.path.lstrip("/")
    await asyncio.sleep(request["settle_s"])
    before = await db.fetchval(COUNT, name)
    await asyncio.sleep(request["seconds"])
    after = await db.fetchval(COUNT, name)
    await db.close()
    return {"per_minute": (after - before) * 60 / request["seconds"]}
