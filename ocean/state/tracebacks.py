"""Where an exception was raised: type, file, line, function, and a traceback of a bounded size. Pure.

Paths are relative, what looks like a secret is hidden, and of a long traceback the frames of the author's code are
kept first. Nothing here is called unless something has failed.
"""

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from traceback import walk_tb
from types import CodeType
from typing import Any

from ocean.state.errors import OceanError
from ocean.state.redact import MOST_SCANNED, redacted_text

MOST_BYTES = 8 * 1024
MOST_EXCEPTIONS = 5
MOST_FRAMES = 400
MOST_NOTES = 2
LONGEST_TEXT = 400
LONGEST_NOTE = 150
LONGEST_SOURCE = 160
LONGEST_NAME = 120

OWN, LIBRARY, MACHINERY = 0, 1, 2
OCEAN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
STDLIB = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
SITES = ("site-packages", "dist-packages")
LOOPS = frozenset(("ocean", "anyio", "sniffio", "uvloop"))
"""Packages between the event loop and a handler."""
CARRIED = "_ocean_where"

Text = Callable[[str], str]


def carry(error: BaseException, where: dict[str, Any] | None) -> None:
    """Make this the place of an exception that stands for another one."""
    if where is not None:
        setattr(error, CARRIED, where)


def place_of(error: BaseException, scrub: Text = str) -> dict[str, Any] | None:
    """Return {type, file, line, function, traceback}; None for an exception that was not raised.

    An error of Ocean that no frame of other code has caused has no place either: its message is enough.
    """
    carried = getattr(error, "__dict__", {}).get(CARRIED)
    if carried is not None:
        return dict(carried)
    raised = first_leaf(error)
    frames = _frames(raised)
    if not frames:
        raised, frames = error, _frames(error)
    if not frames:
        return None
    home = _home(_frames(error))
    best = min(_rank(each.path, home) for each in frames)
    if best == MACHINERY and isinstance(raised, OceanError):
        return None
    frame = [each for each in frames if _rank(each.path, home) == best][-1]
    return {
        "type": type_name(raised),
        "file": _shown_path(frame.path),
        "line": frame.line,
        "function": frame.function[:LONGEST_NAME],
        "traceback": _Traceback(error, home, scrub).text(),
    }


def text_of(error: object) -> str:
    """Return an exception's text without raising, in a form that can be stored."""
    try:
        return _storable(str(error)[:MOST_SCANNED])
    except Exception as failed:
        return f"(its text raised {type(failed).__name__})"


def type_name(error: BaseException) -> str:
    """Return the name of an exception's type, with its module if that is neither the main program nor Ocean's."""
    kind = type(error)
    is_known = kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("ocean.")
    return (kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}")[:LONGEST_NAME]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A line of code that was executing, `times` times in a row."""

    index: int
    path: str
    line: int
    function: str
    module: dict[str, Any]
    times: int

    def text(self, clean: Text) -> str:
        source = clean(linecache.getline(self.path, self.line, self.module).strip())[:LONGEST_SOURCE]
        text = f'  File "{_shown_path(self.path)}", line {self.line}, in {self.function[:LONGEST_NAME]}\n'
        text += f"    {source}\n" if source else ""
        return text + (f"  [the previous line is repeated {self.times - 1} more times]\n" if self.times > 1 else "")


def _frames(error: BaseException) -> list[_Frame]:
    """Return the frames, the innermost last. Of very many, the first ones and the last ones."""
    found: list[tuple[CodeType, int, dict[str, Any], int]] = []
    for frame, line in walk_tb(error.__traceback__):
        code, times = frame.f_code, 1
        if found and found[-1][:2] == (code, line):
            times += found.pop()[3]
        found.append((code, line or 0, frame.f_globals, times))
    frames = [
        _Frame(index, code.co_filename, line, code.co_qualname.rpartition("<locals>.")[2], module, times)
        for index, (code, line, module, times) in enumerate(found)
    ]
    return frames if len(frames) <= MOST_FRAMES else frames[: MOST_FRAMES // 4] + frames[-MOST_FRAMES * 3 // 4 :]


def first_leaf(error: BaseException) -> BaseException:
    """Return the first exception of a group that is no group itself; of any other exception, itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _package(path: str) -> str | None:
    """Return the package of an installed file, None for a file that is not installed."""
    for folder, name in pairwise(path.split(os.sep)):
        if folder in SITES:
            return name.removesuffix(".py")
    return None


def _home(frames: list[_Frame]) -> str | None:
    """Return the author's package if that is installed: the one of the outermost frame that is no machinery."""
    outermost = (each.path for each in frames if _rank(each.path, None) != MACHINERY)
    return _package(next(outermost, ""))


def _rank(path: str, home: str | None) -> int:
    package = _package(path)
    if path.startswith((OCEAN, "<frozen ")) or package in LOOPS or (package is None and path.startswith(STDLIB)):
        return MACHINERY
    return OWN if package is None or package == home else LIBRARY


def _shown_path(path: str) -> str:
    """Return the path relative to where the package is installed or to the working directory; never an absolute one."""
    parts = path.split(os.sep)
    site = next((place for place, name in enumerate(parts) if name in SITES), None)
    if site is not None:
        shown = os.sep.join(parts[site + 1 :])
    else:
        shown = next((path[len(root) :] for root in _roots() if path.startswith(root)), "")
    if not shown:
        shown = os.sep.join(("…", *parts[-2:])) if os.path.isabs(path) else path
    shown = redacted_text(_storable(shown), None)
    return shown if len(shown) <= LONGEST_NAME else f"…{shown[-LONGEST_NAME:]}"


def _roots() -> Iterator[str]:
    yield os.path.dirname(OCEAN.rstrip(os.sep)) + os.sep
    # The working directory may have been deleted.
    with suppress(OSError):
        yield os.getcwd().rstrip(os.sep) + os.sep
    yield from STDLIB
    yield from (folder.rstrip(os.sep) + os.sep for folder in sys.path if os.path.isabs(folder))


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "\\0")


