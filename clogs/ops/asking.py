"""What a GET of a table asks for: filters, order, columns and page, read strictly. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from clogs.ops.columns import Table
from clogs.ops.refusals import NO_COLUMN, wrong
from ocean import Refuse

MOST_ROWS = 1_000
OPERATORS = ("eq", "in", "is", "not")


@dataclass(slots=True)
class Asked:
    filters: dict[str, Any] = field(default_factory=dict)
    ids: list[str] | None = None
    order: str = ""
    is_descending: bool = True
    select: tuple[str, ...] = ()
    limit: int = 100
    cursor: str | None = None


def asked(table: Table, pairs: Iterable[tuple[str, str]]) -> Asked:
    """`status=eq.queued&order=created_at.desc&select=id,status&limit=10`; a plain value means `eq.`."""
    first = next(iter(table.orders))
    made = Asked(order=first, is_descending=first.endswith("_at"))
    seen: set[str] = set()
    for name, text in pairs:
        if name in seen:
            raise wrong(f"{name} is asked twice; use {name}=in.(a,b) for several values")
        seen.add(name)
        match name:
            case "order":
                made.order, made.is_descending = _order(table, text)
            case "select":
                made.select = _select(table.columns, text)
            case "limit":
                made.limit = _limit(text)
            case "cursor":
                made.cursor = text
            case "id":
                made.ids = _values(name, text)
            case _:
                _filter(made, table, name, text)
    return made


def _filter(made: Asked, table: Table, name: str, text: str) -> None:
    if name not in table.filters and not (name == "status" and "status" in table.columns):
        known = ", ".join(["id", *table.filters])
        raise _no_column(f"{table.name} cannot be filtered by {name!r}; filter by {known}", name)
    if name.endswith("_at"):
        if text not in ("is.null", "not.is.null"):
            raise wrong(f"{name} is asked as is.null or not.is.null")
        made.filters[name] = text == "not.is.null"
    else:
        made.filters[name] = _values(name, text)


def _values(name: str, text: str) -> list[str]:
    operator, dot, value = text.partition(".")
    if not dot or operator not in OPERATORS:
        return [text]
    if operator == "eq":
        return [value]
    if operator == "in" and value.startswith("(") and value.endswith(")"):
        return value[1:-1].split(",")
    raise wrong(f"{name}={text} is not understood: use eq.VALUE or in.(A,B)")


def _order(table: Table, text: str) -> tuple[str, bool]:
    column, _, direction = text.partition(".")
    if column not in table.orders:
        raise _no_column(f"{table.name} cannot be ordered by {column!r}; order by {', '.join(table.orders)}", column)
    if direction not in ("", "asc", "desc"):
        raise wrong(f"order={text} is not understood: use {column}.asc or {column}.desc")
    return column, direction == "desc"


def _select(columns: Collection[str], text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in columns:
            raise _no_column(f"there is no column {name!r}; there are {', '.join(columns)}", name)
    return names


def _limit(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 4 or not 1 <= int(text) <= MOST_ROWS:
        raise wrong(f"limit is from 1 to {MOST_ROWS}, got {text!r}")
    return int(text)


def _no_column(message: str, name: str) -> Refuse:
    return Refuse(message, code=NO_COLUMN, http_status=400, details={"column": name})
