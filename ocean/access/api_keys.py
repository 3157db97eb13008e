"""Verbs on API keys and web sessions.

A key is `ocean_<key id>_<secret>`. It is shown once, when it is created; the database has its id and a hash. A browser
exchanges a key for a web session, whose token is in a cookie.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from hmac import compare_digest
from typing import cast

from ocean.kernel.arguments import checked_count, checked_limit, checked_names
from ocean.kernel.store import Store
from ocean.state.clock import Clock
from ocean.state.errors import InvalidValue, UnknownApiKey
from ocean.state.ids import new_api_key, new_web_token
from ocean.state.records import KEY_SCOPES, Access, ApiKey, KeyScope
from ocean.state.values import checked_id, checked_time, shown

KEY = re.compile(r"ocean_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
NO_HASH = "0" * 64
WEB_SESSION_MS = 12 * 3_600_000
LONGEST_WEB_SESSION_MS = 30 * 24 * 3_600_000
MOST_NAMES = 30


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A new key. `key` is the secret itself, which is not stored and cannot be shown again."""

    key: str
    info: ApiKey

    def __repr__(self) -> str:
        return f"NewApiKey({self.info!r})"


@dataclass(frozen=True, slots=True)
class WebSession:
    """A new web session. `token` is for the cookie; it is not stored."""

    token: str
    expires_at: int
    access: Access

    def __repr__(self) -> str:
        return f"WebSession(expires_at={self.expires_at}, access={self.access!r})"


class ApiKeyVerbs:
    """Create, list and revoke keys; look up what a key or a web session allows."""

    _store: Store
    _clock: Clock

    async def create_api_key(
        self,
        actor: str,
        scopes: Collection[KeyScope],
        *,
        roles: Collection[str] = (),
        sessions: Collection[str] | None = None,
        expires_at: int | None = None,
    ) -> NewApiKey:
        """Create a key for `actor`. From the first key on, HTTP requests need a key."""
        checked_id(actor, "actor")
        checked_scopes = _scopes(scopes)
        limited_to = None if sessions is None else _names(sessions, "sessions")
        if limited_to is not None and not limited_to:
            raise InvalidValue("sessions must be a list of at least one session, or None for all")
        if limited_to is not None and "work" in checked_scopes:
            raise InvalidValue(
                "sessions must be None for a key with the scope work: workers lease runs of all sessions"
            )
        if expires_at is not None and checked_time(expires_at, "expires_at") <= self._clock.now():
            raise InvalidValue(f"expires_at must be in the future, got {expires_at}")
        key_id, key = new_api_key()
        info = ApiKey(key_id, actor, checked_scopes, _names(roles, "roles"), limited_to, expires_at=expires_at)
        return NewApiKey(key, await self._store.add_api_key(info, hashed(key)))

    async def list_api_keys(self, *, after: str = "", limit: int = 100) -> list[ApiKey]:
        """Return the keys, including revoked and expired ones; `after` is the last key id already seen."""
        return await self._store.list_api_keys(after, checked_limit(limit))

    async def revoke_api_key(self, key_id: str) -> ApiKey:
        """Revoke a key: it and its web sessions are refused from now on. This cannot be undone."""
        found = await self._store.revoke_api_key(checked_id(key_id, "key_id"))
        if found is None:
            raise UnknownApiKey(f"there is no key {key_id!r}; list_api_keys shows all keys", key_id=key_id)
        return found

    async def has_api_keys(self) -> bool:
        """Return whether a key was ever created: once the last key is revoked, a server is closed, not open."""
        return await self._store.has_api_keys()

    async def access_by_key(self, key: str) -> Access | None:
        """Return what the key allows; None if it is unknown, revoked or expired."""
        match = KEY.fullmatch(key)
        found = await self._store.find_api_key(match[1] if match else "")
        info, stored = found or (None, NO_HASH)
        is_right = compare_digest(hashed(key), stored)
        return info.access() if info is not None and is_right else None

    async def start_web_session(self, key: str, *, for_ms: int = WEB_SESSION_MS) -> WebSession | None:
        """Start a web session for a key; None if the key is refused. It ends with the key at the latest."""
        checked_count(for_ms, "for_ms", least=1, most=LONGEST_WEB_SESSION_MS)
        access = await self.access_by_key(key)
        if access is None or access.key_id is None:
            return None
        token = new_web_token()
        return WebSession(token, await self._store.add_web_session(hashed(token), access.key_id, for_ms), access)

    async def access_by_web_session(self, token: str) -> Access | None:
        """Return what the session's key allows; None if the session or the key has ended."""
        found = await self._store.find_web_session(hashed(token))
        return None if found is None else found.access()

    async def end_web_session(self, token: str) -> bool:
        """End a web session. Returns False if there was none."""
        return await self._store.end_web_session(hashed(token))


def hashed(secret: str) -> str:
    """Return the hash of a secret. Secrets are long and random, so a fast hash is safe."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _scopes(scopes: Collection[KeyScope]) -> tuple[KeyScope, ...]:
    given = checked_names(scopes, "scopes")
    unknown = [scope for scope in given if scope not in KEY_SCOPES]
    if unknown or not given:
        raise InvalidValue(f"scopes must be one or more of {', '.join(KEY_SCOPES)}; got {shown(unknown or given)}")
    return cast(tuple[KeyScope, ...], tuple(scope for scope in KEY_SCOPES if scope in given))


def _names(names: Collection[str], what: str) -> tuple[str, ...]:
    given = checked_names(names, what)
    if len(given) > MOST_NAMES:
        raise InvalidValue(f"a key must have at most {MOST_NAMES} {what}, got {len(given)}")
    return given
