"""The `Store` protocol on SQLite. Each verb is one unit, run whole on the writer or on a snapshot of the reader."""

from ocean.kernel.metrics import Histogram
from ocean.state.clock import Clock
from ocean.stores.sqlite.access import SqliteAccessStore
from ocean.stores.sqlite.claim_verbs import SqliteClaimStore
from ocean.stores.sqlite.engine.database import Database
from ocean.stores.sqlite.engine.executor import Transactions
from ocean.stores.sqlite.event_log import SqliteEventStore
from ocean.stores.sqlite.instances import SqliteInstanceStore
from ocean.stores.sqlite.leasing import SqliteLeaseStore
from ocean.stores.sqlite.run_verbs import SqliteRunStore


class SqliteStore(
    SqliteRunStore, SqliteClaimStore, SqliteLeaseStore, SqliteEventStore, SqliteAccessStore, SqliteInstanceStore
):
    """The store of the processes that share one SQLite file."""

    def __init__(self, database: str | Transactions, clock: Clock) -> None:
        """Use the file at this path, or another implementation of `Transactions`."""
        super().__init__(Database(database) if isinstance(database, str) else database, clock)

    @property
    def database(self) -> Database:
        assert isinstance(self._transactions, Database)
        return self._transactions

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def batch_sizes(self) -> Histogram:
        return self._transactions.batch_sizes

    async def open(self) -> None:
        await self._transactions.open()

    async def close(self) -> None:
        await self._transactions.close()
