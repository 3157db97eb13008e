"""The verbs of access: API keys, web sessions, and the owner of a run."""

from typing import Protocol

from ocean.state.records import ApiKey, RunOwner


class StoreAccess(Protocol):
    """Keys are stored as hashes; a secret never reaches a store."""

    async def add_api_key(self, key: ApiKey, hash: str) -> ApiKey:
        """Store a new key. Returns it with its creation time."""

    async def list_api_keys(self, after: str, limit: int) -> list[ApiKey]: ...

    async def has_api_keys(self) -> bool:
        """Return whether a key was ever created, revoked and expired ones included."""

    async def find_api_key(self, key_id: str) -> tuple[ApiKey, str] | None:
        """Return a key and its hash, unless it is revoked or expired."""

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        """Revoke a key and end its web sessions. Returns None if there is no such key."""

    async def add_web_session(self, hash: str, key_id: str, for_ms: int) -> int:
        """Store a web session, and delete those that have ended. Returns when the new one ends."""

    async def find_web_session(self, hash: str) -> ApiKey | None:
        """Return the key of a web session, unless the session or the key has ended."""

    async def end_web_session(self, hash: str) -> bool:
        """End a web session. Returns False if there was none."""

    async def standing(self, run_id: str) -> RunOwner | None:
        """Return the session and the clog of a run, and what the clog allows."""

    async def standing_of_lease(self, lease_hash: str) -> RunOwner | None:
        """Return the same for the run that is leased under this hash."""
