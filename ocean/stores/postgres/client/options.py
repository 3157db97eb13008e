"""The options of a database URL that are Ocean's own."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ocean.state.errors import StoreUnusable

SWITCH = {"on": True, "off": False}
PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_hashagg": "off",
    "enable_sort": "off",
    "enable_incremental_sort": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Settings that keep table statistics from changing plans: see `planning.sql`, which sets them behind a pooler."""


@dataclass(frozen=True, slots=True)
class Options:
    """`pool` is how many connections an instance may have for its work, in addition to one that renews locks and one
    that listens.

    With `notify=off`, commits of other processes are found by polling. `pooler=on` is for a transaction pooler: no
    statement is prepared, no parameter is set for a connection, and none listens. `statement_ms` is how long a
    statement may take, and `lock_ms` how long it may wait for the commit of another.
    """

    url: str
    pool: int = 4
    notify: bool = True
    pooler: bool = False
    statement_ms: int = 20_000
    lock_ms: int = 10_000

    @property
    def listens(self) -> bool:
        return self.notify and not self.pooler

    @property
    def _driver_timeout_s(self) -> float:
        """After this time a statement gets no result any more: the server would have cancelled it before."""
        return self.statement_ms / 1000 * 1.25

    @property
    def _connect_timeout_s(self) -> float:
        return min(max(self._driver_timeout_s, 2), 10)

    @property
    def give_up_after_s(self) -> float:
        """How long to retry one statement: for a result that never comes, a new connection, and one more attempt."""
        return 2 * self._driver_timeout_s + self._connect_timeout_s

    def connect_arguments(self, name: str) -> dict[str, Any]:
        """The arguments of every connection. The server enforces the time limits; the driver's is for a lost server."""
        limits: dict[str, Any] = {"command_timeout": self._driver_timeout_s, "timeout": self._connect_timeout_s}
        if self.pooler:
            return {**limits, "statement_cache_size": 0}
        settings = {
            "application_name": name,
            # A statement that has waited for the writers' lock must see what was written meanwhile.
            "default_transaction_isolation": "read committed",
            "statement_timeout": str(self.statement_ms),
            "lock_timeout": str(self.lock_ms),
            "idle_in_transaction_session_timeout": str(max(self.lock_ms // 3, 1)),
            **PLANS,
        }
        return {**limits, "server_settings": settings}


def options_from(url: str) -> Options:
    """Parse `postgresql://user@host/database?pool=8&notify=off`; other options are passed to the driver."""
    parts = urlsplit(url)
    own: dict[str, Any] = {}
    others = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("notify", "pooler"):
            if value not in SWITCH:
                raise StoreUnusable(f"`{name}` in a database URL must be on or off, got {value!r}")
            own[name] = SWITCH[value]
        elif name in ("pool", "statement_ms", "lock_ms"):
            if not value.isascii() or not value.isdigit() or not int(value):
                raise StoreUnusable(f"`{name}` in a database URL must be a number above 0, got {value!r}")
            own[name] = int(value)
        else:
            others.append((name, value))
    return Options(urlunsplit(parts._replace(query=urlencode(others))), **own)
