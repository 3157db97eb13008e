"""Waiting for a ticker's work."""

import anyio

from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World
from ocean.ticker import Ticker
from tests.lifecycle.acting import let_others_go_on
from tests.postgres.tables import of_postgres
from tests.races.arranging import until

PATIENCE_S = 30


async def until_ticks(w: World, one: Ticker, count: int) -> None:
    with anyio.fail_after(PATIENCE_S):
        while one.ticks < count:
            await let_others_go_on(w)


async def until_asleep(w: World) -> None:
    """Wait until a ticker has registered its claims to share the next transaction."""
    await until(lambda: _is_ordered(w))


def _is_ordered(w: World) -> bool:
    if isinstance(w.store, SqliteStore):
        return bool(w.store.database._claims._waiting)
    return bool(of_postgres(w.store).batches.pending_claims._waiting)
