"""How statements are planned: Ocean's connections have the settings, and on any other each call applies them."""

from contextlib import AsyncExitStack

import asyncpg
import pytest

from ocean.stores.postgres.client.options import PLANS
from tests.postgres.test_pending_claims import without
from tests.postgres.test_pooler import a_life

pytestmark = pytest.mark.anyio

CALLS = {
    "ocean_write": "SELECT ocean_write('t', '[]', true)",
    "ocean_claim": 'SELECT ocean_claim(\'t\', \'{"clogs": {}, "limit": 1, "slot": 0}\', true)',
    "ocean_read": "SELECT ocean_read('clogs', '{}')",
    "ocean_walk": "SELECT ocean_walk('SELECT to_json(1)', '[]')",
}


async def test_a_connection_of_ocean_needs_no_settings_for_a_call(real_database: str) -> None:
    async with AsyncExitStack() as stack:
        for name in CALLS:
            await stack.enter_async_context(without(real_database, f"{name}_planned"))
        await a_life(real_database)


@pytest.mark.parametrize("name", CALLS)
async def test_on_any_other_connection_a_call_has_the_same_settings(name: str, real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    settings = await db.fetchval("SELECT proconfig FROM pg_proc WHERE proname = $1", f"{name}_planned")
    assert dict(each.split("=") for each in settings) == PLANS
    await db.fetch(CALLS[name])
    async with without(real_database, f"{name}_planned"):
        with pytest.raises(asyncpg.UndefinedFunctionError, match=f"{name}_planned"):
            await db.fetch(CALLS[name])
    await db.close()


async def test_an_index_walk_is_planned_with_these_settings(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    shown = ", ".join(f"current_setting('{name}')" for name in PLANS)
    inside = await db.fetchval("SELECT ocean_walk($1, '[]')::text", f"SELECT to_json(ARRAY[{shown}])")
    outside = await db.fetchval(f"SELECT to_json(ARRAY[{shown}])::text")
    await db.close()
    assert inside == str([*PLANS.values()]).replace("'", '"').replace(", ", ",")
    assert outside != inside
