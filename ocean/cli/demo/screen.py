"""The output of the demo: short lines that wrap in a narrow terminal."""

from rich.table import Table
from rich.text import Text

from ocean import Event
from ocean.cli.demo.checks import Check
from ocean.cli.demo.clog import DELIVERED, SPOKE
from ocean.cli.output import make_console


class DemoScreen:
    """Prints the parts of the demo; nothing if `is_silent`."""

    def __init__(self, is_silent: bool = False) -> None:
        self._console = make_console(is_quiet=is_silent)

    def title(self, text: str) -> None:
        """Print the first line."""
        self._console.print(Text(text, "bold"))

    def part(self, number: int, text: str) -> None:
        """Print the heading of a part."""
        self._console.print()
        self._row(Text(f"{number}", "bold cyan"), Text(text, "bold"))

    def note(self, text: str) -> None:
        """Print an explanation below a heading."""
        self._row(Text(), Text(text))

    def legend(self) -> None:
        """Print what the marks of events mean."""
        self._row(Text(), Text("~ streamed before the commit   + committed   ! called again", "dim"))

    def event(self, name: str, event: Event) -> None:
        """Print an event of a run, if it is one that the demo shows."""
        match event.type:
            case t if t == SPOKE:
                self._event(name, event, "~", "dim", f'"{event.payload["line"]}"')
            case t if t == DELIVERED:
                kilos = event.payload["kilos"]
                self._event(name, event, "+", "green", f"parcel {event.payload['parcel']} delivered, {kilos} kg so far")
            case "tick.restarted":
                why = f"called again (call {event.call}): {event.payload['because']} of {event.payload['previous']}"
                self._event(name, event, "!", "yellow", why)
            case "run.done":
                self._event(name, event, "+", "bold green", "done")

    def check(self, check: Check) -> None:
        """Print a check and its faults."""
        is_good = not check.faults
        self._row(Text("ok" if is_good else "NO", "green" if is_good else "bold red"), Text(check.promise))
        for fault in check.faults:
            self.note(fault)

    def verdict(self, is_good: bool, text: str) -> None:
        """Print the result of all checks."""
        self._console.print()
        self._console.print(Text(text, "bold green" if is_good else "bold red"))

    def path(self, text: str) -> None:
        """Print a line without wrapping it, so that it can be copied."""
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
