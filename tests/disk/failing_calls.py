"""Let the n-th disk call of a day fail, for n = 1, 2, 3 …, and check what must be true of each such day.

python -m tests.disk.failing_calls --how once --step 1
python -m tests.disk.failing_calls --how until_noticed --step 7 --from 3
"""

import argparse
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import anyio
import apsw

from ocean import Ocean, OceanError, StoreBusy, StoreFailed, StoreUnusable
from ocean.compose import open_store
from ocean.testing import ManualClock
from tests.disk.driver import Driver, coded
from tests.disk.power import FILE, memory_folder, store_on
from tests.disk.scenario import DEEDS, Stage, clogs, story
from tests.disk.vfs import Disk
from tests.invariants import check_store, check_tables

How = Literal["once", "until_noticed"]
PATIENCE_S = 30
"""Limit for a caller that never gets a result: reaching it is a failure."""
CODES = {
    "open": [apsw.SQLITE_CANTOPEN],
    "read": [apsw.SQLITE_IOERR_READ],
    "write": [apsw.SQLITE_FULL, apsw.SQLITE_IOERR_WRITE],
    "sync": [apsw.SQLITE_IOERR_FSYNC],
    "truncate": [apsw.SQLITE_IOERR_TRUNCATE],
    "delete": [apsw.SQLITE_IOERR_DELETE],
}
BEGIN = "BEGIN IMMEDIATE"
CLEAR = (StoreBusy, StoreFailed, StoreUnusable)


@dataclass
class Fault:
    """Let the n-th call fail, or all from there on until a caller got the error. To begin a transaction is a call."""

    nth: int = 1 << 60
    how: How = "once"
    calls: list[tuple[str, str]] = field(default_factory=list)
    """For each call, the deed during which it was made, and its name."""
    deed: str = "open"
    is_healed: bool = False
    failed: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def call(self, name: str) -> None:
        if self._strikes(name):
            raise apsw.exception_for(CODES[name][self.nth % len(CODES[name])])

    def statement(self, sql: str) -> None:
        if sql == BEGIN and self._strikes(BEGIN):
            raise coded(sqlite3.OperationalError("database is locked"), sqlite3.SQLITE_BUSY)

    def _strikes(self, name: str) -> bool:
        self.calls.append((self.deed, name))
        # No test combines a held lock with a failing disk: each would hide the other.
        is_same = not self.failed or (self.failed[0] == BEGIN) == (name == BEGIN)
        if self.is_healed or len(self.calls) < self.nth or not is_same:
            return False
        self.failed.append(name)
        self.is_healed = self.how == "once"
        return True

    def notice(self, error: BaseException) -> None:
        notice(error, self.errors)
        self.is_healed = True


def notice(error: BaseException, errors: Counter[str]) -> None:
    """Count an expected error; any other is a failure of the store."""
    for leaf in _leaves(error):
        if not isinstance(leaf, CLEAR):
            raise leaf
        errors[type(leaf).__name__] += 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


async def day(fault: Fault, empty: bytes, deeds: Sequence[str] = tuple(DEEDS)) -> dict[str, Any]:
    """Repeat every deed, with the same keys, until it succeeds; returns the story."""
    disk = Disk(f"failing {id(fault)}", fault.call)
    driver, clock = Driver(disk.name, before=fault.statement, checkpoint_pages=30), ManualClock()
    with memory_folder() as folder:
        (folder / FILE).write_bytes(empty)
        ocean = await _opened(fault, driver, folder / FILE, clock)
        try:
            stage = Stage(ocean, clock)
            for name in deeds:
                await _until_answered(fault, stage, name)
            fault.is_healed, fault.deed = True, "story"
            result = await story(stage)
            await check_store(ocean._store, clock.now())
        finally:
            await ocean.close()
            disk.unregister()
        with closing(sqlite3.connect(folder / FILE)) as db:
            db.row_factory = sqlite3.Row
            assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            check_tables(db, clock.now())
    return result


async def _opened(fault: Fault, driver: Driver, path: Path, clock: ManualClock) -> Ocean:
    while True:
        store = store_on(driver, path, clock)
        try:
            with anyio.fail_after(PATIENCE_S):
                await store.open()
                ocean = Ocean(store, clogs(), clock)
                await ocean.start()
                return ocean
        except (OceanError, ExceptionGroup) as error:
            fault.notice(error)
            await store.close()


async def _until_answered(fault: Fault, stage: Stage, name: str) -> None:
    fault.deed = name
    while True:
        try:
            with anyio.fail_after(PATIENCE_S):
                await DEEDS[name](stage)
            return
        except (OceanError, ExceptionGroup) as error:
            fault.notice(error)
            # A process that could not give back a claimed run holds it until its lock lapses.
            stage.clock.advance(60_000)


async def empty_database() -> bytes:
    """An empty database with its schema, so that creating the tables is not what fails."""
    with memory_folder() as folder:
        store = await open_store(f"sqlite:///{folder / FILE}", ManualClock())
        await store.close()
        return (folder / FILE).read_bytes()


async def ordinary_day(empty: bytes) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return its story, and the calls that its deeds make."""
    fault = Fault()
    result = await day(fault, empty)
    return result, [call for call in fault.calls if call[0] != "story"]


async def _main(arguments: argparse.Namespace) -> None:
    empty = await empty_database()
    wanted, calls = await ordinary_day(empty)
    chosen = range(arguments.first, len(calls) + 1, arguments.step)
    began = time.monotonic()
    struck: Counter[str] = Counter()
    for nth in chosen:
        fault = Fault(nth, arguments.how)
        try:
            assert await day(fault, empty) == wanted, "the story differs"
        except BaseException as error:
            raise SystemExit(f"--from {nth} --how {arguments.how}: {fault.failed[:1]}, then {error!r}") from error
        struck[f"{fault.failed[:1]} → {dict(fault.errors)}"] += 1
    took = time.monotonic() - began
    print(f"{len(chosen)} of {len(calls)} calls failed, {len(chosen) / took:.1f} days/s")  # noqa: T201
    for what, count in sorted(struck.items()):
        print(f"  {what}: {count}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=get_args(How), default="once")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=1)
    # Failures here are intended, and counted.
    logging.disable()
    anyio.run(_main, parser.parse_args())


if __name__ == "__main__":
    main()
