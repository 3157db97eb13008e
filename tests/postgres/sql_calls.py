"""One connection to a separate database, for synchronous tests that call pure SQL functions."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from tests.postgres.server import fresh_database, return_database

HELPERS = """
-- The result of a function that may refuse; null if it does.
CREATE FUNCTION pg_temp.arrived(r runs, at bigint, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN to_jsonb(ocean_input_arrived(r, at, now));
EXCEPTION WHEN SQLSTATE 'OC001' THEN RETURN NULL;
END $$;

CREATE FUNCTION pg_temp.rearranged(r runs, at bigint, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN to_jsonb(ocean_inbox_changed(r, at, now));
EXCEPTION WHEN SQLSTATE 'OC001' THEN RETURN NULL;
END $$;

CREATE FUNCTION pg_temp.decided(stored jsonb, take jsonb, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN to_jsonb(ocean_decide(jsonb_populate_record(NULL::ocean_counters, nullif(stored, 'null')), take, now));
EXCEPTION WHEN SQLSTATE 'OC001' THEN RETURN NULL;
END $$;

-- When the promised tokens are free, and the counter as it is stored then.
CREATE FUNCTION pg_temp.promised(take jsonb, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  free_at bigint;
BEGIN
  free_at := ocean_promise(take, now);
  RETURN jsonb_build_array(free_at, (SELECT to_jsonb(c) FROM ocean_counters c WHERE c.key = take->>'key'));
EXCEPTION WHEN SQLSTATE 'OC001' THEN RETURN NULL;
END $$;
"""


class SqlCalls:
    """Executes statements and rolls them back: the database stays empty."""

    def __init__(self, runner: asyncio.Runner, db: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._runner = runner
        self._db = db

    def __call__(self, *statements: tuple[str, Any]) -> Any:
        """Execute statements, each with one JSON value as `$1` if any, in one transaction; returns the last value."""
        return self._runner.run(self._ask(statements))

    async def _ask(self, statements: tuple[tuple[str, Any], ...]) -> Any:
        undone = self._db.transaction()
        await undone.start()
        try:
            for statement, value in statements:
                values = [] if value is None else [json.dumps(value)]
                answer = await self._db.fetchval(statement, *values)
            return None if answer is None else json.loads(answer)
        finally:
            await undone.rollback()


@contextmanager
def asking() -> Iterator[SqlCalls]:
    url = fresh_database()
    with asyncio.Runner() as runner:
        db = runner.run(asyncpg.connect(url))
        try:
            runner.run(db.execute(HELPERS))
            yield SqlCalls(runner, db)
        finally:
            runner.run(db.close())
    return_database(url)
