"""Every error of Ocean, with the code that a caller can match on."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar


def near_name(name: str, names: Iterable[str]) -> str:
    """Return the hint for an unknown name: the nearest known one, or all of them."""
    known = sorted(names)
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"


class OceanError(Exception):
    """The base of all errors. Nothing was written unless the class states otherwise."""

    code: ClassVar[str] = "ocean_error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class InvalidValue(OceanError):
    """A value that cannot be stored as JSON, or an argument out of range. The message names the argument."""

    code = "invalid_value"
    http_status = 400


class RunNotFound(OceanError):
    """There is no run with this id, or the key may not see it. Details: run_id."""

    code = "run_not_found"
    http_status = 404


class UnknownClog(OceanError):
    """No clog with this id is registered; the message names the nearest. Details: clog_id."""

    code = "unknown_clog"
    http_status = 404


class UnknownMethod(OceanError):
    """The clog has no method with this name; the message names the nearest. Details: method."""

    code = "unknown_method"
    http_status = 404


class UnknownTool(OceanError):
    """There is no tool with this name; the message names the nearest."""

    code = "unknown_tool"
    http_status = 404


class UnknownApiKey(OceanError):
    """There has never been a key with this id. Details: key_id."""

    code = "unknown_api_key"
    http_status = 404


class SessionNotFound(OceanError):
    """The key does not allow this session, whether it exists or not. Details: session_id."""

    code = "session_not_found"
    http_status = 404


class KeyIsLimited(OceanError):
    """The key allows some sessions only, and the request concerns all of them."""

    code = "key_is_limited"
    http_status = 403


class NotGeneric(OceanError):
    """The run's clog allows this through its own routes or methods only. Details: clog_id, verb, allows."""

    code = "not_generic"
    http_status = 403


class RunEnded(OceanError):
    """The run is done, failed, or ending: it takes no more input. Details: status."""

    code = "run_ended"
    http_status = 409


class RunBusy(OceanError):
    """`signal(if_idle=True)` found a run that is not idle. Details: status, locked_by, lock_expires_at."""

    code = "run_busy"
    http_status = 409
    retryable = True


class RunExists(OceanError):
    """A run with this id was created from another body."""

    code = "run_exists"
    http_status = 409


class RunNotFailed(OceanError):
    """Only a failed run can be retried as new. Details: run_id, status."""

    code = "run_not_failed"
    http_status = 409


class RunNotIncomplete(OceanError):
    """Only a run that ended without its last tick can get that again. Details: run_id, status."""

    code = "run_not_incomplete"
    http_status = 409


class RunHasNoInput(OceanError):
    """A run that was created without input cannot be retried as new. Details: run_id."""

    code = "run_has_no_input"
    http_status = 409


class SignalIdReused(OceanError):
    """The run has received a signal with this id and another body."""

    code = "signal_id_reused"
    http_status = 409


class DedupeKeyReused(OceanError):
    """The dedupe key is held by a run that was created from another body."""

    code = "dedupe_key_reused"
    http_status = 409


class RequestKeyReused(OceanError):
    """The request key was used for another request."""

    code = "request_key_reused"
    http_status = 409


class WebhookRefused(OceanError):
    """The headers or the signature of a delivery are invalid, or there is no such webhook: which, is not revealed."""

    code = "webhook_refused"
    http_status = 401


class WebhookReplayed(OceanError):
    """The delivery's id was received before: with another body, or by a webhook that refuses replays."""

    code = "webhook_replayed"
    http_status = 409


class UnknownWebhook(OceanError):
    """The clog has no webhook with this name; the message names the nearest. Details: webhook."""

    code = "unknown_webhook"
    http_status = 404


class LeaseLost(OceanError):
    """The lease has expired and was taken back, or its run has ended or was deleted. Stop: nothing was written."""

    code = "lease_lost"
    http_status = 409


class LeaseCompleted(OceanError):
    """The lease was completed before, with another outcome."""

    code = "lease_completed"
    http_status = 409


class RowChanged(OceanError):
    """The row of leased work was changed by another commit. Details: row and row_version as they are now."""

    code = "row_changed"
    http_status = 409


class Conflict(OceanError):
    """A direct call had too many conflicts, or leased work waited too long for another tick's turn to end."""

    code = "conflict"
    http_status = 409
    retryable = True


class BadCursor(OceanError):
    """The cursor is invalid, or belongs to another order."""

    code = "bad_cursor"
    http_status = 400


