"""The store's verbs about access: API keys, web sessions, who owns a run, and stored results of requests."""

from dataclasses import replace

from ocean.kernel.store.runs import Request
from ocean.state.records import ApiKey, RunOwner
from ocean.state.values import encode
from ocean.stores.shared.row_rules import is_live
from ocean.stores.shared.rows import api_key_from, standing_from
from ocean.stores.sqlite.engine import executor
from ocean.stores.sqlite.engine.executor import UnitExecutor
from ocean.stores.sqlite.engine.unit_of_work import Unit


class SqliteAccessStore(UnitExecutor):
    """Verbs about access, and about stored results of requests."""

    async def add_api_key(self, key: ApiKey, hash: str) -> ApiKey:
        def act(u: Unit) -> ApiKey:
            u.do(
                "add_api_key",
                key_id=key.key_id,
                hash=hash,
                actor=key.actor,
                scopes=encode(list(key.scopes)),
                roles=encode(list(key.roles)),
                sessions=None if key.sessions is None else encode(list(key.sessions)),
                expires_at=key.expires_at,
                now=u.now,
            )
            return replace(key, created_at=u.now)

        return await self._write(act)

    async def list_api_keys(self, after: str, limit: int) -> list[ApiKey]:
        return await self._read(
            lambda u: [api_key_from(row) for row in u.all("list_api_keys", after=after, limit=limit)]
        )

    async def has_api_keys(self) -> bool:
        def act(u: Unit) -> bool:
            row = u.one("any_api_key")
            return row is not None and bool(row["is_there"])

        return await self._read(act)

    async def find_api_key(self, key_id: str) -> tuple[ApiKey, str] | None:
        def act(u: Unit) -> tuple[ApiKey, str] | None:
            row = u.one("get_api_key", key_id=key_id)
            key = None if row is None else api_key_from(row)
            return (key, row["hash"]) if row and key and is_live(key, u.now) else None

        return await self._read(act)

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        def act(u: Unit) -> ApiKey | None:
            u.do("revoke_api_key", key_id=key_id, now=u.now)
            u.do("end_web_sessions_of_key", key_id=key_id)
            row = u.one("get_api_key", key_id=key_id)
            return None if row is None else api_key_from(row)

        return await self._write(act)

    async def add_web_session(self, hash: str, key_id: str, for_ms: int) -> int:
        def act(u: Unit) -> int:
            u.do("forget_old_web_sessions", now=u.now)
            u.do("add_web_session", hash=hash, key_id=key_id, expires_at=u.now + for_ms)
            return u.now + for_ms

        return await self._write(act)

    async def find_web_session(self, hash: str) -> ApiKey | None:
        def act(u: Unit) -> ApiKey | None:
            session = u.one("get_web_session", hash=hash, now=u.now)
            row = u.one("get_api_key", key_id=session["key_id"]) if session else None
            key = None if row is None else api_key_from(row)
            return key if key and is_live(key, u.now) else None

        return await self._read(act)

    async def end_web_session(self, hash: str) -> bool:
        return await self._write(lambda u: u.do("end_web_session", hash=hash) > 0)

    async def standing(self, run_id: str) -> RunOwner | None:
        row = await self._read(lambda u: u.one("standing_of_run", run_id=run_id))
        return None if row is None else standing_from(row)

    async def standing_of_lease(self, lease_hash: str) -> RunOwner | None:
        row = await self._read(lambda u: u.one("standing_of_lease", lease_hash=lease_hash))
        return None if row is None else standing_from(row)

    async def stored_answer(self, request: Request) -> str | None:
        return await self._read(lambda u: executor.stored_answer(u, request))

    async def keep_answer(self, request: Request, answer: str) -> str:
        def act(u: Unit) -> str:
            stored = executor.stored_answer(u, request)
            if stored is None:
                executor.keep_answer(u, request, answer)
            return answer if stored is None else stored

        return await self._write(act)
