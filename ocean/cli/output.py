"""Printing: text or JSON. Colour on terminals only; control characters in stored text are escaped."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ocean.cli.json_output import line

FILE_WIDTH = 160
"""The width of a table that is written to a file or a pipe."""


class OutputClosed(Exception):
    """The process that read the output has closed it."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise OutputClosed


def make_console(*, width: int | None = None, is_quiet: bool = False) -> Console:
    """Return a console that prints text as it is, in colour unless NO_COLOR is set, and raises `OutputClosed`."""
    return _Console(
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        width=width,
        quiet=is_quiet,
    )


def discard_output() -> None:
    """Send the rest of standard output nowhere. Otherwise Python raises the same error again when it exits."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(value: object) -> str:
    """Return the text with control and unprintable characters escaped: stored text must not control a terminal."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cell(value: object, style: str = "") -> Text:
    """Return a table cell with printable text."""
    return Text(printable(value), style)


class Screen:
    """Standard output, as text or (`is_json`) as JSON."""

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json
        has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
        self.console = make_console(width=None if has_width else FILE_WIDTH)

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal."""
        return self.console.is_terminal

    def json(self, value: Any) -> None:
        """Write a JSON document on one line and flush it."""
        _write(line(value) + "\n")

    def show(self, *things: RenderableType) -> None:
        """Print tables and texts, one below the other."""
        if self.is_terminal:
            self.console.print(*things, sep="\n")
            return
        with self.console.capture() as captured:
            self.console.print(*things, sep="\n")
        # rich pads columns with spaces, which are of no use in a file.
        _write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def print(self, text: object, style: str = "") -> None:
        """Print a line. It is never wrapped, so that it can be copied."""
        self.console.print(cell(text, style), soft_wrap=True)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def table(*headings: str, folds: Sequence[str] = ()) -> Table:
    """Return a table without lines. Columns in `folds` wrap when the terminal is narrow; others keep whole words."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold", no_wrap=heading not in folds)
    return made
