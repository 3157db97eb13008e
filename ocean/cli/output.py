"""Where answers go: text, or JSON. Colour only where it can be seen; nothing stored reaches the terminal raw."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ocean.cli.json_output import line

WIDE = 160
"""Of a table that goes into a file or a pipe, where nobody has a width."""


class Unheard(Exception):
    """Whoever read the output has gone."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise Unheard


def printable(value: object) -> str:
    """Control characters, and what no terminal can show, as their escapes: a stored text must not steer a terminal."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cell(value: object, style: str = "") -> Text:
    return Text(printable(value), style)


class Screen:
    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json
        is_sized = sys.stdout.isatty() or "COLUMNS" in os.environ
        is_plain = bool(os.environ.get("NO_COLOR"))
        self.console = _Console(
            highlight=False,
            markup=False,
            emoji=False,
            color_system=None if is_plain else "auto",
            width=None if is_sized else WIDE,
        )

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    def json(self, value: Any) -> None:
        """One document on one line, at once."""
        try:
            sys.stdout.write(line(value) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            raise Unheard from None

    def show(self, *things: RenderableType) -> None:
        if self.is_terminal:
            self.console.print(*things, sep="\n")
            return
        with self.console.capture() as captured:
            self.console.print(*things, sep="\n")
        # Columns are filled up with spaces, which are of no use in a file.
        text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise Unheard from None

    def say(self, text: object, style: str = "") -> None:
        """Never folded, so that it can be copied."""
        self.console.print(cell(text, style), soft_wrap=True)


def table(*headings: str, folds: Sequence[str] = ()) -> Table:
    """Columns without lines. Those named fold when it gets narrow; the others keep whole words."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold", no_wrap=heading not in folds)
    return made