def cut_bytes(text: str, most: int) -> str:
    """Return the text, cut to this many bytes."""
    raw = text.encode()
    return text if len(raw) <= most else raw[: most - 3].decode(errors="ignore") + "…"


class _Traceback:
    """Renders an exception with its causes. Headings and messages are always kept, frames as far as there is room."""

    def __init__(self, error: BaseException, home: str | None, scrub: Text) -> None:
        self._home = home
        self._scrub = scrub
        self._seen: set[int] = set()
        # Each part is a text, or a frame with its place in the order in which frames are kept.
        self._parts: list[str | tuple[tuple[int, int], _Frame]] = []
        self._add(error)

    def text(self) -> str:
        room = MOST_BYTES - 64 - sum(len(part.encode()) for part in self._parts if isinstance(part, str))
        shown: dict[int, str] = {}
        ranked = sorted((part[0], place) for place, part in enumerate(self._parts) if not isinstance(part, str))
        for _, place in ranked:
            part = self._parts[place]
            assert not isinstance(part, str)
            text = part[1].text(self._clean)
            room -= len(text.encode())
            if room < 0:
                break
            shown[place] = text
        return cut_bytes("".join(self._lines(shown)).rstrip("\n"), MOST_BYTES)

    def _lines(self, shown: dict[int, str]) -> Iterator[str]:
        is_left_out = False
        for place, part in enumerate(self._parts):
            if isinstance(part, str) or place in shown:
                if is_left_out:
                    yield "  […]\n"
                is_left_out = False
                yield part if isinstance(part, str) else shown[place]
            else:
                is_left_out = True

    def _clean(self, text: str) -> str:
        return redacted_text(_storable(self._scrub(text[:MOST_SCANNED])), None)

    def _add(self, error: BaseException) -> None:
        self._seen.add(id(error))
        for cause, text in (
            (error.__cause__, "The exception above was the direct cause of the following one:"),
            (None if error.__suppress_context__ else error.__context__, "While it was handled, another one occurred:"),
        ):
            if cause is not None and id(cause) not in self._seen:
                if len(self._seen) < MOST_EXCEPTIONS:
                    self._add(cause)
                    self._parts.append(f"\n{text}\n\n")
                break
        self._add_frames(error)
        message = cut_bytes(self._clean(text_of(error)), LONGEST_TEXT)
        self._parts.append(f"{type_name(error)}{': ' if message else ''}{message}\n")
        for note in list(getattr(error, "__notes__", ()))[:MOST_NOTES]:
            self._parts.append(f"{cut_bytes(self._clean(text_of(note)), LONGEST_NOTE)}\n")
        if isinstance(error, BaseExceptionGroup):
            count = len(error.exceptions)
            for number, each in enumerate(error.exceptions, 1):
                if id(each) in self._seen or len(self._seen) >= MOST_EXCEPTIONS:
                    self._parts.append(f"\n[{count - number + 1} more exceptions of the group]\n")
                    break
                self._parts.append(f"\nException {number} of {count} of the group:\n\n")
                self._add(each)

    def _add_frames(self, error: BaseException) -> None:
        frames = _frames(error)
        ranks = [_rank(frame.path, self._home) for frame in frames]
        # What calls the author's code is of no use.
        first = next((place for place, rank in enumerate(ranks) if rank != MACHINERY), 0)
        if frames:
            self._parts.append("Traceback (most recent call last):\n")
        for place in range(first, len(frames)):
            distance = min(2 * (place - first) + 1, len(frames) - 1 - place)
            self._parts.append(((ranks[place], distance), frames[place]))


def without_traceback(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an error with its place but without the traceback, for where many errors are kept together."""
    if error is None or not isinstance(error.get("where"), dict):
        return error
    return error | {"where": {name: value for name, value in error["where"].items() if name != "traceback"}}


def checked_place(where: Any) -> dict[str, Any] | None:
    """Return a place that was given as JSON, bounded; None if it is not one."""
    match where:
        case {"type": str(kind), "file": str(file), "line": int(line), "function": str(function)}:
            found: dict[str, Any] = {
                "type": kind[:LONGEST_NAME],
                "file": file[-LONGEST_NAME - 1 :],
                "line": line,
                "function": function[:LONGEST_NAME],
            }
            text = where.get("traceback")
            return found | ({"traceback": cut_bytes(redacted_text(text, None), MOST_BYTES)} if _is_text(text) else {})
        case _:
            return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value == _storable(value)
