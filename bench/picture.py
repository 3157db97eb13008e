"""Make the picture and the tables of docs/performance.md from the published figures in `results.json`.

    python -m bench.picture

A figure is the ratio of Ocean to a peer: of rates (above 1 is to Ocean's advantage) or of times (below 1 is). The
picture shows both as "times as fast", so that longer bars are always better.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
PICTURE = ROOT / "docs" / "images" / "performance.svg"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- made by python -m bench.picture -->\n\n", "<!-- end -->\n"

PEERS = {
    "sqlite": ("DBOS", "huey", "LangGraph"),
    "postgres": ("DBOS", "pgqueuer", "absurd", "procrastinate"),
}
"""The columns of the tables. Other names in the results are variants of one of these and are only in the text."""
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
COLOURS = {
    "DBOS": "#3d6fb4",
    "huey": "#c98a1b",
    "LangGraph": "#2a8f83",
    "pgqueuer": "#8657ad",
    "absurd": "#b9552f",
    "procrastinate": "#66788a",
}

Ratio = float | list[float] | str
"""One median, the range of several, or an upper bound like `<0.01`."""

WIDTH, MARGIN, NAMES = 960, 24, 92
PANEL = (WIDTH - 3 * MARGIN) / 2
TOP, BAR, HEADING, GAP = 112, 19, 24, 10
LEAST, MOST = 0.6, 500.0
"""Ends of the logarithmic axis."""
AXIS = (1, 10, 100)


@dataclass(frozen=True)
class Figure:
    """One row of a table, and one group of bars."""

    bench: str
    title: str
    kind: str
    rounds: int
    ratios: dict[str, dict[str, Ratio]]


def figures() -> list[Figure]:
    """Read the published figures."""
    return [
        Figure(
            each["bench"], each["title"], each["kind"], each["rounds"], {store: each.get(store, {}) for store in PEERS}
        )
        for each in json.loads(RESULTS.read_text())["figures"]
    ]


def times_as_fast(figure: Figure, ratio: Ratio) -> float:
    """Return how many times as fast Ocean is, for rates and for times; the middle of a range, the bound of a bound."""
    if isinstance(ratio, list):
        middle = sum(ratio) / len(ratio)
    else:
        middle = float(ratio.removeprefix("<")) if isinstance(ratio, str) else ratio
    return 1 / middle if figure.kind == "time" else middle


def page() -> str:
    """Return docs/performance.md with its tables as the results have them."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "".join(f"**{TITLES[store]}**\n\n{_table(store)}\n" for store in PEERS)
    return before + BEGIN + tables + END + after


def _table(store: str) -> str:
    peers = PEERS[store]
    heads = f"| Ocean compared with | {' | '.join(peers)} | rounds | command |"
    lines = [heads, f"|---|{'---:|' * (len(peers) + 1)}---|"]
    for figure in figures():
        ratios = figure.ratios[store]
        if any(peer in ratios for peer in peers):
            cells = (_cell(figure, ratios[peer]) if peer in ratios else "" for peer in peers)
            lines.append(f"| {figure.title} | {' | '.join(cells)} | {figure.rounds} | `{figure.bench}` |")
    return "\n".join(lines) + "\n"


def _cell(figure: Figure, ratio: Ratio) -> str:
    match ratio:
        case list():
            shown = "–".join(f"{each:g}" for each in ratio)
        case str():
            shown = ratio.replace("<", "&lt; ")
        case _:
            shown = f"{ratio:g}"
    return f"**{shown} ×**" if times_as_fast(figure, ratio) < 1 else f"{shown} ×"


