"""Executing a statement that writes exactly once, however often the connection breaks.

A statement is sent with a token, which it stores with its result in its own transaction. If the result is lost, the
token is looked up first. If a result is stored, it is returned. If not, the lookup voids the token, so that a late
arrival of the statement changes nothing, and the statement is sent again with another token.
"""

from dataclasses import dataclass
from typing import Any

import asyncpg

from ocean.state.errors import StoreBusy
from ocean.state.ids import new_token
from ocean.stores.postgres.client.connection import LOST, REFUSED, Connection, ConnectionPool


@dataclass(frozen=True, slots=True)
class TokenStatement:
    """`send_sql` takes a token and the values; `settle_sql` takes the token. Both return the same JSON object, or the
    second NULL if no result is stored."""

    send_sql: str
    settle_sql: str


async def send_once(pool: ConnectionPool, statement: TokenStatement, *values: Any) -> Any:
    token = new_token()
    is_unsure = False

    async def send(db: Connection) -> Any:
        nonlocal token, is_unsure
        if is_unsure:
            kept = await pool.ask(db, statement.settle_sql, token)
            if kept is not None:
                return kept
            token = new_token()
        is_unsure = True
        asked_at = pool.host_time()
        try:
            answer = await pool.ask(db, statement.send_sql, token, *values)
        except asyncpg.PostgresError as error:
            # After an error the server has rolled back; but if it closed the connection, the result is unknown.
            is_unsure = isinstance(error, (*LOST, *REFUSED))
            raise
        if "now" in answer:
            pool.observe(answer["now"], asked_at)
        return answer

    try:
        return await pool.reach(send)
    except StoreBusy as error:
        if not is_unsure:
            raise
        raise StoreBusy(
            "PostgreSQL was lost before it confirmed the change, which may stand; check, or retry with the same key"
        ) from error
