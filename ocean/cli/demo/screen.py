"""What the demo looks like: short lines that fold in a narrow terminal; colour only where it can be seen."""

import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ocean import Event
from ocean.cli.demo.checks import Check
from ocean.cli.demo.clog import DELIVERED, SAID


class Unheard(Exception):
    """Whoever read the demo's output has gone."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise Unheard


class Screen:
    def __init__(self, is_silent: bool = False) -> None:
        is_plain = bool(os.environ.get("NO_COLOR"))
        self._console = _Console(highlight=False, color_system=None if is_plain else "auto", quiet=is_silent)

    def title(self, text: str) -> None:
        self._console.print(Text(text, "bold"))

    def scene(self, number: int, text: str) -> None:
        self._console.print()
        self._row(Text(f"{number}", "bold cyan"), Text(text, "bold"))

    def note(self, text: str) -> None:
        self._row(Text(), Text(text))

    def legend(self) -> None:
        self._row(Text(), Text("~ streamed at once   + committed   ! called again", "dim"))

    def event(self, name: str, event: Event) -> None:
        match event.type:
            case t if t == SAID:
                self._event(name, event, "~", "dim", f'"{event.payload["line"]}"')
            case t if t == DELIVERED:
                kilos = event.payload["kilos"]
                self._event(name, event, "+", "green", f"parcel {event.payload['parcel']} delivered, {kilos} kg so far")
            case "tick.restarted":
                why = f"call {event.call}: {event.payload['because']} of {event.payload['previous']}"
                self._event(name, event, "!", "yellow", why)
            case "run.done":
                self._event(name, event, "+", "bold green", "done")

    def check(self, check: Check) -> None:
        is_good = not check.faults
        self._row(Text("ok" if is_good else "NO", "green" if is_good else "bold red"), Text(check.promise))
        for fault in check.faults:
            self.note(fault)

    def verdict(self, is_good: bool, text: str) -> None:
        self._console.print()
        self._console.print(Text(text, "bold green" if is_good else "bold red"))

    def path(self, text: str) -> None:
        """Never folded, so that it can be copied."""
        self._console.print(Text(text), soft_wrap=True)

    def _event(self, name: str, event: Event, mark: str, style: str, text: str) -> None:
        line = Table.grid(padding=(0, 1, 0, 0))
        for width in (2, 1, 7, 7):
            line.add_column(width=width, no_wrap=True)
        line.add_column(overflow="fold")
        line.add_row("", Text(mark, style), name, Text(f"tick {event.tick}", "dim"), Text(text, style))
        self._console.print(line)

    def _row(self, head: Text, text: Text) -> None:
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_column(width=2)
        line.add_column(overflow="fold")
        line.add_row(head, text)
        self._console.print(line)
