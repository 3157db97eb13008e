"""What a database URL may say of the way Ocean is to use it."""

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
"""Statistics decide nothing: see `planning.sql`, which does it for connections that are a pooler's."""


@dataclass(frozen=True, slots=True)
class Options:
    """`pool` is how many connections an instance may have for its work, besides one that renews locks and one that
    listens.

    `notify` may be switched off: others' commits are then found by looking. `pooler=on` is for a transaction pooler
    in between: no statement is prepared, no setting is made for a connection, nobody listens. `statement_ms` is how
    long a statement may take, and `lock_ms` how long it may wait for another's commit.
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
    def _gone_s(self) -> float:
        """A statement that has taken longer than the server lets it will not be answered."""
        return self.statement_ms / 1000 * 1.25

    @property
    def _connect_s(self) -> float:
        return min(max(self._gone_s, 2), 10)

    @property
    def longest_s(self) -> float:
        """How long to go on about one thing: time for an answer that never comes, to connect, and to find out more."""
        return 2 * self._gone_s + self._connect_s

    def connecting(self, name: str) -> dict[str, Any]:
        """How every connection is made. Time limits are the server's; the driver's own is for a server that is gone."""
        limits: dict[str, Any] = {"command_timeout": self._gone_s, "timeout": self._connect_s}
        if self.pooler:
            return {**limits, "statement_cache_size": 0}
        settings = {
            "application_name": name,
            # Who has waited for the writers' lock must see what was written meanwhile.
            "default_transaction_isolation": "read committed",
            "statement_timeout": str(self.statement_ms),
            "lock_timeout": str(self.lock_ms),
            "idle_in_transaction_session_timeout": str(max(self.lock_ms // 3, 1)),
            **PLANS,
        }
        return {**limits, "server_settings": settings}


def options_from(url: str) -> Options:
    """`postgresql://user@host/database?pool=8&notify=off`; what is not Ocean's goes on to the driver."""
    parts = urlsplit(url)
    ours: dict[str, Any] = {}
    others = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("notify", "pooler"):
            if value not in SWITCH:
                raise StoreUnusable(f"{name}={value!r} in a database URL; say {name}=on or {name}=off")
            ours[name] = SWITCH[value]
        elif name in ("pool", "statement_ms", "lock_ms"):
            if not value.isascii() or not value.isdigit() or not int(value):
                raise StoreUnusable(f"{name}={value!r} in a database URL; say a number above 0")
            ours[name] = int(value)
        else:
            others.append((name, value))
    return Options(urlunsplit(parts._replace(query=urlencode(others))), **ours)
