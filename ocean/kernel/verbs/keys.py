"""Verbs on concurrency keys and counters."""

from ocean.kernel.arguments import checked_count, checked_limit, optional_id, request_of
from ocean.kernel.store import Store
from ocean.state.counters import Refill, Taken, checked_take
from ocean.state.records import KeyInfo
from ocean.state.values import checked_id


class KeyVerbs:
    _store: Store

    async def set_limit(
        self, key: str, limit: int, *, actor: str | None = None, request_key: str | None = None
    ) -> KeyInfo:
        """Set how many runs may work under a concurrency key at once: by default 1; 0 stops new ticks.

        Ticks that are running are not interrupted.
        """
        checked_count(limit, "limit", most=1_000_000)
        request = request_of(request_key, "set_limit", [checked_id(key, "key"), limit])
        return await self._store.set_limit(key, limit, optional_id(actor, "actor"), request)

    async def get_key(self, key: str) -> KeyInfo:
        """Return a concurrency key's limit, and how many runs hold it and wait for it."""
        return await self._store.get_key(checked_id(key, "key"))

    async def list_keys(self, *, after: str = "", limit: int = 100) -> list[KeyInfo]:
        """Return the concurrency keys in use or with a limit other than 1, by name; `after` is the last one seen."""
        return await self._store.list_keys("" if after == "" else checked_id(after, "after"), checked_limit(limit))

    async def take(
        self,
        key: str,
        n: int = 1,
        limit: int | None = None,
        per_ms: int | None = None,
        *,
        refill: Refill = "steady",
        request_key: str | None = None,
    ) -> Taken:
        """Take from a counter; `n=0` only looks. Only a take that was granted is stored under the request key."""
        take = checked_take(key, n, limit=limit, per_ms=per_ms, refill=refill)
        request = request_of(request_key, "take", [key, n, limit, per_ms, refill])
        return await (self._store.take(take, request) if n else self._store.look_at_counter([take]))

    async def reset_counter(self, key: str, *, request_key: str | None = None) -> bool:
        """Delete a counter. Returns False if there was none."""
        request = request_of(request_key, "reset_counter", checked_id(key, "a counter's key"))
        return await self._store.reset_counter(key, request)
