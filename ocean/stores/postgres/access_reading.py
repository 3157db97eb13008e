"""Reading API keys, web sessions, and whose a run is."""

from ocean.state.access import ApiKey, RunOwner
from ocean.stores.postgres.client.reading import Asking
from ocean.stores.shared.row_rules import is_live
from ocean.stores.shared.rows import api_key_from, standing_from


class AccessReads(Asking):
    """That part of the store."""

    async def list_api_keys(self, after: str, limit: int) -> list[ApiKey]:
        return [api_key_from(row) for row in await self._ask("api_keys", after=after, limit=limit) or []]

    async def has_api_keys(self) -> bool:
        return bool(await self._ask("api_keys", after="", limit=1))

    async def find_api_key(self, key_id: str) -> tuple[ApiKey, str] | None:
        found, now = await self._ask_at("api_key", key_id=key_id)
        key = None if found is None else api_key_from(found)
        return (key, found["hash"]) if key and is_live(key, now) else None

    async def find_web_session(self, hash: str) -> ApiKey | None:
        found, now = await self._ask_at("web_session", hash=hash)
        key = None if found is None else api_key_from(found)
        return key if key and is_live(key, now) else None

    async def standing(self, run_id: str) -> RunOwner | None:
        found = await self._ask("standing", run_id=run_id)
        return None if found is None else standing_from(found)

    async def standing_of_lease(self, lease_hash: str) -> RunOwner | None:
        found = await self._ask("standing_of_lease", lease_hash=lease_hash)
        return None if found is None else standing_from(found)
