"""Reads. One statement returns the rows; what they mean is decided here."""

from collections.abc import Collection, Sequence
from typing import Any

from ocean.kernel.store.claims import ClaimAsk, NotClaimable, RowsAnswer, RowsAsk
from ocean.kernel.store.runs import Request
from ocean.state.counters import Take, Taken
from ocean.state.effects import ABSENT, RowKey, StoredRow
from ocean.state.eligibility import FullKey, Surroundings
from ocean.state.records import Agenda, ApiKey, Claim, ClogRecord, Input, KeyInfo, Run, RunInfo, RunOwner, TickInfo
from ocean.stores.postgres.client.payloads import address
from ocean.stores.postgres.client.row_batches import RowBatches
from ocean.stores.postgres.listing import Lists
from ocean.stores.shared.claim_plan import (
    MOST_INPUTS,
    DueCount,
    agenda_of,
    claim_of,
    first_call,
    repeated_call,
    run_after_claim,
    surroundings_of,
)
from ocean.stores.shared.refusals import run_not_found
from ocean.stores.shared.row_rules import holder_from, is_live, kept_answer, preview_takes
from ocean.stores.shared.rows import (
    api_key_from,
    clog_from,
    counter_from,
    input_from,
    run_from,
    run_info_from,
    standing_from,
    tick_from,
)


