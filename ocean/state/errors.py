"""Every refusal Ocean can give, with the code a caller can match on and what to do about it."""

from collections.abc import Mapping
from typing import Any, ClassVar


class OceanError(Exception):
    """A refusal. Nothing was written unless the class says otherwise."""

    code: ClassVar[str] = "ocean_error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details


class InvalidValue(OceanError):
    """A value that cannot be stored as JSON, or an argument out of range. The message names the place."""

    code = "invalid_value"
    http_status = 400


class RunNotFound(OceanError):
    """There is no run of this id, or not for this key. Details: run_id."""

    code = "run_not_found"
    http_status = 404


class UnknownClog(OceanError):
    """No clog of this id is registered here; the message names the nearest. Details: clog_id."""

    code = "unknown_clog"
    http_status = 404


class UnknownMethod(OceanError):
    """The clog has no method of this name; the message names the nearest. Details: method."""

    code = "unknown_method"
    http_status = 404


class UnknownTool(OceanError):
    """There is no tool of this name; the message names the nearest."""

    code = "unknown_tool"
    http_status = 404


class UnknownApiKey(OceanError):
    """There has never been a key of this id. Details: key_id."""

    code = "unknown_api_key"
    http_status = 404


class SessionNotFound(OceanError):
    """A session that the key is not for, whether it exists or not."""

    code = "session_not_found"
    http_status = 404


class KeyIsLimited(OceanError):
    """The key is for some sessions, and this concerns all of them."""

    code = "key_is_limited"
    http_status = 403


class NotGeneric(OceanError):
    """The run's clog has routes or methods of its own for this. Details: clog_id, verb, allows."""

    code = "not_generic"
    http_status = 403


class RunEnded(OceanError):
    """The run is done, failed, or on its way there: it takes no more input."""

    code = "run_ended"
    http_status = 409


class RunBusy(OceanError):
    """`signal(if_idle=True)` met a run that is not idle. Details: status, locked_by, lock_expires_at."""

    code = "run_busy"
    http_status = 409
    retryable = True


class RunExists(OceanError):
    """A run of this id was created with something else."""

    code = "run_exists"
    http_status = 409


class RunNotFailed(OceanError):
    """Only a failed run is retried as new."""

    code = "run_not_failed"
    http_status = 409


class RunHasNoInput(OceanError):
    """A run that was created without input cannot be retried as new."""

    code = "run_has_no_input"
    http_status = 409


class SignalIdReused(OceanError):
    """The run has had a signal of this id with another body."""

    code = "signal_id_reused"
    http_status = 409


class DedupeKeyReused(OceanError):
    """A run with this dedupe key was created with something else."""

    code = "dedupe_key_reused"
    http_status = 409


class RequestKeyReused(OceanError):
    """Another request was made under this request key."""

    code = "request_key_reused"
    http_status = 409


class WebhookRefused(OceanError):
    """A delivery whose headers or signature do not hold. Whether there is such a webhook is not said."""

    code = "webhook_refused"
    http_status = 401


class WebhookReplayed(OceanError):
    """The delivery's id has come before: with another body, or to a webhook that refuses replays."""

    code = "webhook_replayed"
    http_status = 409


class UnknownWebhook(OceanError):
    """The clog has no webhook of this name; the message names the nearest. Details: webhook."""

    code = "unknown_webhook"
    http_status = 404


class LeaseLost(OceanError):
    """The lease has lapsed and was taken back, or its run has ended or is gone. Stop: nothing was written."""

    code = "lease_lost"
    http_status = 409


class LeaseCompleted(OceanError):
    """The lease was completed before, with something else."""

    code = "lease_completed"
    http_status = 409


class RowChanged(OceanError):
    """Leased work would write a row that others have changed. Details: the row and its row_version as they are now."""

    code = "row_changed"
    http_status = 409


class Conflict(OceanError):
    """A direct call kept losing its rows to other writers, or leased work waited too long for another's turn to end."""

    code = "conflict"
    http_status = 409
    retryable = True


class BadCursor(OceanError):
    """The cursor is none of ours, or is good for another order only."""

    code = "bad_cursor"
    http_status = 400


class StoreBusy(OceanError):
    """Others kept the database busy for too long, or its server is away.

    If it went away in the middle of a change and did not come back, nobody knows whether that was made: then the
    message says so, and a request key makes it safe to ask again.
    """

    code = "store_busy"
    http_status = 503
    retryable = True


class StoreFailed(OceanError):
    """The database could not do its work: a disk that is full, or failing. Nothing of it is committed here.

    But a commit that failed while it was being synced may be found again if this process dies before the next one.
    """

    code = "store_failed"
    http_status = 503
    retryable = True


class BulkStopped(OceanError):
    """A bulk verb met an error that is not one run's; `.progress` says how far it is. What is done stays done."""

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
    """Raised by `result` for a run that ended `failed`; `.error` is the run's structured error."""

    code = "run_failed"
    http_status = 409

    def __init__(self, message: str, error: Mapping[str, Any], **details: Any) -> None:
        super().__init__(message, **details)
        self.error = error


class ResultTimeout(OceanError):
    """The run had not ended in time. It goes on."""

    code = "result_timeout"
    http_status = 504
    retryable = True


class CallTimeout(OceanError):
    """A direct call took longer than its clog's time limit. Nothing of it is committed."""

    code = "call_timeout"
    http_status = 504
    retryable = True


class ClogError(OceanError):
    """A clog broke the tool contract. Inside a tick it makes the call fail like any exception."""

    code = "clog_error"


class ReadSpent(ClogError):
    """A clog's one read of this tick is used up, and the rows asked for were not part of it."""

    code = "read_spent"


class WriteSpent(ClogError):
    """A clog's one write of this tick is used up."""

    code = "write_spent"


class NotRead(ClogError):
    """Only a row that was read exactly may be written or deleted."""

    code = "not_read"


class ToolNotAllowed(ClogError):
    """The clog uses a tool that it does not list in `tools`."""

    code = "tool_not_allowed"


class ToolDenied(ClogError):
    """Whoever runs this instance denies the tool, to every clog. Details: tool, pattern."""

    code = "tool_denied"


class ApprovalNeeded(ClogError):
    """A dangerous tool is called only with a human's approval of this very call. Details: tool."""

    code = "approval_needed"


class ToolFailed(ClogError):
    """A tool did not do it. A tool raises it with a code of its own; any other exception of a tool becomes one.

    The text has neither a credential's value nor what looks like a secret. Details: tool, and what the tool says.
    """

    code = "tool_failed"

    def __init__(self, message: str, *, code: str = "tool_failed", tool: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]
        self.tool = tool
        said = details if isinstance(details, Mapping) else {} if details is None else {"details": details}
        self.details = {**said, "tool": tool} if tool else dict(said)


class StepNameUsed(ClogError):
    """Two steps of one call have the same name, so their results could not be told apart."""

    code = "step_name_used"


class CallTooDeep(ClogError):
    """Methods call methods too deep: one that calls itself, perhaps."""

    code = "call_too_deep"


class FetchRefused(ClogError):
    """`fetch` did not go out, or came back with more than it may."""

    code = "fetch_refused"


class SignalRefused(ClogError):
    """A signal sent with `required=True` found its run ended or gone."""

    code = "signal_refused"


class LockLost(ClogError):
    """The tick no longer holds its run: nothing this call does can be committed."""

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
    """What the caller of `call_clog` sees of a `Refuse`. The method's rows and events are committed."""

    def __init__(self, message: str, code: str, http_status: int, details: Any) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]
        self.http_status = http_status  # type: ignore[misc]
        self.details = details
