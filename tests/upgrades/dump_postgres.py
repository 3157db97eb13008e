"""A dump of a PostgreSQL database that loads without psql: its functions by their signatures, and its rows.

The tables, and the functions that belong to them, are those of the migrations, which are never edited. Of every other
function only the signature is kept: a migration must cope with it (`CREATE OR REPLACE` refuses other parameter names),
and must not call or leave it.
"""

import re
from pathlib import Path
from typing import Any

MIGRATIONS = Path(__file__).parents[2] / "ocean" / "stores" / "sql" / "postgres"

FUNCTIONS = """
SELECT format(
    'CREATE FUNCTION %I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN RAISE ''an old function''; END $$;',
    proname, pg_get_function_arguments(oid), pg_get_function_result(oid))
FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind = 'f' AND proname <> ALL ($1::text[])
ORDER BY proname, oid
"""
TABLES = """
SELECT c.relname AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns,
    string_agg(format('quote_nullable(%I::text)', a.attname), ' || '', '' || ' ORDER BY a.attnum) AS literals
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND a.attgenerated = '' AND NOT attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
    AND c.relname NOT IN ('ocean_test_clock', 'ocean_schema', 'ocean_groups')
GROUP BY c.oid ORDER BY c.oid
"""


async def dump_postgres(url: str) -> str:
    """Return the dump as SQL."""
    import asyncpg

    db: Any = await asyncpg.connect(url)
    version = await db.fetchval("SELECT version FROM ocean_schema")
    lines = [f"-- Schema version {version} of PostgreSQL, without the tables of its migrations."]
    scripts = "".join(file.read_text() for file in MIGRATIONS.glob("*.sql"))
    lines += [row[0] for row in await db.fetch(FUNCTIONS, re.findall(r"CREATE FUNCTION (\w+)", scripts))]
    for table in await db.fetch(TABLES):
        rows = [row[0] for row in await db.fetch(f"SELECT {table['literals']} FROM {table['name']} t ORDER BY t::text")]
        if rows:
            values = ",\n".join(f"({row})" for row in rows)
            lines.append(f"DELETE FROM {table['name']};")
            lines.append(f"INSERT INTO {table['name']} ({table['columns']}) VALUES\n{values};")
    for row in await db.fetch("SELECT relname AS name FROM pg_class WHERE relkind = 'S' ORDER BY 1"):
        last = await db.fetchval(f"SELECT last_value FROM {row['name']}")
        lines.append(f"SELECT setval('{row['name']}', {last}, true);")
    await db.close()
    return "\n".join(lines) + "\n"
