"""Print progress to stderr, and format the tables that a report consists of."""

import sys
from collections.abc import Sequence


def progress(text: str) -> None:
    """Print a line of progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def format_number(value: float | None) -> str:
    """Format a number with three significant digits; a fourth would be noise."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a plain-text table: the first column aligned left, the others right."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    return "\n".join([line(lines[0]), line(["-" * width for width in widths]), *(line(each) for each in lines[1:])])
