"""Scoped rows: reading them, comparing versions, writing them, and turns on contested rows."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, assert_never

from ocean.kernel.store.claims import RowsAnswer, RowsAsk
from ocean.state.effects import ABSENT, RowKey, RowWrite, StoredRow
from ocean.state.records import RunStatus
from ocean.stores.shared import refusals
from ocean.stores.sqlite.creating import holder_of_key
from ocean.stores.sqlite.engine.unit_of_work import Unit


def read_rows(u: Unit, ask: RowsAsk) -> RowsAnswer:
    rows = {key: read_row(u, key) for key in ask.keys}
    by_key: dict[str, str | None] = {}
    for dedupe_key in ask.dedupe_keys:
        holder = holder_of_key(u, ask.clog_id, ask.session_id, dedupe_key)
        by_key[dedupe_key] = holder[0] if holder else None
        if holder:
            key = RowKey("run", ask.clog_id, run_id=holder[0])
            rows[key] = read_row(u, key)
    for tick in ask.ticks:
        for row in u.all("tick_rows", run_id=ask.run_id, clog_id=ask.clog_id, tick=tick):
            key = RowKey("tick", ask.clog_id, run_id=ask.run_id, tick=tick, row_id=row["row_id"])
            rows[key] = StoredRow(row["version"], row["value"])
    return RowsAnswer(rows, by_key, _history(u, ask) if ask.history else [])


def _history(u: Unit, ask: RowsAsk) -> list[tuple[int, dict[str, str]]]:
    newest = u.all("history_ticks", run_id=ask.run_id, clog_id=ask.clog_id, limit=ask.history)
    found = []
    for tick in reversed([row["tick"] for row in newest]):
        rows = u.all("tick_rows", run_id=ask.run_id, clog_id=ask.clog_id, tick=tick)
        found.append((tick, {row["row_id"]: row["value"] for row in rows}))
    return found


def read_row(u: Unit, key: RowKey) -> StoredRow:
    row = u.one(f"get_{key.scope}_row", **_address(key))
    return ABSENT if row is None else StoredRow(row["version"], row["value"])


def have_changed(
    u: Unit, writes: Iterable[RowWrite], guards: Iterable[tuple[RowKey, int]], created_here: Collection[str]
) -> bool:
    """Whether any row has changed that must be as it was read. The runs `created_here` are created by this commit."""
    for write in writes:
        if write.key.scope == "run" and write.key.run_id not in created_here:
            u.run(write.key.run_id)
        if write.apply is None and read_row(u, write.key).version != write.version:
            return True
    return any(read_row(u, key).version != version for key, version in guards)


def write_rows(u: Unit, writes: Sequence[RowWrite], own_run_id: str | None) -> None:
    version = u.next_version() if writes else 0
    for write in writes:
        key = write.key
        if key.scope == "run" and key.run_id != own_run_id and u.run(key.run_id).is_ended:
            raise refusals.row_of_ended_run(key.run_id)
        if key.scope == "session":
            u.ensure_session(key.session_id)
        text = write.text if write.apply is None else write.apply(read_row(u, key).text)
        if text is None:
            u.do(f"clear_{key.scope}_row", **_address(key))
        elif key.scope == "run":
            u.later("put_run_row", key.run_id, **_address(key), value=text, version=version)
        else:
            u.do(f"put_{key.scope}_row", **_address(key), value=text, version=version)


def is_behind(u: Unit, writes: Sequence[RowWrite], run_id: str | None, epoch: int) -> bool:
    """Whether another tick has its turn on a row to be written. A tick that has a turn itself is never behind."""
    if not writes or not u.has_turns() or (run_id is not None and u.one("has_turn", run_id=run_id, epoch=epoch)):
        return False
    return any(_holder(u, write.key) not in (None, run_id) for write in writes)


def take_turn(u: Unit, run_id: str, epoch: int, keys: Iterable[RowKey]) -> bool:
    """Take turns on all rows or none, and release older turns: two ticks must never each hold half of the same rows."""
    u.do("release_turns", run_id=run_id)
    wanted = list(keys)
    if any(_holder(u, key) not in (None, run_id) for key in wanted):
        return False
    for key in wanted:
        u.do("take_turn", row_key=key.text, run_id=run_id, epoch=epoch)
    return True


def _holder(u: Unit, key: RowKey) -> str | None:
    """The run whose tick has its turn on a row, if its lock is still valid."""
    turn = u.one("turn_holder", row_key=key.text)
    run = u.find(turn["run_id"]) if turn is not None else None
    if turn is None or run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != turn["epoch"]:
        return None
    return run.run_id if run.lock_expires_at is not None and run.lock_expires_at > u.now else None


def _address(key: RowKey) -> dict[str, Any]:
    match key.scope:
        case "global":
            return {"clog_id": key.clog_id}
        case "session":
            return {"clog_id": key.clog_id, "session_id": key.session_id}
        case "run":
            return {"clog_id": key.clog_id, "run_id": key.run_id}
        case "tick":
            return {"clog_id": key.clog_id, "run_id": key.run_id, "tick": key.tick, "row_id": key.row_id}
        case _:
            assert_never(key.scope)
