"""Sending what changes something, so that it happens once however often the connection breaks.

A statement travels under a token that it writes down with its answer, in its own transaction. When an answer is lost,
the token is asked for first: either the answer was kept, and is the answer; or there is none, and then the token is
void from that moment on, so that the statement can be sent again under another, and a late arrival changes nothing.
"""

from dataclasses import dataclass
from typing import Any

import asyncpg

from ocean.state.errors import StoreBusy
from ocean.state.ids import new_token
from ocean.stores.postgres.client.connection import LOST, REFUSED, Connection, ConnectionPool


@dataclass(frozen=True, slots=True)
class TokenStatement:
    """`sends` takes a token and whatever there is to send; `settles` takes the token. Both answer the same JSON object,
    the second nothing if there is none."""

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
            # The server has said no, and rolled it back; or it has said good-bye, which tells nothing.
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
            "PostgreSQL was lost while it did this, and whether it did is not known: look, or repeat it by the same key"
        ) from error
