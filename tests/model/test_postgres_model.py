"""The same state machine on PostgreSQL, with fewer examples, because each step takes several round trips."""

import sqlite3
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

from ocean.compose import open_test_store
from ocean.kernel.store import Store
from tests.model.test_kernel_model import KernelMachine
from tests.postgres.server import fresh_database, return_database
from tests.postgres.tables import copy


class PostgresMachine(KernelMachine):
    def open(self) -> Store:
        self.url = fresh_database()
        store: Store = self.do(open_test_store(self.url, self.clock))
        return store

    def look(self, read: Callable[[Any], Any]) -> Any:
        db: sqlite3.Connection = self.do(copy(self.store))
        try:
            return read(db)
        finally:
            db.close()

    def teardown(self) -> None:
        super().teardown()
        return_database(self.url)


TestPostgresModel = PostgresMachine.TestCase
TestPostgresModel.settings = settings(
    max_examples=15,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
