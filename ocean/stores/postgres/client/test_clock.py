"""Time for tests: a row that is set, in place of the server's clock."""

from typing import Any

import asyncpg

_SCRIPT = """
CREATE TABLE IF NOT EXISTS ocean_test_clock (id INT PRIMARY KEY CHECK (id = 1), now BIGINT NOT NULL);
INSERT INTO ocean_test_clock (id, now) VALUES (1, 0) ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION ocean_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS
$$ SELECT now FROM ocean_test_clock $$;
"""


async def install_test_clock(db: "asyncpg.Connection[Any]") -> None:
    """For good: a database in which time stands still is for tests only."""
    if await db.fetchval("SELECT to_regclass('ocean_test_clock')") is None:
        await db.execute(_SCRIPT)
