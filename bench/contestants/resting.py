"""What a process asks its database while nothing is to be done: PostgreSQL counts the transactions itself."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.contestants.answering import Answer, Ask

COUNT = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"


async def asked_at_rest(ask: Ask) -> Answer:
    """Counts by a connection to another database, so as not to count itself."""
    parts = urlsplit(ask["db"])
    db = await asyncpg.connect(urlunsplit((parts.scheme, parts.netloc, "/postgres", parts.query, "")))
    name = parts.path.lstrip("/")
    await asyncio.sleep(ask["settle_s"])
    before = await db.fetchval(COUNT, name)
    await asyncio.sleep(ask["seconds"])
    after = await db.fetchval(COUNT, name)
    await db.close()
    return {"per_minute": (after - before) * 60 / ask["seconds"]}