class StoreBusy(OceanError):
    """The database is busy for too long, or its server is not reachable.

    If the connection was lost during a change and could not be restored, it is unknown whether the change was made:
    then the message states so, and a request key makes it safe to repeat the request.
    """

    code = "store_busy"
    http_status = 503
    retryable = True


class StoreFailed(OceanError):
    """The database failed: the disk is full or failing. Nothing was committed.

    But a commit that failed during its sync may reappear if this process dies before the next commit.
    """

    code = "store_failed"
    http_status = 503
    retryable = True


class BulkStopped(OceanError):
    """A bulk verb stopped at an error that does not concern one run; `.progress` is what it had done by then."""

    code = "bulk_stopped"
    http_status = 503

    def __init__(self, message: str, progress: Any, cause: Exception) -> None:
        super().__init__(message, cause=getattr(cause, "code", type(cause).__name__))
        self.progress = progress
        self.retryable = getattr(cause, "retryable", False)  # type: ignore[misc]


class StoreUnusable(OceanError):
    """The database cannot be opened: wrong URL, newer schema, unsupported SQLite."""

    code = "store_unusable"


class RunFailed(OceanError):
    """Raised by `result` for a run that ended `failed`; `.error` is the run's structured error.

    If an exception has caused it, a note of this one has its place and its traceback.
    """

    code = "run_failed"
    http_status = 409

    def __init__(self, message: str, error: Mapping[str, Any], **details: Any) -> None:
        super().__init__(message, **details)
        self.error = error


class ResultTimeout(OceanError):
    """The run did not end in time. It continues. A note has its last error, if it has one. Details: run_id."""

    code = "result_timeout"
    http_status = 504
    retryable = True


class CallTimeout(OceanError):
    """A direct call took longer than its clog's time limit. Nothing was committed."""

    code = "call_timeout"
    http_status = 504
    retryable = True


class ClogError(OceanError):
    """A clog used a tool wrongly. Inside a tick the attempt fails, as with any exception."""

    code = "clog_error"


class ReadSpent(ClogError):
    """The clog has used its one read of this tick, which did not name these rows."""

    code = "read_spent"


class WriteSpent(ClogError):
    """The clog has used its one write of this tick."""

    code = "write_spent"


class NotRead(ClogError):
    """A row must be read by its exact address before it is written or deleted."""

    code = "not_read"


class ToolNotAllowed(ClogError):
    """The clog uses a tool that it does not list in `tools`. Details: tool."""

    code = "tool_not_allowed"


class ToolDenied(ClogError):
    """This instance denies the tool to every clog. Details: tool, pattern."""

    code = "tool_denied"


class ApprovalNeeded(ClogError):
    """A dangerous tool needs a human's approval of exactly this call. Details: tool."""

    code = "approval_needed"


class ToolFailed(ClogError):
    """A tool failed. A tool may raise it with its own code; any other exception of a tool becomes one.

    The text contains neither a credential's value nor what looks like a secret. Details: tool, and the tool's own.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, code: str = "tool_failed", tool: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]
        self.tool = tool
        own = details if isinstance(details, Mapping) else {} if details is None else {"details": details}
        self.details = {**own, "tool": tool} if tool else dict(own)


class StepNameUsed(ClogError):
    """Two steps of one call have the same name, so their results could not be distinguished."""

    code = "step_name_used"


class CallTooDeep(ClogError):
    """Nested calls of methods are too deep; a method may be calling itself."""

    code = "call_too_deep"


class FetchRefused(ClogError):
    """`fetch` refused the request or its response. Details: reason, url."""

    code = "fetch_refused"


class SignalRefused(ClogError):
    """A signal with `required=True` was sent to a run that has ended or was deleted."""

    code = "signal_refused"


class LockLost(ClogError):
    """The tick no longer holds the lock of its run: nothing of this call can be committed."""

    code = "lock_lost"


class Abort(Exception):
    """Raised by a handler: the run ends `failed` at once, without another attempt."""

    def __init__(self, message: str, *, code: str = "aborted", details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Refuse(Exception):
    """Raised by a method: its rows and events are committed, and the caller gets this error."""

    def __init__(self, message: str, *, code: str = "refused", http_status: int = 409, details: Any = None):
        super().__init__(message)
        self.message = message
        self.code = code
        self.http_status = http_status
        self.details = details


class CallRefused(OceanError):
    """A method raised `Refuse`: this is what the caller gets. The method's rows and events are committed."""

    def __init__(self, message: str, code: str, http_status: int, details: Any) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]
        self.http_status = http_status  # type: ignore[misc]
        self.details = details
