"""What operators and callers ask about runs, clogs, keys and counters: check what is said, and ask the store."""

from typing import Any, Unpack

from ocean.access.api_keys import Keyring
from ocean.kernel.arguments import checked_count, checked_limit, feed_filter, optional_id, request_of
from ocean.kernel.run_query import RunOrder, RunQuery, is_descending, run_filter
from ocean.kernel.store import Request
from ocean.kernel.verbs.bulk import BulkVerbs
from ocean.state.access import Standing
from ocean.state.counters import Refill, Taken, checked_take
from ocean.state.records import ClogRecord, Input, KeyInfo, RunCount, RunInfo, RunPage, TickInfo
from ocean.state.values import checked_id


class Operating(BulkVerbs, Keyring):
    """The verbs that need no clog of this instance."""

    async def list_runs(
        self,
        *,
        order: RunOrder | None = None,
        limit: int = 100,
        cursor: str | None = None,
        **query: Unpack[RunQuery],
    ) -> RunPage:
        """A page of the runs that the query means."""
        where = run_filter(**query)
        return await self._store.list_runs(where, checked_limit(limit), cursor, is_descending(where, order))

    async def count_runs(self, *, cap: int = 10_000, **query: Unpack[RunQuery]) -> RunCount:
        """How many there are, counting no further than `cap`."""
        where = run_filter(**query)
        return await self._store.count_runs(where, checked_count(cap, "cap", least=1, most=1_000_000))

    async def kept_answer(self, request_key: str, asked: Any) -> str | None:
        """What `keep_answer` was told under the key, for the same question; another one is refused."""
        return await self._store.stored_answer(_asked(request_key, asked))

    async def keep_answer(self, request_key: str, asked: Any, answer: str) -> str:
        """Keep the answer of what is not one transaction, for whoever asks again. The first one stays."""
        return await self._store.keep_answer(_asked(request_key, asked), answer)

    async def standing(self, run_id: str) -> Standing | None:
        """Whose a run is, and what its clog allows the generic routes and commands; None if there is no such run."""
        return await self._store.standing(checked_id(run_id, "run_id"))

    async def has_events(self, run_id: str, session_id: str) -> bool:
        """Whether the session's log has any event of such a run, which may be gone."""
        where = feed_filter(run_id, session_id, None, (), None)
        return bool(await self._store.read_events(where, 0, 1))

    async def list_ticks(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[TickInfo]:
        """The run's ticks in order; `after` is the last tick number already seen."""
        after = checked_count(after, "after")
        return await self._store.list_ticks(checked_id(run_id, "run_id"), after, checked_limit(limit))

    async def list_inputs(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[Input]:
        """The run's inbox in order of arrival, delivered or not; `after` is the last number already seen."""
        after = checked_count(after, "after")
        return await self._store.list_inputs(checked_id(run_id, "run_id"), after, checked_limit(limit))

    async def cancel_run(
        self,
        run_id: str,
        *,
        reason: str | None = None,
        actor: str | None = None,
        request_key: str | None = None,
    ) -> RunInfo:
        """End a run as failed, code `cancelled`; a clog with `on_end` gets its last tick first."""
        if reason is not None:
            checked_id(reason, "reason", 4_000)
        request = request_of(request_key, "cancel_run", [checked_id(run_id, "run_id"), reason])
        return await self._store.cancel_run(run_id, reason, optional_id(actor, "actor"), request)

    async def retry_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """A new run with a failed one's input and options, linked by `retry_of`. Repeated, it answers the same run."""
        request = request_of(request_key, "retry_run", checked_id(run_id, "run_id"))
        return await self._store.retry_run(run_id, optional_id(actor, "actor"), request)

    async def pause_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Hold a run back: signals queue, direct calls work, a deadline still ends it."""
        request = request_of(request_key, "pause_run", checked_id(run_id, "run_id"))
        return await self._store.set_run_paused(run_id, True, optional_id(actor, "actor"), request)

    async def resume_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Let a paused run go on."""
        request = request_of(request_key, "resume_run", checked_id(run_id, "run_id"))
        return await self._store.set_run_paused(run_id, False, optional_id(actor, "actor"), request)

    async def pause_clog(self, clog_id: str, *, actor: str | None = None, request_key: str | None = None) -> ClogRecord:
        """Hold back all runs of a clog, on every instance."""
        request = request_of(request_key, "pause_clog", checked_id(clog_id, "clog_id"))
        return await self._store.set_clog_paused(clog_id, True, optional_id(actor, "actor"), request)

    async def resume_clog(
        self, clog_id: str, *, actor: str | None = None, request_key: str | None = None
    ) -> ClogRecord:
        """Let the runs of a paused clog go on."""
        request = request_of(request_key, "resume_clog", checked_id(clog_id, "clog_id"))
        return await self._store.set_clog_paused(clog_id, False, optional_id(actor, "actor"), request)

    async def delete_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> int:
        """Remove a run, its children and all their rows; answers how many runs went. Events stay."""
        request = request_of(request_key, "delete_run", checked_id(run_id, "run_id"))
        return await self._store.delete_run(run_id, optional_id(actor, "actor"), request)

    async def delete_session(self, session_id: str, *, actor: str | None = None, request_key: str | None = None) -> int:
        """Remove a session with all its runs and rows; answers how many runs went."""
        request = request_of(request_key, "delete_session", checked_id(session_id, "session_id"))
        return await self._store.delete_session(session_id, optional_id(actor, "actor"), request)

    async def set_limit(
        self, key: str, limit: int, *, actor: str | None = None, request_key: str | None = None
    ) -> KeyInfo:
        """How many runs may work under a concurrency key at once: 1 unless set, 0 stops them. Nobody is interrupted."""
        checked_count(limit, "limit", most=1_000_000)
        request = request_of(request_key, "set_limit", [checked_id(key, "key"), limit])
        return await self._store.set_limit(key, limit, optional_id(actor, "actor"), request)

    async def get_key(self, key: str) -> KeyInfo:
        """A concurrency key's limit, and how many runs hold it and wait for it."""
        return await self._store.get_key(checked_id(key, "key"))

    async def list_keys(self, *, after: str = "", limit: int = 100) -> list[KeyInfo]:
        """The concurrency keys that are in use, or have a limit other than 1, by name; `after` is the last one seen."""
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
        """Take from a counter, at once; `n=0` only looks. Only a take that was granted is kept for the request key."""
        take = checked_take(key, n, limit=limit, per_ms=per_ms, refill=refill)
        request = request_of(request_key, "take", [key, n, limit, per_ms, refill])
        return await (self._store.take(take, request) if n else self._store.look_at_counter([take]))

    async def reset_counter(self, key: str, *, request_key: str | None = None) -> bool:
        """Forget what was taken of a counter; False if nothing was."""
        request = request_of(request_key, "reset_counter", checked_id(key, "a counter's key"))
        return await self._store.reset_counter(key, request)


def _asked(request_key: str, asked: Any) -> Request:
    request = request_of(request_key, "kept", asked)
    assert request is not None
    return request
