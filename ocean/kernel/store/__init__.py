"""The contract between the kernel and a database: the verbs of a `Store`, one transaction each.

The verbs are grouped by the life of a run. Read them in this order:

1. `runs`: clogs, creating, signalling, direct calls, counters, reading, ending and deleting.
2. `claims`: what is due, claiming and leasing it, the rows and steps of a tick, its commit, concurrency keys.
3. `events`: the log, retention, and waiting for commits.
4. `access`: API keys, web sessions, and the owner of a run.
5. `instances`: which instances there are, and taking the locks of one whose process is gone.

A verb reads the current row, decides by the rules of `ocean.state`, and writes the result, all in one transaction.
The SQLite store calls the functions of `ocean.state` inside the transaction. The PostgreSQL store has the same rules
in plpgsql, so that a verb takes one round trip; tests compare the two: each function with its twin, whole histories,
and random sequences of verbs.

A store may execute the verbs of concurrent callers in one transaction. The effect of such a group is that of its
verbs one after another, and a verb that is refused leaves no trace. An expected refusal is a result (`Contended`,
`Behind`, `NotClaimable`) or an `OceanError`; in both cases nothing was written.

Every verb that takes a `Request` stores its result under the request key: with the same key and body it returns the
stored result, with the same key and another body it raises `RequestKeyReused`.
"""

from typing import Protocol

from ocean.kernel.metrics import Histogram
from ocean.kernel.store.access import StoreAccess
from ocean.kernel.store.claims import StoreClaims
from ocean.kernel.store.events import StoreEvents
from ocean.kernel.store.instances import StoreInstances
from ocean.kernel.store.runs import StoreRuns
from ocean.state.clock import Clock

__all__ = ["Store"]


class Store(StoreRuns, StoreClaims, StoreEvents, StoreAccess, StoreInstances, Protocol):
    """All verbs of a database."""

    @property
    def clock(self) -> Clock:
        """The clock of the times in this store. For a database server it is the server's clock."""

    @property
    def batch_sizes(self) -> Histogram:
        """How many verbs shared each transaction. The counts only grow."""

    async def close(self) -> None: ...
