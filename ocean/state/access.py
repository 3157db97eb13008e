"""Who asks, and what they may do."""

from dataclasses import dataclass
from typing import Literal, get_args

from ocean.state.records import Caller

KeyScope = Literal["read", "signal", "advance", "work", "admin"]
"""What a key is for. `admin` is for everything."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)


@dataclass(frozen=True, slots=True)
class Access:
    """What a request may do: that of its key, or everything where there are no keys. `sessions` None is all of them."""

    scopes: frozenset[KeyScope]
    actor: str | None = None
    roles: tuple[str, ...] = ()
    sessions: frozenset[str] | None = None
    key_id: str | None = None

    @property
    def caller(self) -> Caller:
        """As methods see it."""
        return Caller(self.actor, self.roles)

    def may(self, scope: KeyScope) -> bool:
        """Whether it is for this; `admin` is for everything."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, session_id: str) -> bool:
        """Whether the session is there for it."""
        return self.sessions is None or session_id in self.sessions


EVERYTHING = Access(frozenset(KEY_SCOPES))
"""For whoever has the database at hand, or is alone with it on its machine."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key; not the key. `sessions` None is all of them."""

    key_id: str
    actor: str
    scopes: tuple[KeyScope, ...]
    roles: tuple[str, ...]
    sessions: tuple[str, ...] | None
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None

    def access(self) -> Access:
        """What whoever shows the key may do."""
        sessions = None if self.sessions is None else frozenset(self.sessions)
        return Access(frozenset(self.scopes), self.actor, self.roles, sessions, self.key_id)


@dataclass(frozen=True, slots=True)
class Standing:
    """Whose a run is, and what its clog allows the generic routes and commands."""

    run_id: str
    session_id: str
    clog_id: str
    allows: tuple[str, ...]
