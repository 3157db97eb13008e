"""Facts about a PostgreSQL database, read without creating, migrating or locking it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import asyncpg

from ocean.state.records import StoreFacts
from ocean.stores.postgres.client.connection import LOST, without_password
from ocean.stores.postgres.client.options import options_from
from ocean.stores.postgres.migrate import OLDEST, migrations, schema_version

CONNECT_TIMEOUT_S = 5


def inspect_server(url: str) -> StoreFacts:
    """Read the facts on a separate thread, because the caller may or may not run an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _look(url)).result()


async def _look(url: str) -> StoreFacts:
    options = options_from(url)
    facts = StoreFacts("PostgreSQL", "?", True, without_password(options.url).strip("'"), migrations()[-1][0])
    try:
        db = await asyncpg.connect(
            options.url, **options.connect_arguments("ocean doctor") | {"timeout": CONNECT_TIMEOUT_S}
        )
        try:
            version = db.get_server_version()
            facts = replace(
                facts,
                engine_version=f"{version.major}.{version.micro}",
                is_engine_new_enough=version.major >= OLDEST,
                schema=await schema_version(db),
            )
        finally:
            await db.close()
    except (*LOST, asyncpg.PostgresError, ValueError) as error:
        return replace(facts, trouble=str(error) or type(error).__name__)
    return facts