def picture() -> str:
    """Return the SVG: a panel for each database, a group of bars for each figure."""
    groups = figures()
    bottom = TOP + sum(_group_height(each) for each in groups)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 64:g}" font-family="system-ui, '
        f'-apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif" role="img" aria-labelledby="title">',
        '<title id="title">How many times as fast as its peers Ocean is, on SQLite and on PostgreSQL</title>',
        f'<rect width="{WIDTH}" height="{bottom + 64:g}" rx="10" fill="#fbfcfd" stroke="#d5dce3"/>',
        _text(MARGIN, 36, "How many times as fast as its peers Ocean is", 19, "#16212c", weight=600),
        _text(MARGIN, 58, "Logarithmic scale; the line marks equal speed. Bars to its left: Ocean is slower.", 13),
    ]
    for number, store in enumerate(PEERS):
        parts += _panel(store, MARGIN + number * (PANEL + MARGIN), groups, bottom)
    measured = json.loads(RESULTS.read_text())
    parts.append(_text(MARGIN, bottom + 46, f"Medians, {measured['measured_on']}; {measured['machine']}.", 12))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(store: str, left: float, groups: list[Figure], bottom: float) -> Iterator[str]:
    yield _text(left, TOP - 18, TITLES[store], 15, "#16212c", weight=600)
    y: float = TOP
    for figure in groups:
        yield from _lines(left, y + HEADING, y + _group_height(figure) - GAP)
        yield from _bars(store, left, y, figure)
        y += _group_height(figure)
    for value in AXIS:
        yield _text(_x(left, value), bottom + 12, f"{value} ×", 12, anchor="middle")


def _lines(left: float, top: float, bottom: float) -> Iterator[str]:
    """Draw the lines of the axis behind a group of bars, not through its heading."""
    for value in AXIS:
        x = _x(left, value)
        strength = ' stroke="#7b8894" stroke-width="1.4"' if value == 1 else ' stroke="#dde3e9"'
        yield f'<line x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"{strength}/>'


def _bars(store: str, left: float, y: float, figure: Figure) -> Iterator[str]:
    ratios = figure.ratios[store]
    yield _text(left, y + 15, _heading(figure), 12.5, "#16212c")
    y += HEADING
    for peer in PEERS[store]:
        if peer not in ratios:
            continue
        speed = times_as_fast(figure, ratios[peer])
        start, end = sorted((_x(left, 1), _x(left, min(speed, MOST))))
        yield _text(left + NAMES - 10, y + 13, peer, 12, anchor="end")
        yield (
            f'<rect x="{start:.1f}" y="{y + 2:g}" width="{max(end - start, 1.5):.1f}" height="{BAR - 5}" rx="2.5" '
            f'fill="{COLOURS[peer]}"/>'
        )
        label = f"{speed:.0f} ×" if speed >= 10 else f"{speed:.2g} ×"
        label = f"&gt; {label}" if isinstance(ratios[peer], str) else label
        colour = "#a3271c" if speed < 1 else "#16212c"
        yield _text(max(end, _x(left, 1)) + 6, y + 13, label, 12, colour, halo=True)
        y += BAR


def _heading(figure: Figure) -> str:
    text = figure.title[0].upper() + figure.title[1:]
    return f"{text} (inverse)" if figure.kind == "time" else text


def _group_height(figure: Figure) -> float:
    bars = max(sum(peer in figure.ratios[store] for peer in PEERS[store]) for store in PEERS)
    return HEADING + bars * BAR + GAP


def _x(left: float, value: float) -> float:
    """Return the place of a ratio on the axis of a panel."""
    share = (log10(value) - log10(LEAST)) / (log10(MOST) - log10(LEAST))
    return left + NAMES + share * (PANEL - NAMES - 44)


def _text(x: float, y: float, text: str, size: float, colour: str = "#52606d", **style: Any) -> str:
    extra = f' text-anchor="{style["anchor"]}"' if "anchor" in style else ""
    extra += f' font-weight="{style["weight"]}"' if "weight" in style else ""
    extra += ' paint-order="stroke" stroke="#fbfcfd" stroke-width="3"' if style.get("halo") else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{extra}>{text}</text>'


def main() -> None:
    PICTURE.write_text(picture())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
