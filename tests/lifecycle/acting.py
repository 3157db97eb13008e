"""A clog whose calls a test scripts, and a world whose invariants are checked at the end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ocean import UNSET, Clog, Event, Ok, Outcome, RunInfo, Tick
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk
from ocean.state.records import Claim
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World, world
from tests.invariants import check
from tests.postgres.tables import postgres_tables

Act = Outcome | Callable[[Tick], Awaitable[Outcome]]

LOCK_MS = 30_000


@dataclass(frozen=True, slots=True)
class Seen:
    """The arguments of one call of the handler."""

    number: int
    call: int
    attempt: int
    reason: str
    inputs: tuple[Any, ...]
    timer: str | None
    signal_id: str | None


class Script(Clog):
    """A clog whose n-th call performs the n-th act, or the last one; `seen` and `ends` record the calls' arguments."""

    def __init__(self, *acts: Act, clog_id: str = "c", ends: tuple[Act, ...] | None = None, **options: Any) -> None:
        super().__init__(clog_id, **options)
        self.seen: list[Seen] = []
        self.ends: list[Seen] = []
        acts = acts or (Ok(),)

        async def advance(tick: Tick) -> Outcome:
            self.seen.append(_seen(tick))
            return await _perform(acts[min(len(self.seen), len(acts)) - 1], tick)

        self.on_advance(advance)
        if ends is not None:

            async def end(tick: Tick) -> Outcome:
                self.ends.append(_seen(tick))
                return await _perform(ends[min(len(self.ends), len(ends)) - 1], tick)

            self.on_end(end)

    @property
    def bodies(self) -> list[Any]:
        """The inputs of all calls, in one list."""
        return [body for seen in self.seen for body in seen.inputs]


def _seen(tick: Tick) -> Seen:
    bodies = tuple(each.body for each in tick.inputs)
    return Seen(tick.number, tick.call_number, tick.attempt, tick.reason, bodies, tick.timer, tick.signal_id)


async def _perform(act: Act, tick: Tick) -> Outcome:
    return await act(tick) if callable(act) else act


@asynccontextmanager
async def stage(*clogs: Clog, url: str | None = None) -> AsyncIterator[World]:
    async with world(clogs=clogs, url=url, lock_ms=LOCK_MS, moves_time=False) as w:
        yield w
        await check(w)


async def start(w: World, input: Any = None, *, clog_id: str = "c", session_id: str = "s", **options: Any) -> str:
    run = await w.ocean.create_run(session_id=session_id, clog_id=clog_id, input=input, **options)
    return run.run_id


async def start_idle(w: World, **options: Any) -> str:
    return await start(w, UNSET, **options)


async def look(w: World, run_id: str) -> RunInfo:
    run = await w.ocean.get_run(run_id)
    assert run is not None
    return run


async def log(w: World, run_id: str | None = None, type: str | None = None) -> list[Event]:
    return await w.ocean.read_events(run_id, types=[type] if type else [], limit=1_000)


async def types(w: World, run_id: str) -> list[str]:
    return [event.type for event in await log(w, run_id)]


async def die_holding(w: World, clog: Clog) -> Claim:
    """Claim the next due run of the clog as a process that then crashes."""
    one = ClaimableClog(clog.clog_id, LOCK_MS, clog.version, clog.takes_all_inputs)
    (claim,) = await w.store.claim_due(ClaimAsk({clog.clog_id: one}, "i-dead", 1, 0, None))
    if claim.crash_company is not None:
        await w.store.call_apart([claim.lock])
    return claim


async def let_others_go_on(w: World) -> None:
    """Wait until no other task waits for the database: each round is one query, queued behind theirs."""
    for _ in range(20):
        await w.ocean.get_run("nobody")


async def dump(w: World) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table."""
    if not isinstance(w.store, SqliteStore):
        return {name: rows[1:] for name, rows in (await postgres_tables(w.store)).items()}

    def read(db: Any) -> dict[str, list[tuple[Any, ...]]]:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: sorted((tuple(row) for row in db.execute(f'SELECT * FROM "{name}"')), key=repr) for name in names}

    return await w.store.database.read(read)
