"""`Flow`: the object that a flow's function gets. Results of its operations are stored in the journal."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, TypeVarTuple, Unpack, overload

from ocean.flows.calls import call_method, take_from_counter
from ocean.flows.errors import FlowMisused
from ocean.flows.journal import Entry, Kind
from ocean.flows.parallel import gather
from ocean.flows.replay import IN_STEP, PURE, Operation, Replay, plain_name
from ocean.flows.steps import DEFAULT_RETRY, StepCall, step_key, take_step
from ocean.flows.unknown import Unknown
from ocean.flows.waits import Filter, join_child, sleep_until, wait_for_signal
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
    """The result of `flow.again(state)`, which the function returns."""

    state: Any


class Flow:
    """Operations of a flow. One that has ended returns its stored result when the function is called again.

    An operation is identified by its position, kind and name. A name may be used several times: uses are numbered.
    Inside a step only `stream` and `fetch` may be called.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.run_id = replay.journal.run_id
        self.session_id = replay.tick.session_id
        self.clog_id = replay.tick.clog_id

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[str, *Ts], Awaitable[T]],
        *args: *Ts,
        retry: RetryPolicy | None = None,
        undo: Callable[[str, T | Unknown], Any] | None = None,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[str, *Ts], T],
        *args: *Ts,
        retry: RetryPolicy | None = None,
        undo: Callable[[str, T | Unknown], Any] | None = None,
    ) -> T: ...

    async def step(
        self,
        name: str,
        fn: Callable[[str, *Ts], Any],
        *args: *Ts,
        retry: RetryPolicy | None = None,
        undo: Callable[..., Any] | None = None,
    ) -> Any:
        """Call `fn(idempotency_key, *args)` and store its result.

        A failed attempt is repeated after the delay of the policy (by default 3 attempts), while the run waits; after
        the last one `StepFailed` is raised. If the flow fails or is ended, `undo(idempotency_key, result)` is called.
        If the step was begun and has no result, that is `undo(key, UNKNOWN)`, with the key that `fn` was given.
        """
        if not callable(fn) or (undo is not None and not callable(undo)):
            raise InvalidValue(
                f"step {name!r}: fn and undo must be functions, got {shown(fn if undo is None else undo)}"
            )
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidValue(f"step {name!r}: retry must be a RetryPolicy, got {shown(retry)}")
        operation = self._replay.begin("step", name)
        return await take_step(self._replay, operation, StepCall(fn, args, retry or DEFAULT_RETRY, undo))

    async def sleep(self, ms: int) -> None:
        """Sleep for a duration. The run waits, and uses no resources of a process."""
        checked_time(ms, "flow.sleep")
        await sleep_until(self._replay, lambda: self._replay.now + ms)

    async def sleep_until(self, at: int) -> None:
        """Sleep until a time, in milliseconds since 1970. Returns at once if it has passed."""
        checked_time(at, "flow.sleep_until")
        await sleep_until(self._replay, lambda: at)

    async def wait_for_signal(
        self, filter: Filter = None, timeout_ms: int | None = None, *, name: str | None = None
    ) -> Input:
        """Wait for the first signal that matches and has not been taken. Others are kept for later, in order.

        Raises `SignalTimeout` after `timeout_ms`. A signal that arrived in time counts, however late the next poke is.
        """
        if timeout_ms is not None:
            checked_time(timeout_ms, "flow.wait_for_signal: timeout_ms")
        name = name or (plain_name(filter) if isinstance(filter, str) else "signal")
        return await wait_for_signal(self._replay, name, filter, timeout_ms)

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
        """Start a child and return its id, for `join`.

        It is cancelled when the flow ends, unless `on_parent_end="live"`.
        """
        if options.get("dedupe_key") is not None:
            raise InvalidValue(
                "flow.start must not have a dedupe_key: a flow starts its child once, and must be its parent"
            )
        operation = self._replay.begin("start", plain_name(checked_id(clog_id, "clog_id", 128)))

        async def create() -> str:
            return await self._replay.tick.create_run(
                clog_id=clog_id,
                input=input,
                session_id=session_id,
                # From its position, not from the order in which branches of a gather reach it.
                run_id=run_id or derived_id(step_key(self._replay.journal, operation.name), "child"),
                notify_parent=True,
                on_parent_end=on_parent_end,
                **options,
            )

        child = str(await self._once(operation, create))
        if operation.branch.is_cancelled:
            self._replay.children.add(child)
        return child

    async def join(self, run_id: str) -> Any:
        """Wait until a child of this flow has ended and return its output. Raises `ChildFailed` if it failed."""
        return await join_child(self._replay, checked_id(run_id, "run_id"))

    async def child(self, clog_id: str, input: Any = None, **options: Any) -> Any:
        """Start a child, wait for its end and return its output. Options are those of `start`."""
        return await self.join(await self.start(clog_id, input, **options))

    async def gather(self, *work: Awaitable[T], return_exceptions: bool = False) -> list[T]:
        """Run several operations at once: `await flow.gather(flow.step(…), flow.child(…), my_function(flow))`.

        Waits until all of them have ended. Then the first error, in the order of the arguments, is raised.
        """
        return await gather(self._replay, work, return_exceptions)

    async def now(self) -> int:
        """Return the time of the first call. Later replays return the same time."""

        async def read_clock(_: str) -> int:
            return self._replay.now

        call = StepCall(read_clock, (), DEFAULT_RETRY)
        return int(await take_step(self._replay, self._replay.begin("now", "now"), call))

    async def uuid(self) -> str:
        """Return an id that is the same in every replay."""
        operation = self._replay.begin("uuid", "uuid")
        return str(await self._once(operation, self._derived(derived_id, operation)))

    async def random(self) -> float:
        """Return a random number in [0, 1) that is the same in every replay."""
        operation = self._replay.begin("random", "random")
        return float(await self._once(operation, self._derived(even_roll, operation)))

    def _derived(self, derive: Callable[[str], Any], operation: Operation) -> Callable[[], Awaitable[Any]]:
        async def make() -> Any:
            return derive(step_key(self._replay.journal, operation.name))

        return make

    async def emit(self, type: str, payload: Any = None) -> None:
        """Emit an event, once, in the commit that stores the operation."""
        operation = self._replay.begin("emit", _event_name(type))
        await self._once(operation, lambda: self._replay.emit(operation.branch, type, payload))

    async def stream(self, type: str, payload: Any = None) -> None:
        """Emit an event that is visible at once. Inside a step it is not stored: each attempt streams again."""
        if IN_STEP.get() is not None:
            await self._replay.tick.stream(type, payload)
        else:
            await self._commit("stream", _event_name(type), lambda: self._replay.tick.stream(type, payload))

    async def signal(self, run_id: str, input: Any = UNSET, *, signal_id: str | None = None) -> None:
        """Signal a run, once, in the commit that stores the operation."""
        await self._commit("send", "send", lambda: self._replay.tick.signal(run_id, input, signal_id=signal_id))

    async def set_attributes(self, /, **attributes: str | int | float | bool | None) -> None:
        """Set attributes of the run; None removes one."""
        await self._commit("attributes", "attributes", lambda: self._replay.tick.set_attributes(**attributes))

    async def take(
        self,
        key: str,
        n: int = 1,
        limit: int | None = None,
        per_ms: int | None = None,
        *,
        refill: Refill = "steady",
    ) -> Taken:
        """Take from a counter, as `tick.take` does. The flow continues when that is committed."""
        return await take_from_counter(self._replay, key, n, limit, per_ms, refill)

    async def call(self, clog_id: str, method: str, payload: Any = None) -> Any:
        """Call a method of a clog, as `tick.call` does. The flow continues when that is committed."""
        return await call_method(self._replay, plain_name(f"{clog_id}.{method}"), clog_id, method, payload)

    async def fetch(self, url: str, **options: Any) -> FetchResponse:
        """Fetch a URL as `tick.fetch` does, in the function of a step. The clog must list `ocean.http.fetch`."""
        if IN_STEP.get() is None:
            raise FlowMisused(
                "flow.fetch must be called in the function of a step: outside, its result would not be stored"
            )
        return await self._replay.tick.fetch(url, **options)

    def patched(self, name: str) -> bool:
        """Return whether this run takes the new path: not if it passed here before the patch. The result is stored."""
        return self._replay.patched(name)

    def again(self, state: Any = None) -> Again:
        """Use as `return flow.again(state)`: drop all operations so far and call the function again, with `state`.

        Signals and ends of children that were not taken are kept. Steps so far will not be undone any more.
        """
        return Again(decode(encode(state, "the state of flow.again")))

    async def _commit(self, kind: Kind, name: str, act: Callable[[], Awaitable[Any]]) -> None:
        await self._once(self._replay.begin(kind, name), act)

    async def _once(self, operation: Operation, act: Callable[[], Awaitable[Any]]) -> Any:
        """Do something whose effect is part of the commit that stores the operation."""
        entry = operation.entry
        if entry is None:
            if operation.kind not in PURE or self._replay.journal.ending is None:
                self._replay.suspend_if_frozen(operation.branch)
            value = await act()
            entry = self._replay.record(operation, Entry(operation.kind, operation.name, is_done=True, value=value))
        return entry.value


def _event_name(type: str) -> str:
    if checked_event(type).startswith("flow."):
        raise InvalidValue(f"an event type must not begin with 'flow.', which flows use themselves, got {type!r}")
    return plain_name(type)
