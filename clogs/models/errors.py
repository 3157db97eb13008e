"""`ModelError`, the outcome of a tick that it causes, and how an endpoint's refusal becomes one."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ocean import ErrorInfo, Failed, Retry

PASSING = frozenset({408, 409, 425, 429})
SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
MOST_AFTER_MS = 3_600_000


class ModelError(Exception):
    """A model gave no answer. `is_passing`: the same request may succeed later, not before `after_ms` have passed."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        is_passing: bool = False,
        after_ms: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_passing = is_passing
        self.after_ms = after_ms
        self.details = details

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.details)

    @property
    def outcome(self) -> Retry | Failed:
        """Return `Retry` for a passing error, after the endpoint's or the run's delay; otherwise `Failed`."""
        return Retry(self.info, after_ms=self.after_ms) if self.is_passing else Failed(self.info)


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """Return the error for an HTTP response other than 200. The names of `headers` are in lower case."""
    message, own_code = _message_and_code(body)
    details = {"status": status} | ({"endpoint_code": own_code} if own_code else {})
    suffix = f": {message}" if message else ""
    if status == 429 and own_code in SPENT:
        return ModelError("quota_spent", f"the endpoint's quota is used up{suffix}", details=details)
    if status in PASSING or status >= 500:
        code = "rate_limited" if status == 429 else "unavailable"
        text = f"the endpoint responded with {status}{suffix}"
        return ModelError(code, text, is_passing=True, after_ms=after_ms(headers), details=details)
    if status in (401, 403):
        return ModelError("not_authorized", f"the endpoint rejected the key ({status}){suffix}", details=details)
    return ModelError("refused", f"the endpoint refused the request ({status}){suffix}", details=details)


def after_ms(headers: Mapping[str, str]) -> int | None:
    """Return the delay that the endpoint asks for, at most an hour; a date is relative to the response's `Date`."""
    if (exact := _number(headers.get("retry-after-ms"))) is not None:
        return _bounded(exact)
    given = headers.get("retry-after", "").strip()
    if (seconds := _number(given)) is not None:
        return _bounded(seconds * 1000)
    until, since = _date(given), _date(headers.get("date", ""))
    return None if until is None or since is None else _bounded((until - since).total_seconds() * 1000)


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()) else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return None if date.tzinfo is None else date


def _bounded(ms: float) -> int:
    return max(0, min(round(ms), MOST_AFTER_MS))


def _message_and_code(body: bytes) -> tuple[str, str]:
    """Return the message and the code of an error body; for a body in another form, its text."""
    text = body.decode("utf-8", errors="replace")
    try:
        error: Any = json.loads(text)
    except ValueError:
        return _shown(text), ""
    error = error.get("error", error) if isinstance(error, dict) else error
    if not isinstance(error, dict):
        return _shown(str(error)), ""
    return _shown(str(error.get("message") or "")), _shown(str(error.get("code") or error.get("type") or ""))


def _shown(text: str) -> str:
    return re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()
