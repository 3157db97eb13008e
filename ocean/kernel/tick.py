"""What a clog is handed: the facts of its tick, and the only hands it has."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar, Unpack, overload

from anyio import NoEventLoopError, from_thread

from ocean.clog.clog import Clog
from ocean.kernel.arguments import (
    UNSET,
    RunOptions,
    checked_event,
    checked_limit,
    new_run,
    new_signal,
)
from ocean.kernel.call_context import MOST_DEPTH, DryRunOver, Scene
from ocean.kernel.invoke import invoke
from ocean.kernel.rows import Addresses, Rows, row_write, rows_ask, rows_from, rows_named
from ocean.kernel.run_query import RunOrder, RunQuery, is_descending, run_filter
from ocean.kernel.steps import remembered
from ocean.kernel.tick_facts import TickFacts
from ocean.state.attributes import checked_attributes
from ocean.state.counters import Refill, Taken, checked_take
from ocean.state.dry_run_result import DryStop
from ocean.state.effects import CancelTimer, Effects, NewEvent, SetTimer
from ocean.state.errors import CallTooDeep, ClogError, DedupeKeyReused, InvalidValue, Refuse
from ocean.state.records import ClogRecord, Input, InputKind, Lock, RunInfo, RunPage
from ocean.state.values import checked_id, checked_time, decode, encode
from ocean.tools.builtin import TOOLS, check_allowed
from ocean.tools.fetch import FetchRequest, FetchResponse
from ocean.tools.invoke import Tools

T = TypeVar("T")


class Tick(TickFacts):
    """One call's view of its run, for one clog. Nested calls get a view of their own on the same scene."""

    def __init__(self, scene: Scene, clog: Clog, depth: int = 0, effects: Effects | None = None) -> None:
        super().__init__(scene, clog)
        self._depth = depth
        # A nested call buffers apart: if it fails, nothing of it stays, whatever runs beside it.
        self._effects = scene.effects if effects is None else effects
        self._wrote: set[str] = set()

    @cached_property
    def tools(self) -> Tools:
        """The tools by name, for code that has names and JSON."""
        return Tools(self)

    async def read(
        self,
        *,
        run: bool = False,
        session: bool = False,
        global_: bool = False,
        tick: Sequence[str] = (),
        runs: Sequence[str] = (),
        keys: Sequence[str] = (),
        ticks: Sequence[int] = (),
        history: int = 0,
        guard: bool = False,
    ) -> Rows:
        """The clog's one read of this tick. Name every row that is to be written.

        `runs` are rows of other runs, `keys` find runs by dedupe key, `ticks` read earlier ticks whole, and
        `history=n` reads the newest n ticks' rows, oldest first, which unlocks nothing. With `guard=True` the
        commit is refused too if a row that is only read has changed.
        """
        scene = self._use("ocean.storage.read_scoped")
        at = self._addresses()
        ask = rows_ask(at, run, session, global_, tick, runs, keys, ticks, history)
        async with scene.one_at_a_time("read"):
            answer = scene.ledger.answer_for(ask)
            if answer is None:
                answer = await scene.store.read_rows(ask)
                scene.check_alive()
                scene.ledger.record_read(ask, answer)
        if guard:
            self._effects.guards += [(key, answer.rows[key].version) for key in rows_named(at, ask, answer)]
        return rows_from(at, ask, answer)

    async def write(
        self,
        *,
        run: Any = UNSET,
        session: Any = UNSET,
        global_: Any = UNSET,
        tick: Mapping[str, Any] | None = None,
        runs: Mapping[str, Any] | None = None,
        delete_ticks: Sequence[int] = (),
        delete_runs: Sequence[str] = (),
        delete_session: bool = False,
    ) -> None:
        """The clog's one write of this tick, committed with its outcome.

        A value replaces the row, `CLEAR` removes it, a pure function old → new is applied at commit to whatever
        the row then is.
        """
        scene = self._use("ocean.storage.write_scoped")
        at = self._addresses()
        values = {at.of_run(run_id): value for run_id, value in (runs or {}).items()}
        values |= {at.of_tick(row_id): value for row_id, value in (tick or {}).items()}
        if run is not UNSET:
            values[at.run] = run
        if session is not UNSET:
            values[at.session] = session
        if global_ is not UNSET:
            values[at.global_] = global_
        needed = [*values, *(at.of_run(run_id) for run_id in delete_runs)]
        needed += [at.session] if delete_session else []
        if self.number and self.number in delete_ticks:
            raise InvalidValue(f"tick {self.number} is this tick; only earlier ones can be deleted")
        if delete_ticks and self.run.clog_id != self.clog_id:
            owner = self.run.clog_id
            raise ClogError(f"the ticks of run {self.run_id} are {owner!r}'s; {self.clog_id!r} cannot delete them")
        unread = {key: scene.ledger.row(self.clog_id, key) for key in values}
        writes = [row_write(self._clog, key, read, values[key]) for key, read in unread.items()]
        scene.ledger.record_write(self.clog_id, needed, delete_ticks)
        self._wrote.add(self.clog_id)
        self._effects.writes += writes
        self._effects.delete_ticks += delete_ticks
        self._effects.delete_runs += [(self.clog_id, run_id) for run_id in delete_runs]
        if delete_session:
            self._effects.delete_session_by = self.clog_id

    async def emit(self, type: str, payload: Any = None) -> None:
        """An event that appears with the commit."""
        self._use("ocean.events.emit")
        self._effects.events.append(self._event(type, payload))

    async def stream(self, type: str, payload: Any = None) -> None:
        """An event that appears as soon as it is stored, even if this call fails later; it carries the call number.

        The handler need not wait for that. It is stored before any later step's result, and before the commit.
        """
        scene = self._use("ocean.events.stream")
        lock, event = self._lock("stream"), self._event(type, payload)
        if scene.is_dry:
            scene.streamed.append(event)
            return
        await scene.say(lock, event)

    @overload
    async def step(
        self, name: str, fn: Callable[[str], Awaitable[T]], *, scope: Literal["tick", "run"] = "tick", look: bool = True
    ) -> T: ...

    @overload
    async def step(
        self, name: str, fn: Callable[[str], T], *, scope: Literal["tick", "run"] = "tick", look: bool = True
    ) -> T: ...

    async def step(
        self, name: str, fn: Callable[[str], Any], *, scope: Literal["tick", "run"] = "tick", look: bool = True
    ) -> Any:
        """Call `fn(idempotency_key)` once and remember its result: later calls of the tick (or run) get that.

        Before the result is stored the effect is at least once, so pass the key on to the outside world. `look=False`
        saves a query for whoever knows that this step of the run has not been taken yet.
        """
        scene, stop = self._use("ocean.steps.run"), DryStop("step", name, self.clog_id)
        return await remembered(scene, self._lock("step"), self.clog_id, name, fn, stop, scope, look)

    async def take(
        self,
        key: str,
        n: int = 1,
        limit: int | None = None,
        per_ms: int | None = None,
        *,
        refill: Refill = "steady",
    ) -> Taken:
        """Take from a counter, with this commit; the answer is no if there is not enough, and `n=0` only looks.

        Without `per_ms` it is a total, with `limit` a cap. With it, `limit` come back in every `per_ms`: evenly, or
        with `refill="at_once"` all together at its multiples. If others take the rest before this commit, the handler
        is called again, and this key answers no.
        """
        scene = self._use("ocean.counters.take")
        take = checked_take(key, n, limit=limit, per_ms=per_ms, refill=refill)
        if key in scene.refused:
            return scene.refused[key]
        # One at a time: of two takes of one call, the second must know of the first.
        async with scene.one_at_a_time("take"):
            taken = await scene.store.look_at_counter([*scene.taken_of(key), take])
            scene.check_alive()
            if taken and n:
                self._effects.takes.append(take)
        return taken

    async def call(self, clog_id: str, method: str, payload: Any = None) -> Any:
        """Call a method of a clog, within this tick: its reads, writes and events are part of this commit."""
        scene = self._use("ocean.clog.call")
        if self._depth >= MOST_DEPTH:
            raise CallTooDeep(f"calls are nested more than {MOST_DEPTH} deep, at {clog_id}.{method}")
        clog = scene.registry.get(clog_id)
        found = clog.find_method(method)
        nested = Tick(scene, clog, self._depth + 1, Effects())
        scene.buffers.append(nested._effects)
        try:
            answer = await invoke(found, nested, decode(encode(payload, "payload")))
        except (Refuse, DryRunOver):
            self._absorb(nested)
            raise
        except BaseException:
            for clog_id in nested._wrote:
                scene.ledger.unspend_write(clog_id)
            raise
        finally:
            scene.buffers.remove(nested._effects)
        self._absorb(nested)
        return answer

    def _absorb(self, nested: "Tick") -> None:
        self._effects.absorb(nested._effects)
        self._wrote |= nested._wrote

    async def signal(
        self,
        run_id: str,
        input: Any = UNSET,
        *,
        signal_id: str | None = None,
        deliver_at: int | None = None,
        required: bool = False,
    ) -> None:
        """Signal a run, with this commit. An ended one is noted in the sender's log; `required` makes it fail."""
        scene = self._use("ocean.runs.signal")
        signal = new_signal(
            run_id,
            input,
            signal_id=signal_id,
            deliver_at=deliver_at,
            actor=scene.caller.actor,
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
        """Create a child run, with this commit; its id is known at once and the same in every call of the tick."""
        scene = self._use("ocean.runs.create")
        parent = scene.run.run_id if scene.run else None
        if parent is None and (notify_parent or on_parent_end != "live"):
            raise InvalidValue("a run created by a call on a clog has no parent to notify or to end with")
        if options.get("debounce_ms") is not None or options.get("debounce_max_ms") is not None:
            raise InvalidValue("debounce_ms is for creations from outside; a tick creates its runs once")
        new = new_run(
            run_id=scene.next_id() if run_id is None else run_id,
            is_id_given=True,
            session_id=scene.session_id if session_id is None else session_id,
            clog_id=clog_id,
            input=input,
            actor=scene.caller.actor,
            parent_run_id=parent,
            notify_parent=notify_parent,
            on_parent_end=on_parent_end,
            **options,
        )
        key = new.dedupe_key
        if key is not None:
            holder = scene.created_with_key(new)
            # What this call has read as free stays so for it: if others were first, the commit has it called again.
            if holder is None and not scene.ledger.has_read_as_free(clog_id, new.session_id, key):
                holder = await scene.store.find_run(clog_id, new.session_id, key)
                scene.check_alive()
            if holder is not None and holder[0] == parent and self._effects.release_dedupe_key:
                holder = None
            if holder is not None and holder[1] != new.body_hash:
                raise DedupeKeyReused(f"dedupe key {key!r} is held by run {holder[0]}, from another body")
            if holder is not None:
                return holder[0]
        self._effects.runs.append(new)
        return new.run_id

    async def release_dedupe_key(self) -> None:
        """Free this run's dedupe key with this commit."""
        self._use("ocean.runs.release_dedupe_key")
        self._effects.release_dedupe_key = True

    async def set_timer(
        self, name: str, *, at: int | None = None, after_ms: int | None = None, input: Any = None
    ) -> None:
        """An input for this run at a time. Other signals do not cancel it; setting it again replaces it."""
        scene = self._use("ocean.timers.set")
        if (at is None) == (after_ms is None):
            raise InvalidValue("set_timer takes either at=<ms since 1970> or after_ms=<ms>")
        time = at if at is not None else scene.now + checked_time(after_ms, "after_ms")
        checked_id(name, "a timer's name", 128)
        self._effects.timers.append(SetTimer(name, checked_time(time, "at"), encode(input, "input")))

    async def cancel_timer(self, name: str) -> None:
        """Drop a timer that has not fired; nothing if there is none."""
        self._use("ocean.timers.cancel")
        self._effects.timers.append(CancelTimer(checked_id(name, "a timer's name", 128)))

    async def set_attributes(self, /, **attributes: str | int | float | bool | None) -> None:
        """Set what runs are found by; None removes one."""
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
        """Runs as they are now; what it shows is not part of the commit's checks."""
        scene = self._use("ocean.runs.list")
        where = run_filter(**query)
        return await scene.store.list_runs(where, checked_limit(limit), cursor, is_descending(where, order))

    async def get_run(self, run_id: str) -> RunInfo | None:
        """A run as it is now, of any clog; not part of the commit's checks."""
        scene = self._use("ocean.runs.get")
        return await scene.store.get_run(checked_id(run_id, "run_id"))

    async def list_clogs(self) -> list[ClogRecord]:
        """The clogs that any instance on this database has written down."""
        return await self._use("ocean.clogs.list").store.list_clogs()

    async def pending(self, limit: int = 100) -> list[Input]:
        """What has come since and is due: inputs of the ticks after this one. The commit does not check them."""
        return await self._due(checked_limit(limit))

    async def next_signal(self) -> Input:
        """Wait until a signal is pending, and show it; the next tick gets it. For work that a new message ends."""
        while True:
            seen = self._scene.store.commits_seen()
            for each in await self._due(100):
                if each.kind is InputKind.SIGNAL:
                    return each
            await self._scene.store.next_commit(seen)

    async def _due(self, limit: int) -> list[Input]:
        scene = self._use("ocean.inbox.pending")
        found = await scene.store.due_inputs(self.run_id, limit)
        scene.check_alive()
        return found

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_ms: int = 10_000,
        max_bytes: int = 1_048_576,
        max_redirects: int = 5,
    ) -> FetchResponse:
        """An HTTP request to a public address. The clog must list `ocean.http.fetch` among its tools."""
        scene = self._use("ocean.http.fetch")
        request = FetchRequest(url, method, dict(headers or {}), body, timeout_ms, max_bytes, max_redirects)
        return await scene.reach.fetch(request)

    def block(self, work: Awaitable[T]) -> T:
        """For plain `def` handlers, which run in a thread: `rows = tick.block(tick.read(run=True))`."""

        async def wait() -> T:
            return await work

        try:
            return from_thread.run(wait)
        except NoEventLoopError:
            raise ClogError("tick.block is for plain def handlers; in an async one, use await") from None
        finally:
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                # The call was over before this began, which is no mistake of whoever wrote it.
                work.close()

    def _use(self, tool: str) -> Scene:
        self._scene.check_alive()
        check_allowed(self._clog, tool)
        self._scene.registry.toolset.check_not_denied(tool)
        if self._scene.is_dry and TOOLS[tool].reaches_out:
            self._scene.stop(DryStop("tool", tool, self.clog_id))
        return self._scene

    def _lock(self, what: str) -> Lock:
        if self._scene.lock is None:
            raise ClogError(f"{what} needs a tick; a direct call answers at once and has none")
        return self._scene.lock

    def _addresses(self) -> Addresses:
        run_id = self._scene.run.run_id if self._scene.run else ""
        return Addresses(self._clog, self._scene.session_id, run_id, self._scene.tick)

    async def _note(self, type: str, payload: Any) -> None:
        """An event of the kernel's own about this call: at once in a tick, with the commit in a direct call."""
        scene, event = self._scene, NewEvent(type, encode(payload, "payload"), self.clog_id)
        if scene.is_dry:
            scene.streamed.append(event)
        elif scene.lock is None:
            self._effects.events.append(event)
        else:
            await scene.say(scene.lock, event)
            await scene.settle()

    def _event(self, type: str, payload: Any) -> NewEvent:
        return NewEvent(checked_event(type), encode(payload, "payload"), self.clog_id)
