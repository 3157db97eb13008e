"""Calling a clog's code: plain functions in a thread, and every way to fail turned into an outcome."""

import inspect
import math
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CapacityLimiter, get_cancelled_exc_class, to_thread

from ocean.state.errors import Abort, InvalidValue, LockLost, StoreBusy, StoreFailed
from ocean.state.outcomes import Continue, Done, ErrorInfo, Failed, Ok, Outcome, Retry, Wait, error_info
from ocean.state.values import Json, encode

if TYPE_CHECKING:
    from ocean.kernel.tick import Tick


async def call_handler(handler: Callable[["Tick"], Any], tick: "Tick") -> Outcome:
    """The handler's outcome; a handler that raises, or answers something else, has failed this attempt.

    But not one that the database has failed: that is nobody's attempt, as little as if the commit had met it.
    """
    try:
        return checked_outcome(await invoke(handler, tick))
    except (LockLost, StoreBusy, StoreFailed):
        raise
    except get_cancelled_exc_class():
        if anyio.current_effective_deadline() == -math.inf:
            raise
        # Nobody cancelled this call: something that it waited for was.
        return Retry(ErrorInfo("cancelled_inside", "the handler waited for something that was cancelled"))
    except Abort as error:
        return Failed(_storable(ErrorInfo(error.code, str(error) or "aborted", error.details)))
    except Exception as error:
        return Retry(_storable(error_info(error)))


async def invoke(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a clog's function: a plain one in a thread of its own, so that it may block and may call others."""
    # Most are async, and say so themselves: the library would look behind partials and methods first, at every tick.
    is_plainly_async = isinstance(fn, FunctionType) and fn.__code__.co_flags & inspect.CO_COROUTINE
    if is_plainly_async or inspect.iscoroutinefunction(fn):
        return await fn(*args)
    # A limiter per call: threads that wait for nested ones must not use up the threads those need.
    answer = await to_thread.run_sync(lambda: fn(*args), abandon_on_cancel=True, limiter=CapacityLimiter(1))
    return await answer if inspect.isawaitable(answer) else answer


def checked_outcome(answer: Any) -> Outcome:
    """An outcome that can be stored, with its value as it is now; what is none at all counts as a failed call."""
    match answer:
        case Done(output):
            return Done(Json(encode(output, "Done.output")))
        case Continue(input):
            return Continue(Json(encode(input, "Continue.input")))
        case Retry():
            return Retry(_storable(error_info(answer.error)), answer.after_ms)
        case Failed():
            return Failed(_storable(error_info(answer.error)))
        case Ok() | Wait():
            pass
        case _:
            message = f"the handler answered {answer!r:.200}, which is no outcome; return Ok(), Done(…), Continue(…), …"
            return Retry(ErrorInfo("bad_outcome", message))
    outcome: Outcome = answer
    return outcome


def _storable(error: ErrorInfo) -> ErrorInfo:
    """An error must never be what keeps a run from failing: details that are not JSON become text."""
    try:
        encode(error.as_json())
    except InvalidValue:
        clean = error.message.encode("utf-8", "replace").decode().replace("\x00", "\\0")[:4000]
        return ErrorInfo(error.code, clean, ascii(error.details)[:4000])
    return error