class Reads(Lists):
    """The store's verbs that only read."""

    row_batches: RowBatches

    async def read_exact_rows(self, keys: Sequence[RowKey]) -> list[StoredRow]:
        found = await self._read("rows", keys=[address(key) for key in keys])
        return [_stored(row) for row in found["rows"] or []]

    async def list_clogs(self) -> list[ClogRecord]:
        return [clog_from(row) for row in await self._read("clogs") or []]

    async def find_run(self, clog_id: str, session_id: str, dedupe_key: str) -> tuple[str, str] | None:
        found, now = await self._read_at("holder", clog_id=clog_id, session_id=session_id, dedupe_key=dedupe_key)
        return _holder(found, now)

    async def get_run(self, run_id: str) -> RunInfo | None:
        found = await self._read("run", run_id=run_id)
        return None if found is None else run_info_from(found)

    async def survey(self, run_id: str, clog_ids: Collection[str]) -> tuple[Run, Surroundings] | None:
        found = await self._read("survey", run_id=run_id)
        return None if found is None else _surveyed(found, clog_ids)

    async def preview_claim(self, ask: ClaimAsk) -> Claim | NotClaimable:
        run_id = ask.run_id or ""
        most_inputs = {clog_id: MOST_INPUTS if clog.takes_all_inputs else 1 for clog_id, clog in ask.clogs.items()}
        found, now = await self._read_at("preview", run_id=run_id, most_inputs=most_inputs)
        if found is None:
            raise run_not_found(run_id)
        run, around = _surveyed(found["survey"], ask.clogs)
        following = run_after_claim(run, around, ask, now)
        if isinstance(following, NotClaimable):
            return following
        inputs = tuple(map(input_from, found["inputs"]))
        call = repeated_call(found["tick"], inputs) if following.tick == run.tick else first_call(following, inputs)
        return claim_of(following, run_info_from(found["shown"], following), call, ask, now)

    async def read_rows(self, ask: RowsAsk) -> RowsAnswer:
        if not (ask.dedupe_keys or ask.ticks or ask.history):
            return RowsAnswer(dict(zip(ask.keys, await self.row_batches.read(ask.keys), strict=True)), {}, [])
        found, now = await self._read_at(
            "rows",
            clog_id=ask.clog_id,
            session_id=ask.session_id,
            run_id=ask.run_id,
            keys=[address(key) for key in ask.keys],
            dedupe_keys=ask.dedupe_keys,
            ticks=ask.ticks,
            history=ask.history,
        )
        rows = {key: _stored(row) for key, row in zip(ask.keys, found["rows"] or [], strict=True)}
        by_key: dict[str, str | None] = {}
        for dedupe_key, (row, value) in zip(ask.dedupe_keys, found["holders"] or [], strict=True):
            holder = _holder(row, now)
            by_key[dedupe_key] = holder[0] if holder else None
            if holder:
                rows[RowKey("run", ask.clog_id, run_id=holder[0])] = _stored(value)
        for tick, row_id, version, value in found["ticks"] or []:
            rows[RowKey("tick", ask.clog_id, run_id=ask.run_id, tick=tick, row_id=row_id)] = StoredRow(version, value)
        history: dict[int, dict[str, str]] = {}
        for tick, row_id, value in found["history"] or []:
            history.setdefault(tick, {})[row_id] = value
        return RowsAnswer(rows, by_key, list(history.items()))

    async def read_step(self, run_id: str, tick: int, name: str) -> str | None:
        result: str | None = await self._read("step", run_id=run_id, tick=tick, name=name)
        return result

    async def look_at_counter(self, takes: Sequence[Take]) -> Taken:
        found, now = await self._read_at("counter", key=takes[0].key)
        return preview_takes(None if found is None else counter_from(found), takes, now)

    async def stored_answer(self, request: Request) -> str | None:
        return kept_answer(await self._read("request", key=request.key), request)

    async def get_key(self, key: str) -> KeyInfo:
        return KeyInfo(**await self._read("key", key=key))

    async def list_keys(self, after: str, limit: int) -> list[KeyInfo]:
        return [KeyInfo(**found) for found in await self._read("keys", after=after, limit=limit) or []]

    async def list_ticks(self, run_id: str, after: int, limit: int) -> list[TickInfo]:
        found = await self._read("ticks", run_id=run_id, after=after, limit=limit)
        if found is None:
            raise run_not_found(run_id)
        return [tick_from(row) for row in found]

    async def list_inputs(self, run_id: str, after: int, limit: int) -> list[Input]:
        found = await self._read("inputs", run_id=run_id, after=after, limit=limit)
        if found is None:
            raise run_not_found(run_id)
        return [input_from(row) for row in found]

    async def due_inputs(self, run_id: str, limit: int) -> list[Input]:
        return [input_from(row) for row in await self._read("due_inputs", run_id=run_id, limit=limit)]

    async def agenda(self, clog_ids: Collection[str]) -> Agenda:
        found, now = await self._read_at("agenda")
        mine, paused = frozenset(clog_ids), found["paused"] or {}
        lanes = [
            DueCount(clog_id in mine and clog_id not in paused, first_due_at, due)
            for clog_id, first_due_at, due in found["lanes"] or []
        ]
        last_ticks = [DueCount(clog_id in mine, first_due_at, due) for clog_id, (first_due_at, due) in paused.items()]
        return agenda_of(lanes, last_ticks, found["owed"], now)

    async def list_api_keys(self, after: str, limit: int) -> list[ApiKey]:
        return [api_key_from(row) for row in await self._read("api_keys", after=after, limit=limit) or []]

    async def has_api_keys(self) -> bool:
        return bool(await self._read("api_keys", after="", limit=1))

    async def find_api_key(self, key_id: str) -> tuple[ApiKey, str] | None:
        found, now = await self._read_at("api_key", key_id=key_id)
        key = None if found is None else api_key_from(found)
        return (key, found["hash"]) if key and is_live(key, now) else None

    async def find_web_session(self, hash: str) -> ApiKey | None:
        found, now = await self._read_at("web_session", hash=hash)
        key = None if found is None else api_key_from(found)
        return key if key and is_live(key, now) else None

    async def standing(self, run_id: str) -> RunOwner | None:
        found = await self._read("standing", run_id=run_id)
        return None if found is None else standing_from(found)

    async def standing_of_lease(self, lease_hash: str) -> RunOwner | None:
        found = await self._read("standing_of_lease", lease_hash=lease_hash)
        return None if found is None else standing_from(found)


def _surveyed(found: Any, clog_ids: Collection[str]) -> tuple[Run, Surroundings]:
    run = run_from(found["run"])
    clog = None if found["clog"] is None else clog_from(found["clog"])
    full_key = None if found["full_key"] is None else FullKey(**found["full_key"])
    return run, surroundings_of(run, clog, full_key, clog_ids)


def _holder(found: Any, now: int) -> tuple[str, str] | None:
    run = run_from(found["run"]) if found and found["run"] else None
    return holder_from(found, run, now)


def _stored(row: Any) -> StoredRow:
    return ABSENT if row is None else StoredRow(*row)
