"""The log of a server: one line for each request and tick, as text or JSON, without what users stored.

A line has ids, names and numbers. Of a failed attempt it has the message and the place; of an exception elsewhere only
the type and where it was raised. What looks like a secret is redacted. Control characters are escaped, so that no text
can imitate a line.
"""

import json
import logging
import re
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, get_args

from ocean.config import BadSettings
from ocean.state.redact import redacted_text
from ocean.state.values import shown
from ocean.tools.credentials import scrubbed_now

LogKind = Literal["text", "json", "off"]
PLAIN = re.compile(r"[!#-<>-\[\]-~]+")
"""A value that needs no quotes: printable, without space, quote, backslash and equals sign."""
MOST_FRAMES = 12


def log_kind(flag: str | None, environ: Mapping[str, str]) -> LogKind:
    """Return the kind of log from the flag or the environment."""
    source, given = ("--log", flag) if flag is not None else ("OCEAN_LOG", environ.get("OCEAN_LOG") or "text")
    if given not in get_args(LogKind):
        raise BadSettings(f"{source} must be text, json or off, got {shown(given)}")
    kind: LogKind = given  # type: ignore[assignment]
    return kind


def log_to(stream: TextIO, kind: LogKind) -> Callable[[], None]:
    """Write the log of this process to the stream. Returns a function that ends it. `off` keeps warnings and errors."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    root, own = logging.getLogger(), logging.getLogger("ocean")
    before = own.level
    root.addHandler(handler)
    own.setLevel(logging.WARNING if kind == "off" else logging.INFO)

    def stop() -> None:
        root.removeHandler(handler)
        own.setLevel(before)

    return stop


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        # ASCII only, so that every control character, including those of Unicode, is escaped.
        return json.dumps(values | _fields(record), ensure_ascii=True, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts = [_at(record), record.levelname.lower(), record.name, _escaped(_message(record))]
        return " ".join([*parts, *(f"{name}={_quoted(value)}" for name, value in _fields(record).items())])


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    message = getattr(record, "ocean_name", None) or record.getMessage()
    # asyncio appends the exception of a task after the first line.
    return _redacted(message.partition("\n")[0] if record.name == "asyncio" else message)


def _redacted(text: str) -> str:
    """Remove what looks like a secret, and the credentials of the tool that is running."""
    return redacted_text(scrubbed_now(text), None)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "ocean_fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
        fields["raised"] = " < ".join(f"{frame.name} {frame.filename}:{frame.lineno}" for frame in reversed(frames))
    return {name: _redacted(value) if isinstance(value, str) else value for name, value in fields.items()}


def _quoted(value: Any) -> str:
    text = str(value)
    return text if PLAIN.fullmatch(text) else json.dumps(text)


def _escaped(text: str) -> str:
    return text if text.isascii() and text.isprintable() else json.dumps(text)[1:-1]
