"""The tools of a tick for runs: signals, child runs, timers, attributes, queries, and the inbox."""

from typing import Any, Literal, Unpack

from ocean.kernel.arguments import UNSET, checked_limit
from ocean.kernel.new_runs import RunOptions, new_run, new_signal
from ocean.kernel.run_query import RunOrder, RunQuery, is_descending, run_filter
from ocean.kernel.tick_facts import TickFacts
from ocean.state.attributes import checked_attributes
from ocean.state.effects import CancelTimer, NewRun, SetTimer
from ocean.state.errors import DedupeKeyReused, InvalidValue
from ocean.state.records import ClogRecord, Input, InputKind, RunInfo, RunPage
from ocean.state.values import checked_id, checked_time, encode


class RunTools(TickFacts):
    async def signal(
        self,
        run_id: str,
        input: Any = UNSET,
        *,
        signal_id: str | None = None,
        deliver_at: int | None = None,
        required: bool = False,
    ) -> None:
        """Signal a run, with this commit. If the run has ended, that is logged; with `required` the commit fails."""
        context = self._use("ocean.runs.signal")
        signal = new_signal(
            run_id,
            input,
            signal_id=signal_id,
            deliver_at=deliver_at,
            actor=context.caller.actor,
            required=required,
        )
        self._effects.signals.append(signal)

    async def create_run(
        self,
        *,
        clog_id: str,
        input: Any = UNSET,
        session_id: str | None = None,
        run_id: str | None = None,
        notify_parent: bool = False,
        on_parent_end: Literal["live", "cancel"] = "live",
        **options: Unpack[RunOptions],
    ) -> str:
        """Create a child run, with this commit. Returns its id, which is the same in every call of the tick."""
        context = self._use("ocean.runs.create")
        parent = context.run.run_id if context.run else None
        if parent is None and (notify_parent or on_parent_end != "live"):
            raise InvalidValue("notify_parent and on_parent_end must be left out in a call on a clog: it has no run")
        if options.get("debounce_ms") is not None or options.get("debounce_max_ms") is not None:
            raise InvalidValue("debounce_ms must be left out in a tick: it is for creations by other callers")
        new = new_run(
            run_id=context.next_id() if run_id is None else run_id,
            is_id_given=True,
            session_id=context.session_id if session_id is None else session_id,
            clog_id=clog_id,
            input=input,
            actor=context.caller.actor,
            parent_run_id=parent,
            notify_parent=notify_parent,
            on_parent_end=on_parent_end,
            **options,
        )
        if new.dedupe_key is not None:
            holder = await self._holder(new, new.dedupe_key, parent)
            if holder is not None:
                return holder
        self._effects.runs.append(new)
        return new.run_id

    async def _holder(self, new: NewRun, key: str, parent: str | None) -> str | None:
        """Return the run that holds the dedupe key already, in this call or in the database."""
        context = self._context
        holder = context.created_with_key(new)
        # What this call has read as free stays free for it: if another commit takes it first, the tick is called again.
        if holder is None and not context.ledger.has_read_as_free(new.clog_id, new.session_id, key):
            holder = await context.store.find_run(new.clog_id, new.session_id, key)
            context.check_alive()
        if holder is None or (holder[0] == parent and self._effects.release_dedupe_key):
            return None
        if holder[1] != new.body_hash:
            raise DedupeKeyReused(f"dedupe key {key!r} is held by run {holder[0]}, from another body")
        return holder[0]

    async def release_dedupe_key(self) -> None:
        """Free this run's dedupe key, with this commit."""
        self._use("ocean.runs.release_dedupe_key")
        self._effects.release_dedupe_key = True

    async def set_timer(
        self, name: str, *, at: int | None = None, after_ms: int | None = None, input: Any = None
    ) -> None:
        """Set a timer: an input for this run at a time. Setting it again replaces it; signals do not cancel it."""
        context = self._use("ocean.timers.set")
        if (at is None) == (after_ms is None):
            raise InvalidValue("set_timer needs either at=<ms since 1970> or after_ms=<ms>")
        time = at if at is not None else context.now + checked_time(after_ms, "after_ms")
        checked_id(name, "a timer's name", 128)
        self._effects.timers.append(SetTimer(name, checked_time(time, "at"), encode(input, "input")))

    async def cancel_timer(self, name: str) -> None:
        """Cancel a timer that has not fired. Does nothing if there is none."""
        self._use("ocean.timers.cancel")
        self._effects.timers.append(CancelTimer(checked_id(name, "a timer's name", 128)))

    async def set_attributes(self, /, **attributes: str | int | float | bool | None) -> None:
        """Set attributes of this run, by which queries find it; None removes one."""
        self._use("ocean.runs.set_attributes")
        self._effects.attributes |= checked_attributes(attributes, allow_none=True)

    async def list_runs(
        self,
        *,
        order: RunOrder | None = None,
        limit: int = 100,
        cursor: str | None = None,
        **query: Unpack[RunQuery],
    ) -> RunPage:
        """Return a page of runs as they are now. The commit does not check that they are unchanged."""
        context = self._use("ocean.runs.list")
        where = run_filter(**query)
        return await context.store.list_runs(where, checked_limit(limit), cursor, is_descending(where, order))

    async def get_run(self, run_id: str) -> RunInfo | None:
        """Return a run of any clog as it is now. The commit does not check that it is unchanged."""
        context = self._use("ocean.runs.get")
        return await context.store.get_run(checked_id(run_id, "run_id"))

    async def list_clogs(self) -> list[ClogRecord]:
        """Return the clogs that any instance has registered in this database."""
        return await self._use("ocean.clogs.list").store.list_clogs()

    async def pending(self, limit: int = 100) -> list[Input]:
        """Return the inputs that are due for later ticks. The commit does not check that they are unchanged."""
        return await self._due(checked_limit(limit))

    async def next_signal(self) -> Input:
        """Wait for a pending signal and return it; the next tick gets it. For work that a new message interrupts."""
        while True:
            seen = self._context.store.commits_seen()
            for each in await self._due(100):
                if each.kind is InputKind.SIGNAL:
                    return each
            await self._context.store.next_commit(seen)

    async def _due(self, limit: int) -> list[Input]:
        context = self._use("ocean.inbox.pending")
        found = await context.store.due_inputs(self.run_id, limit)
        context.check_alive()
        return found
