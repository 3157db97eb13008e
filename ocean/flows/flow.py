"""What a flow's function is handed: operations that are remembered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, TypeVarTuple, Unpack, overload

from ocean.flows.calls import called, taken_from
from ocean.flows.errors import FlowMisused
from ocean.flows.journal import Entry, Kind
from ocean.flows.parallel import gathered
from ocean.flows.replay import IN_STEP, Operation, Play, plain_name
from ocean.flows.steps import DEFAULT_RETRY, step_key, taken
from ocean.flows.waits import Filter, joined, signalled, slept
from ocean.kernel.arguments import UNSET, checked_event
from ocean.kernel.new_runs import RunOptions
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Refill, Taken
from ocean.state.errors import InvalidValue
from ocean.state.ids import derived_id, even_roll
from ocean.state.records import Input
from ocean.state.values import checked_id, checked_time, decode, encode, shown
from ocean.tools.fetch import FetchResponse

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Again:
    """What `flow.again(state)` makes, for the function to return."""

    state: Any


class Flow:
    """Every awaited operation is remembered, by its place, kind and name; one that has ended answers at once.

    Inside a step only `stream` and `fetch` work. Names may be used again: they are numbered.
    """

    def __init__(self, play: Play) -> None:
        self._play = play
        self.run_id = play.journal.run_id
        self.session_id = play.tick.session_id
        self.clog_id = play.tick.clog_id

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[str, *Ts], Awaitable[T]],
        *args: *Ts,
        retry: RetryPolicy | None = None,
        undo: Callable[[str, T], Any] | None = None,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[str, *Ts], T],
        *args: *Ts,
        retry: RetryPolicy | None = None,
        undo: Callable[[str, T], Any] | None = None,
    ) -> T: ...

    async def step(
        self,
        name: str,
        fn: Callable[[str, *Ts], Any],
        *args: *Ts,
        retry: RetryPolicy | None = None,
        undo: Callable[..., Any] | None = None,
    ) -> Any:
        """Call `fn(idempotency_key, *args)` and remember its result.

        A failed attempt is made again after the policy's delay (3 attempts unless `retry` says otherwise), while the
        run waits; after the last one the flow gets `StepFailed`. `undo(idempotency_key, result)` is called if the flow
        fails.
        """
        if not callable(fn) or (undo is not None and not callable(undo)):
            raise InvalidValue(f"step {name!r}: fn and undo are functions, got {shown(fn if undo is None else undo)}")
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidValue(f"step {name!r}: retry is a RetryPolicy, got {shown(retry)}")
        operation = self._play.begin("step", name)
        return await taken(self._play, operation, fn, args, retry or DEFAULT_RETRY, undo)

    async def sleep(self, ms: int) -> None:
        """Sleep so long. The run waits and costs nothing."""
        checked_time(ms, "flow.sleep")
        await slept(self._play, lambda: self._play.now + ms)

    async def sleep_until(self, at: int) -> None:
        """Sleep until a time, in milliseconds since 1970; not at all if it is over."""
        checked_time(at, "flow.sleep_until")
        await slept(self._play, lambda: at)

    async def wait_for_signal(
        self, filter: Filter = None, timeout_ms: int | None = None, *, name: str | None = None
    ) -> Input:
        """The first signal that fits and that nobody has taken; the others are kept for later, in order.

        After `timeout_ms` without one: `SignalTimeout`. A signal that came in time counts, however late anybody pokes.
        """
        if timeout_ms is not None:
            checked_time(timeout_ms, "flow.wait_for_signal: timeout_ms")
        name = name or (plain_name(filter) if isinstance(filter, str) else "signal")
        return await signalled(self._play, name, filter, timeout_ms)

    async def start(
        self,
        clog_id: str,
        input: Any = None,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        on_parent_end: Literal["live", "cancel"] = "cancel",
        **options: Unpack[RunOptions],
    ) -> str:
        """Start a child and go on; its id is for `join`. It is cancelled when the flow ends, unless it may live on."""
        if options.get("dedupe_key") is not None:
            raise InvalidValue("flow.start takes no dedupe_key: a flow starts its child once, and must be its parent")
        operation = self._play.begin("start", plain_name(checked_id(clog_id, "clog_id", 128)))

        async def create() -> str:
            return await self._play.tick.create_run(
                clog_id=clog_id,
                input=input,
                session_id=session_id,
                # By its place, not by the order in which lines of a gather come by.
                run_id=run_id or derived_id(step_key(self._play.journal, operation.name), "child"),
                notify_parent=True,
                on_parent_end=on_parent_end,
                **options,
            )

        return str(await self._once(operation, create))

    async def join(self, run_id: str) -> Any:
        """What a child of this flow has answered, when it has ended; `ChildFailed` if it failed."""
        return await joined(self._play, checked_id(run_id, "run_id"))

    async def child(self, clog_id: str, input: Any = None, **options: Any) -> Any:
        """Start a child, and wait for what it answers. Options are those of `start`."""
        return await self.join(await self.start(clog_id, input, **options))

    async def gather(self, *work: Awaitable[T], return_exceptions: bool = False) -> list[T]:
        """Do several things at once: `await flow.gather(flow.step(…), flow.child(…), a_function_of_mine(flow))`.

        It ends when all of them have ended; then the first error, in the order of the arguments, is raised.
        """
        return await gathered(self._play, work, return_exceptions)

    async def now(self) -> int:
        """The time, as it is when the flow first comes by."""

        async def look(_: str) -> int:
            return self._play.now

        return int(await taken(self._play, self._play.begin("now", "now"), look, (), DEFAULT_RETRY))

    async def uuid(self) -> str:
        """An id that is the same whenever the flow comes by."""
        operation = self._play.begin("uuid", "uuid")
        return str(await self._once(operation, self._derived(derived_id, operation)))

    async def random(self) -> float:
        """A number in [0, 1) that is the same whenever the flow comes by."""
        operation = self._play.begin("random", "random")
        return float(await self._once(operation, self._derived(even_roll, operation)))

    def _derived(self, derive: Callable[[str], Any], operation: Operation) -> Callable[[], Awaitable[Any]]:
        async def made() -> Any:
            return derive(step_key(self._play.journal, operation.name))

        return made

    async def emit(self, type: str, payload: Any = None) -> None:
        """An event, once, with the commit that remembers it."""
        operation = self._play.begin("emit", _event_name(type))
        await self._once(operation, lambda: self._play.tell(operation.branch, type, payload))

    async def stream(self, type: str, payload: Any = None) -> None:
        """An event that is visible at once. Inside a step it is not remembered: each attempt streams anew."""
        if IN_STEP.get() is not None:
            await self._play.tick.stream(type, payload)
        else:
            await self._commit("stream", _event_name(type), lambda: self._play.tick.stream(type, payload))

    async def signal(self, run_id: str, input: Any = UNSET, *, signal_id: str | None = None) -> None:
        """Signal a run, once, with the commit that remembers it."""
        await self._commit("send", "send", lambda: self._play.tick.signal(run_id, input, signal_id=signal_id))

    async def set_attributes(self, /, **attributes: str | int | float | bool | None) -> None:
        """Set what the run is found by; None removes one."""
        await self._commit("attributes", "attributes", lambda: self._play.tick.set_attributes(**attributes))

    async def take(
        self,
        key: str,
        n: int = 1,
        limit: int | None = None,
        per_ms: int | None = None,
        *,
        refill: Refill = "steady",
    ) -> Taken:
        """Take from a counter, as `tick.take` does. The flow goes on when that is committed."""
        return await taken_from(self._play, key, n, limit, per_ms, refill)

    async def call(self, clog_id: str, method: str, payload: Any = None) -> Any:
        """Call a method of a clog, as `tick.call` does. The flow goes on when that is committed."""
        return await called(self._play, plain_name(f"{clog_id}.{method}"), clog_id, method, payload)

    async def fetch(self, url: str, **options: Any) -> FetchResponse:
        """`tick.fetch`, for the functions of steps. The clog must list `ocean.http.fetch` among its tools."""
        if IN_STEP.get() is None:
            raise FlowMisused("flow.fetch outside a step would not be remembered; call it in the function of a step")
        return await self._play.tick.fetch(url, **options)

    def patched(self, name: str) -> bool:
        """Whether this run takes the new path: no, if it has been here before the patch was; the answer stays."""
        return self._play.patched(name)

    def again(self, state: Any = None) -> Again:
        """`return flow.again(state)`: forget all operations so far, and call the function anew with `state`.

        Signals and ends of children that nobody has taken are kept; what was done so far is not undone any more.
        """
        return Again(decode(encode(state, "the state of flow.again")))

    async def _commit(self, kind: Kind, name: str, act: Callable[[], Awaitable[Any]]) -> None:
        await self._once(self._play.begin(kind, name), act)

    async def _once(self, operation: Operation, act: Callable[[], Awaitable[Any]]) -> Any:
        """Something whose effect is in the commit that remembers it."""
        entry = operation.entry
        if entry is None:
            self._play.refuse_if_frozen(operation.branch)
            value = await act()
            entry = self._play.record(operation, Entry(operation.kind, operation.name, is_done=True, value=value))
        return entry.value


def _event_name(type: str) -> str:
    if checked_event(type).startswith("flow."):
        raise InvalidValue(f"event types that begin with 'flow.' are written by flows themselves; got {type!r}")
    return plain_name(type)
