"""A database whose only verbs write notes, to test what the client guarantees for any verb."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from ocean import SystemClock
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.connection import ConnectionPool
from ocean.stores.postgres.client.options import options_from
from ocean.stores.postgres.migrate import migrate
from tests.postgres.server import blank_database, blocking

VERBS = """
DROP FUNCTION IF EXISTS ocean_perform(text, jsonb, jsonb, bigint);
DROP FUNCTION IF EXISTS ocean_claim(text, jsonb, boolean);
DROP FUNCTION IF EXISTS ocean_settle_claim(text);
CREATE TABLE notes (place BIGINT GENERATED ALWAYS AS IDENTITY, word TEXT);
CREATE TABLE page (text TEXT);
INSERT INTO page VALUES ('');

CREATE FUNCTION ocean_perform(verb text, args jsonb, request jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  before text;
BEGIN
  IF verb = 'look' THEN
    RETURN (SELECT to_json(coalesce(array_agg(word ORDER BY place), '{}')) FROM notes);
  ELSIF verb = 'turn' THEN
    SELECT text INTO before FROM page;
    IF before IS DISTINCT FROM args->>'before' THEN
      RETURN json_build_object('stale', before);
    END IF;
    UPDATE page SET text = args->>'after';
    RETURN json_build_object('text', args->>'after');
  END IF;
  INSERT INTO notes (word) VALUES (args->>'word');
  CASE verb
    WHEN 'refuse' THEN PERFORM ocean_refuse('run_not_found', json_build_object('run_id', args->>'word'));
    WHEN 'fail' THEN PERFORM 1 / 0;
    WHEN 'wait' THEN RAISE lock_not_available;
    ELSE NULL;
  END CASE;
  RETURN json_build_object('word', args->>'word', 'request', request);
END $$;

-- A claim that waits for no lock.
CREATE FUNCTION ocean_claim(token text, ask jsonb, is_told boolean) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  found json := json_build_object('claims', ask->'words', 'again', false);
BEGIN
  IF ask ? 'refused' THEN
    RETURN ask;
  END IF;
  INSERT INTO notes (word) SELECT jsonb_array_elements_text(ask->'words');
  PERFORM ocean_store_result(token, found, is_told);
  RETURN found;
END $$;

CREATE FUNCTION ocean_settle_claim(token text) RETURNS json LANGUAGE sql AS $$ SELECT ocean_settle(token)::json $$;
"""


def notes_database() -> str:
    url = blank_database()

    async def prepare() -> None:
        db = await asyncpg.connect(url)
        try:
            await migrate(db)
            await db.execute(VERBS)
        finally:
            await db.close()

    blocking(prepare())
    return url


@dataclass
class Desk:
    pool: ConnectionPool
    batches: WriteBatches
    noticed: list[None] = field(default_factory=list)

    async def note(self, word: str) -> Any:
        return await self.batches.write("note", {"word": word})

    async def words(self) -> list[str]:
        found: list[str] = await self.batches.write("look", {})
        return found


@asynccontextmanager
async def desk(url: str, **given: Any) -> AsyncIterator[Desk]:
    pool = ConnectionPool(options_from(url), SystemClock(), **given)
    await pool.open()
    noticed: list[None] = []
    batches = WriteBatches(pool, lambda: noticed.append(None))
    try:
        yield Desk(pool, batches, noticed)
    finally:
        await batches.close()
        await pool.close()


async def words_in(url: str) -> list[str]:
    """The notes as another connection finds them."""
    db = await asyncpg.connect(url)
    try:
        found = await db.fetchval("SELECT to_json(coalesce(array_agg(word ORDER BY place), '{}'))::text FROM notes")
        words: list[str] = json.loads(found)
        return words
    finally:
        await db.close()
