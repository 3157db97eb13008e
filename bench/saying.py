"""Progress on stderr; tables on stdout, and into the report if there is one."""

import sys
from collections.abc import Sequence


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def figure(value: float | None) -> str:
    """Three significant digits: noise begins before the fourth."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    return "\n".join([line(lines[0]), line(["-" * width for width in widths]), *(line(each) for each in lines[1:])])
