"""What a caller may do with the runs of all clogs, over HTTP and from the command line.

A key may be limited to some sessions, and a clog may allow verbs through its own routes only. For a limited key, a run
of another session is reported as not found. A run's session and clog never change, so what is checked here is still
true when the verb is executed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ocean.kernel.kernel import Kernel
from ocean.kernel.run_query import RunQuery
from ocean.state.eligibility import Explanation, Hold
from ocean.state.errors import KeyIsLimited, NotGeneric, RunNotFound, SessionNotFound
from ocean.state.records import EVERYTHING, Access, GenericVerb, RunOwner

Q = TypeVar("Q", bound=RunQuery)


@dataclass(frozen=True, slots=True)
class Guard:
    """The checks of one caller."""

    ocean: Kernel
    access: Access = EVERYTHING

    async def check_run(self, run_id: str, verb: GenericVerb | None, *, is_keyed: bool = False) -> None:
        """Check a verb on a run; None is reading and advancing. A run that does not exist is left to the verb.

        For a limited key it is refused here, before any other check, so that the error does not reveal whether the
        run exists in another session. With `is_keyed` it is not: the request may be a repeat, and the run deleted.
        """
        if verb is None and self.access.sessions is None:
            return
        owner = await self.ocean.standing(run_id)
        if owner is None and self.access.sessions is not None and not is_keyed:
            raise _no_run(run_id)
        self._check(owner, run_id, verb)

    async def session_of_events(self, run_id: str) -> str | None:
        """Return the session whose events a run's feed may show; None without a limit.

        A deleted run has left events, and its id may have been used in another session.
        """
        if self.access.sessions is None:
            return None
        owner = await self.ocean.standing(run_id)
        if owner is not None:
            self._check(owner, run_id, None)
            return owner.session_id
        for session_id in sorted(self.access.sessions):
            if await self.ocean.has_events(run_id, session_id):
                return session_id
        raise _no_run(run_id)

    async def visible(self, explanation: Explanation) -> Explanation:
        """Return the explanation without the id of another session's run that holds a slot."""
        holds = [hold if await self._may_see(hold) else replace(hold, holder=None) for hold in explanation.holds]
        return replace(explanation, holds=tuple(holds))

    async def _may_see(self, hold: Hold) -> bool:
        if self.access.sessions is None or hold.code != "key_full" or hold.holder is None:
            return True
        owner = await self.ocean.standing(hold.holder)
        return owner is not None and self.access.sees(owner.session_id)

    async def check_lease(self, lease_id: str) -> None:
        """Check that the run of a lease may be worked on."""
        self._check(await self.ocean.standing_of_lease(lease_id), None, "work")

    def _check(self, owner: RunOwner | None, run_id: str | None, verb: GenericVerb | None) -> None:
        if owner is None:
            return
        if not self.access.sees(owner.session_id):
            raise _no_run(run_id)
        if verb is not None:
            _check_verb(owner.clog_id, owner.allows, verb)

    def check_session(self, session_id: str | None) -> None:
        """Check access to a session; None means all sessions, or no particular one."""
        if session_id is None:
            self.check_unlimited()
        elif not self.access.sees(session_id):
            raise SessionNotFound(f"there is no session {session_id!r} for this key", session_id=session_id)

    def check_unlimited(self) -> None:
        """Check access to what concerns all sessions."""
        if self.access.sessions is not None:
            raise KeyIsLimited("this request concerns all sessions, and the key is limited to some; use another key")

    async def check_clog(self, clog_id: str, verb: GenericVerb) -> None:
        """Check a verb on a clog, or on runs of it that are not known yet."""
        allows = await self.ocean.allowed_verbs(clog_id)
        if allows is not None:
            _check_verb(clog_id, allows, verb)

    async def check_session_delete(self, session_id: str) -> None:
        """Check that the clogs of all runs of the session allow deleting."""
        kept = [clog for clog in await self.ocean.list_clogs() if "delete" not in clog.allows]
        for clog in kept:
            if (await self.ocean.count_runs(session_id=session_id, clog_id=clog.clog_id, cap=1)).count:
                _check_verb(clog.clog_id, clog.allows, "delete")

    def limited(self, query: Q) -> Q:
        """Limit the query to the sessions that this key may see."""
        if self.access.sessions is None:
            return query
        given = query.get("session_id")
        sessions = self.access.sessions if given is None else self.access.sessions.intersection(_listed(given))
        query["session_id"] = sorted(sessions)
        return query

    async def allowed(self, query: Q, verb: GenericVerb) -> Q:
        """Limit the query to the sessions that this key may see and the clogs that allow the verb."""
        clogs = await self.ocean.list_clogs()
        kept = {clog.clog_id: clog.allows for clog in clogs if verb not in clog.allows}
        if kept:
            given = query.get("clog_id")
            for clog_id in () if given is None else _listed(given):
                _check_verb(clog_id, kept.get(clog_id, (verb,)), verb)
            if given is None:
                query["clog_id"] = [clog.clog_id for clog in clogs if clog.clog_id not in kept]
        return self.limited(query)

    def request_key(self, key: str | None) -> str | None:
        """Return the request key prefixed with its actor, so that the keys of two actors do not collide."""
        actor = self.access.actor
        return key if key is None or actor is None else f"{len(actor)}:{actor}:{key}"


def _no_run(run_id: str | None) -> RunNotFound:
    return RunNotFound(f"there is no run {run_id!r}", run_id=run_id)


def _check_verb(clog_id: str, allows: Iterable[str], verb: GenericVerb) -> None:
    if verb not in allows:
        raise NotGeneric(
            f"clog {clog_id!r} allows {verb!r} through its own routes and methods only; "
            f"generic requests may use {[*allows] or 'reading only'}",
            clog_id=clog_id,
            verb=verb,
            allows=[*allows],
        )


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [*value]
