"""What one caller may do through the verbs that every clog's runs have: over HTTP, from the command line.

A key may be for some sessions only, and a clog may keep verbs to its own routes. A run of another session is not there
for such a key: it is answered as if there were none. Neither a run's session nor its clog ever changes, so what is
looked at here still holds when the verb is done.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ocean.kernel.kernel import Kernel
from ocean.kernel.run_query import RunQuery
from ocean.state.access import EVERYTHING, Access, Standing
from ocean.state.eligibility import Explanation, Hold
from ocean.state.errors import KeyIsLimited, NotGeneric, RunNotFound, SessionNotFound
from ocean.state.records import GenericVerb

Q = TypeVar("Q", bound=RunQuery)


@dataclass(frozen=True, slots=True)
class Guard:
    ocean: Kernel
    access: Access = EVERYTHING

    async def check_run(self, run_id: str, verb: GenericVerb | None, *, is_keyed: bool = False) -> None:
        """For a verb on a run; None for reading and advancing. A run that is not there is for the verb to refuse.

        For a key for some sessions it is refused here, before anything is found wrong with the request that would not
        be with another's run. But `is_keyed`: the request may have been answered when the run was still there.
        """
        if verb is None and self.access.sessions is None:
            return
        standing = await self.ocean.standing(run_id)
        if standing is None and self.access.sessions is not None and not is_keyed:
            raise _no_run(run_id)
        self._check(standing, run_id, verb)

    async def session_of_events(self, run_id: str) -> str | None:
        """Whose events a run's feed may show; None for whoever sees all.

        A run that was deleted has left events, and its id may be another's by now, or have been before.
        """
        if self.access.sessions is None:
            return None
        standing = await self.ocean.standing(run_id)
        if standing is not None:
            self._check(standing, run_id, None)
            return standing.session_id
        for session_id in sorted(self.access.sessions):
            if await self.ocean.has_events(run_id, session_id):
                return session_id
        raise _no_run(run_id)

    async def told(self, explanation: Explanation) -> Explanation:
        """Without the name of another session's run that has a slot this one waits for."""
        holds = [hold if await self._may_know(hold) else replace(hold, holder=None) for hold in explanation.holds]
        return replace(explanation, holds=tuple(holds))

    async def _may_know(self, hold: Hold) -> bool:
        if self.access.sessions is None or hold.code != "key_full" or hold.holder is None:
            return True
        standing = await self.ocean.standing(hold.holder)
        return standing is not None and self.access.sees(standing.session_id)

    async def check_lease(self, lease_id: str) -> None:
        self._check(await self.ocean.standing_of_lease(lease_id), None, "work")

    def _check(self, standing: Standing | None, run_id: str | None, verb: GenericVerb | None) -> None:
        if standing is None:
            return
        if not self.access.sees(standing.session_id):
            raise _no_run(run_id)
        if verb is not None:
            _check_verb(standing.clog_id, standing.allows, verb)

    def check_session(self, session_id: str | None) -> None:
        """For what happens in a session; None is all of them, or none in particular."""
        if session_id is None:
            self.check_unlimited()
        elif not self.access.sees(session_id):
            raise SessionNotFound(f"there is no session {session_id!r} for this key", session_id=session_id)

    def check_unlimited(self) -> None:
        """For what concerns all sessions."""
        if self.access.sessions is not None:
            raise KeyIsLimited("this key is for some sessions, and this concerns all of them; use another key")

    async def check_clog(self, clog_id: str, verb: GenericVerb) -> None:
        """For a verb on a clog, or on runs of it that are still to be found or made."""
        allows = await self.ocean.allowed_verbs(clog_id)
        if allows is not None:
            _check_verb(clog_id, allows, verb)

    async def check_session_delete(self, session_id: str) -> None:
        """It takes all runs of the session with it, so all their clogs must allow that."""
        kept = [clog for clog in await self.ocean.list_clogs() if "delete" not in clog.allows]
        for clog in kept:
            if (await self.ocean.count_runs(session_id=session_id, clog_id=clog.clog_id, cap=1)).count:
                _check_verb(clog.clog_id, clog.allows, "delete")

    def seen(self, query: Q) -> Q:
        """The query, of what this key may see."""
        if self.access.sessions is None:
            return query
        asked = query.get("session_id")
        wanted = self.access.sessions if asked is None else self.access.sessions.intersection(_several(asked))
        query["session_id"] = sorted(wanted)
        return query

    async def meant(self, query: Q, verb: GenericVerb) -> Q:
        """The query, of what this key may see and whose clogs allow the verb."""
        clogs = await self.ocean.list_clogs()
        kept = {clog.clog_id: clog.allows for clog in clogs if verb not in clog.allows}
        if kept:
            asked = query.get("clog_id")
            for clog_id in () if asked is None else _several(asked):
                _check_verb(clog_id, kept.get(clog_id, (verb,)), verb)
            if asked is None:
                query["clog_id"] = [clog.clog_id for clog in clogs if clog.clog_id not in kept]
        return self.seen(query)

    def request_key(self, key: str | None) -> str | None:
        """An actor's own: two that choose the same key do not meet."""
        actor = self.access.actor
        return key if key is None or actor is None else f"{len(actor)}:{actor}:{key}"


def _no_run(run_id: str | None) -> RunNotFound:
    return RunNotFound(f"there is no run {run_id!r}", run_id=run_id)


def _check_verb(clog_id: str, allows: Iterable[str], verb: GenericVerb) -> None:
    if verb not in allows:
        raise NotGeneric(
            f"clog {clog_id!r} keeps {verb!r} to its own routes and methods; it allows {[*allows] or 'reading only'}",
            clog_id=clog_id,
            verb=verb,
            allows=[*allows],
        )


def _several(asked: Any) -> list[str]:
    return [asked] if isinstance(asked, str) else [*asked]
