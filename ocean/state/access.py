"""What a caller may do: scopes, sessions, API keys, and the owner of a run."""

from dataclasses import dataclass
from typing import Literal, get_args

from ocean.state.records import Caller

KeyScope = Literal["read", "signal", "advance", "work", "admin"]
"""What a key allows. `admin` allows everything."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)


@dataclass(frozen=True, slots=True)
class Access:
    """What a request may do: what its key allows, or everything if there are no keys. `sessions=None` means all."""

    scopes: frozenset[KeyScope]
    actor: str | None = None
    roles: tuple[str, ...] = ()
    sessions: frozenset[str] | None = None
    key_id: str | None = None

    @property
    def caller(self) -> Caller:
        """The caller as methods see it."""
        return Caller(self.actor, self.roles)

    def may(self, scope: KeyScope) -> bool:
        """Return whether the scope is allowed; `admin` allows all."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, session_id: str) -> bool:
        """Return whether the session is visible."""
        return self.sessions is None or session_id in self.sessions


EVERYTHING = Access(frozenset(KEY_SCOPES))
"""The access of a process that opens the database itself, and of HTTP requests while there are no keys."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The stored facts of a key, without its secret. `sessions=None` means all."""

    key_id: str
    actor: str
    scopes: tuple[KeyScope, ...]
    roles: tuple[str, ...]
    sessions: tuple[str, ...] | None
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None

    def access(self) -> Access:
        """Return what a request with this key may do."""
        sessions = None if self.sessions is None else frozenset(self.sessions)
        return Access(frozenset(self.scopes), self.actor, self.roles, sessions, self.key_id)


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The session and clog of a run, and what the clog allows the generic routes and commands."""

    run_id: str
    session_id: str
    clog_id: str
    allows: tuple[str, ...]
