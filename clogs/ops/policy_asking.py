"""GET of `ops_policy`, which is no run: few rows, sorted out here. Pure."""

from collections.abc import Iterable

from clogs.ops.asking import Asked, asked
from clogs.ops.columns import POLICY_COLUMNS, POLICY_TABLE, Table
from clogs.ops.records import POLICY, Row

TABLE = Table(POLICY_TABLE, POLICY, POLICY_COLUMNS, {"key": "key"}, {"key": None, "updated_at": None})


def policy_asked(rows: list[Row], pairs: Iterable[tuple[str, str]]) -> list[Row]:
    ask: Asked = asked(TABLE, pairs)
    wanted = ask.filters.get("key")
    found = [row for row in rows if wanted is None or row["key"] in wanted]
    found.sort(key=lambda row: str(row[ask.order]), reverse=ask.is_descending)
    names = ask.select or POLICY_COLUMNS
    return [{name: row[name] for name in names} for row in found[: ask.limit]]
