"""How the verbs that read call the database: a name and arguments as JSON, one round trip, one snapshot."""

import json
from abc import ABC
from typing import Any

from ocean.stores.postgres.client.connection import Connection, ConnectionPool

READ = "SELECT ocean_read($1, $2::text::jsonb)::text"
WALK = "SELECT found::text FROM ocean_walk($1, $2::text::jsonb) found"


class ReadClient(ABC):
    """What the groups of reading verbs are built on."""

    pool: ConnectionPool

    async def _read(self, verb: str, **arguments: Any) -> Any:
        """Return what was found, or None."""
        return (await self._read_at(verb, **arguments))[0]

    async def _read_at(self, verb: str, **arguments: Any) -> tuple[Any, int]:
        """Return what was found, or None, and the server's time then."""
        text = json.dumps(arguments)

        async def read(db: Connection) -> tuple[Any, int]:
            asked_at = self.pool.host_time()
            answer = json.loads(await db.fetchval(READ, verb, text))
            self.pool.observe(answer["now"], asked_at)
            return answer["found"], answer["now"]

        return await self.pool.read(read)

    async def _walk(self, statement: str, values: list[Any]) -> list[Any]:
        """Return the rows, each a JSON value, of a statement that was built from fixed pieces."""
        text = json.dumps(values)

        async def read(db: Connection) -> list[str]:
            return [row["found"] for row in await db.fetch(WALK, statement, text)]

        return [json.loads(found) for found in await self.pool.read(read)]
