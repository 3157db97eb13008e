"""`Tick`: what a handler is called with. Its methods are the only tools a clog has."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar, overload

from anyio import NoEventLoopError, from_thread

from ocean.kernel.arguments import UNSET
from ocean.kernel.call_context import MOST_DEPTH, DryRunOver
from ocean.kernel.invoke import invoke
from ocean.kernel.rows import Addresses, Rows, row_write, rows_ask, rows_from, rows_named
from ocean.kernel.run_tools import RunTools
from ocean.kernel.steps import run_step
from ocean.kernel.streaming import of_step
from ocean.state.counters import Refill, Taken, checked_take
from ocean.state.dry_run_result import DryStop
from ocean.state.effects import Effects, NewEvent
from ocean.state.errors import CallTooDeep, ClogError, InvalidValue, Refuse
from ocean.state.values import decode, encode
from ocean.tools.fetch import FetchRequest, FetchResponse
from ocean.tools.invoke import ToolInvoker

T = TypeVar("T")


class Tick(RunTools):
    """The view that one clog has of one call. Nested calls have their own view of the same context."""

    @cached_property
    def tools(self) -> ToolInvoker:
        """The tools by name, for code that has names and JSON."""
        return ToolInvoker(self)

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
        """Read rows: the clog's one read of this tick. Name every row that is to be written.

        `runs` are rows of other runs, `keys` find runs by dedupe key, `ticks` read all rows of earlier ticks, and
        `history=n` reads the rows of the newest n ticks, oldest first, which does not allow writing them. With
        `guard=True` the commit is also refused if a row that was only read has changed.
        """
        context = self._use("ocean.storage.read_scoped")
        at = self._addresses()
        ask = rows_ask(at, run, session, global_, tick, runs, keys, ticks, history)
        async with context.lock_for("read"):
            answer = context.ledger.answer_for(ask)
            if answer is None:
                answer = await context.store.read_rows(ask)
                context.check_alive()
                context.ledger.record_read(ask, answer)
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
        """Write rows: the clog's one write of this tick, committed with its outcome.

        A value replaces the row, `CLEAR` removes it, and a pure function from old to new value is applied to the row
        at commit.
        """
        context = self._use("ocean.storage.write_scoped")
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
            raise InvalidValue(f"delete_ticks must name earlier ticks, got {self.number}, which is this tick")
        if delete_ticks and self.run.clog_id != self.clog_id:
            owner = self.run.clog_id
            raise ClogError(f"ticks of run {self.run_id} belong to clog {owner!r}; {self.clog_id!r} cannot delete them")
        read = {key: context.ledger.row(self.clog_id, key) for key in values}
        writes = [row_write(self._clog, key, stored, values[key]) for key, stored in read.items()]
        context.ledger.record_write(self.clog_id, needed, delete_ticks)
        self._wrote.add(self.clog_id)
        self._effects.writes += writes
        self._effects.delete_ticks += delete_ticks
        self._effects.delete_runs += [(self.clog_id, run_id) for run_id in delete_runs]
        if delete_session:
            self._effects.delete_session_by = self.clog_id

    async def emit(self, type: str, payload: Any = None) -> None:
        """Append an event, with this commit."""
        self._use("ocean.events.emit")
        self._effects.events.append(self._event(type, payload))

    async def stream(self, type: str, payload: Any = None) -> None:
        """Append an event at once, even if this call fails later; it has the call's number.

        The handler does not wait until it is stored. It is stored before any later step result and the commit.
        """
        context = self._use("ocean.events.stream")
        lock, event = self._lock("stream"), self._event(type, payload)
        if context.is_dry:
            context.streamed.append(event)
            return
        await context.stream(lock, of_step(context, event))

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
        """Call `fn(idempotency_key)` once and store its result: later calls of the tick (or run) get that.

        Until the result is stored the effect is at least once, so pass the key to external services. `look=False`
        saves a query if the caller knows that this step of the run has no result yet.
        """
        context, stop = self._use("ocean.steps.run"), DryStop("step", name, self.clog_id)
        return await run_step(context, self._lock("step"), self.clog_id, name, fn, stop, scope, look)

    async def take(
        self,
        key: str,
        n: int = 1,
        limit: int | None = None,
        per_ms: int | None = None,
        *,
        refill: Refill = "steady",
    ) -> Taken:
        """Take from a counter, with this commit; refused if there is not enough left. `n=0` only looks.

        Without `per_ms` it is a total, and `limit` is its cap. With it, `limit` come back in every `per_ms`: evenly,
        or with `refill="at_once"` all together at its multiples. If another commit takes the rest first, the handler
        is called again, and this key is refused.
        """
        context = self._use("ocean.counters.take")
        take = checked_take(key, n, limit=limit, per_ms=per_ms, refill=refill)
        if key in context.refused:
            return context.refused[key]
        # One at a time: the second take of a call must count the first.
        async with context.lock_for("take"):
            taken = await context.store.look_at_counter([*context.takes_of(key), take])
            context.check_alive()
            if taken and n:
                self._effects.takes.append(take)
        return taken

    async def call(self, clog_id: str, method: str, payload: Any = None) -> Any:
        """Call a method of a clog within this tick: its reads, writes and events are part of this commit."""
        context = self._use("ocean.clog.call")
        if self._depth >= MOST_DEPTH:
            raise CallTooDeep(f"calls must not be nested more than {MOST_DEPTH} deep, at {clog_id}.{method}")
        clog = context.registry.get(clog_id)
        found = clog.find_method(method)
        nested = Tick(context, clog, self._depth + 1, Effects())
        context.buffers.append(nested._effects)
        try:
            answer = await invoke(found, nested, decode(encode(payload, "payload")))
        except (Refuse, DryRunOver):
            self._absorb(nested)
            raise
        except BaseException:
            for clog_id in nested._wrote:
                context.ledger.unspend_write(clog_id)
            raise
        finally:
            context.buffers.remove(nested._effects)
        self._absorb(nested)
        return answer

    def _absorb(self, nested: "Tick") -> None:
        self._effects.absorb(nested._effects)
        self._wrote |= nested._wrote

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
        """Make an HTTP request to a public address. The clog must list `ocean.http.fetch` among its tools."""
        context = self._use("ocean.http.fetch")
        request = FetchRequest(url, method, dict(headers or {}), body, timeout_ms, max_bytes, max_redirects)
        return await context.reach.fetch(request)

    def block(self, work: Awaitable[T]) -> T:
        """Wait for a tool in a plain `def` handler: `rows = tick.block(tick.read(run=True))`."""

        async def wait() -> T:
            return await work

        try:
            return from_thread.run(wait)
        except NoEventLoopError:
            raise ClogError("tick.block is for plain def handlers; in an async one, use await") from None
        finally:
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                # The call ended before the coroutine started: closing it avoids a warning that it was never awaited.
                work.close()

    def _addresses(self) -> Addresses:
        run_id = self._context.run.run_id if self._context.run else ""
        return Addresses(self._clog, self._context.session_id, run_id, self._context.tick)

    async def _note(self, type: str, payload: Any) -> None:
        """Append an event of the kernel about this call: at once in a tick, with the commit in a direct call."""
        context, event = self._context, NewEvent(type, encode(payload, "payload"), self.clog_id)
        if context.is_dry:
            context.streamed.append(event)
        elif context.lock is None:
            self._effects.events.append(event)
        else:
            await context.stream(context.lock, event)
            await context.flush()
