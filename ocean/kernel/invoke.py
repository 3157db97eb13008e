"""Calls of a clog's code: plain functions run in a thread, and every failure becomes an outcome."""

import inspect
import math
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CapacityLimiter, get_cancelled_exc_class, to_thread

from ocean.state.errors import Abort, InvalidValue, LockLost, StoreBusy, StoreFailed
from ocean.state.outcomes import (
    LONGEST_MESSAGE,
    Continue,
    Done,
    ErrorInfo,
    Failed,
    Ok,
    Outcome,
    Retry,
    Wait,
    aborted,
    error_info,
)
from ocean.state.tracebacks import checked_place, text_of
from ocean.state.values import Json, encode

if TYPE_CHECKING:
    from ocean.kernel.tick import Tick

IN_THREADS: set[object] = set()
"""One mark for each plain function that is executing in a thread. A cancelled call leaves its thread executing."""


async def call_handler(handler: Callable[["Tick"], Any], tick: "Tick") -> Outcome:
    """Return the handler's outcome; a handler that raises, or returns something else, has failed this attempt.

    Errors of the database are raised: they are no attempt, as in the commit.
    """
    try:
        return checked_outcome(await invoke(handler, tick))
    except (LockLost, StoreBusy, StoreFailed):
        raise
    except get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise
        # The call itself was not cancelled, but something that it awaited was.
        return Retry(ErrorInfo("cancelled_inside", "the handler waited for something that was cancelled"))
    except Abort as error:
        return Failed(storable(aborted(error)))
    except Exception as error:
        return Retry(storable(error_info(error)))


async def invoke(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a clog's function: a plain one in its own thread, so that it may block and call others."""
    # Most are async functions; `iscoroutinefunction` would unwrap partials and methods first, at every tick.
    is_plainly_async = isinstance(fn, FunctionType) and fn.__code__.co_flags & inspect.CO_COROUTINE
    if is_plainly_async or inspect.iscoroutinefunction(fn):
        return await fn(*args)
    # A limiter per call: threads that wait for nested calls must not use up the threads those need.
    result = await to_thread.run_sync(_in_thread, fn, args, abandon_on_cancel=True, limiter=CapacityLimiter(1))
    return await result if inspect.isawaitable(result) else result


def _in_thread(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    mark = object()
    IN_THREADS.add(mark)
    try:
        return fn(*args)
    finally:
        IN_THREADS.discard(mark)


def checked_outcome(result: Any) -> Outcome:
    """Return the outcome with its value encoded now. Anything that is no outcome becomes a failed attempt."""
    match result:
        case Done(output):
            return Done(Json(encode(output, "Done.output")))
        case Continue(input):
            return Continue(Json(encode(input, "Continue.input")))
        case Retry():
            return Retry(storable(error_info(result.error)), result.after_ms)
        case Failed():
            return Failed(storable(error_info(result.error)))
        case Ok() | Wait():
            outcome: Outcome = result
            return outcome
        case _:
            message = f"the handler must return an outcome: Ok(), Done(…), Continue(…), …; got {result!r:.200}"
            return Retry(ErrorInfo("bad_outcome", message))


def storable(error: ErrorInfo) -> ErrorInfo:
    """Return the error with details that are not JSON as text: an error must never prevent a run from failing."""
    try:
        encode(error.as_json())
    except InvalidValue:
        code, message = text_of(error.code), text_of(error.message)[:LONGEST_MESSAGE]
        return ErrorInfo(code, message, _as_text(error.details), checked_place(error.where))
    return error


def _as_text(details: Any) -> str:
    try:
        return ascii(details)[:LONGEST_MESSAGE]
    except Exception:
        return f"a {type(details).__name__} that cannot be shown"
