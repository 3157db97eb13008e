"""Power cuts at any moment of a recorded day, and what must be true of the files that are left.

python -m tests.disk.power --seeds 100 --from 1
python -m tests.disk.power --seed 7 --synchronous OFF
"""

import argparse
import hashlib
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import anyio

from ocean import Ocean
from ocean.compose import open_store
from ocean.stores.sqlite.engine.database import Database
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from ocean.testing.manual_clock import START
from tests.disk.driver import Connection, Driver
from tests.disk.power_cut import Platter
from tests.disk.scenario import DEEDS, Stage, clogs, story
from tests.disk.vfs import Disk, Happening, Noted
from tests.invariants import check_tables
from tests.stores.dump import dump

FILE = "ocean.db"
DAMAGED = "the files are damaged"
LOST = "what was acknowledged is lost, or something is there in part"
LATER_MS = 600_000
"""When the power is back, all locks have lapsed."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that the database has confirmed, and its content then."""

    digest: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    deed: str
    answer: Any


@dataclass
class Recording:
    happenings: list[Happening]
    story: dict[str, Any]

    @cached_property
    def digests(self) -> list[str]:
        """The states of the empty database and after each commit."""
        facts = [happening.fact for happening in self.happenings if isinstance(happening, Noted)]
        return [NOTHING, *(fact.digest for fact in facts if isinstance(fact, Committed))]


def digest(db: sqlite3.Connection) -> str:
    return hashlib.sha256(repr(sorted(dump(db).items())).encode()).hexdigest()


NOTHING = hashlib.sha256(repr([]).encode()).hexdigest()


@contextmanager
def memory_folder() -> Iterator[Path]:
    """No real disk is synced: what would be on it is computed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def store_on(driver: Driver, path: Path, clock: ManualClock) -> SqliteStore:
    database = Database(str(path))
    database.connect = driver.connect
    return SqliteStore(database, clock)


async def checkpoint(store: SqliteStore, how: str) -> None:
    await store.database.on_writer(lambda db: db.execute(f"PRAGMA wal_checkpoint({how})"))


async def record(seed: int, synchronous: str = "FULL", deeds: Sequence[str] = tuple(DEEDS)) -> Recording:
    """Record a day on a disk that logs every call. The moments of checkpoints and of the end are random."""
    chance = random.Random(seed)
    disk = Disk(f"power {seed} {synchronous}")

    def note_commit(db: Connection, sql: str) -> None:
        if sql == "COMMIT":
            disk.note(Committed(digest(db)))  # type: ignore[arg-type]

    pages = chance.choice([4, 30, 1_000])
    driver = Driver(disk.name, after=note_commit, synchronous=synchronous, checkpoint_pages=pages)
    clock = ManualClock()
    final_story: dict[str, Any] = {}
    with memory_folder() as folder:
        night = chance.randrange(1, len(deeds))
        for part in (deeds[:night], deeds[night:]):
            store = store_on(driver, folder / FILE, clock)
            await store.open()
            ocean = Ocean(store, clogs(), clock)
            try:
                await ocean.start()
                for name in part:
                    answer = await DEEDS[name](Stage(ocean, clock))
                    disk.note(Acknowledged(name, answer))
                    if chance.random() < 0.3:
                        await checkpoint(store, chance.choice(["PASSIVE", "RESTART", "TRUNCATE"]))
                happenings = list(disk.record)
                if part and part[-1] == [*DEEDS][-1]:
                    final_story = await story(Stage(ocean, clock))
            finally:
                await ocean.close()
    disk.unregister()
    return Recording(happenings, final_story)


@dataclass
class Cut:
    """The power is cut after some calls; what the disk keeps is random."""

    files: dict[str, bytes]
    least: int
    """How many commits were acknowledged."""
    acknowledged: dict[str, Any] = field(default_factory=dict)

    def put_into(self, folder: Path, chance: random.Random) -> Path:
        """The shared memory of the log is never synced: it may contain anything."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        (folder / f"{FILE}-shm").write_bytes(chance.randbytes(32_768) if chance.random() < 0.5 else b"")
        return folder / FILE


def cuts(recording: Recording, moments: set[int], chance: random.Random) -> Iterator[Cut]:
    platter, least = Platter(), 0
    acknowledged: dict[str, Any] = {}
    for number, happening in enumerate(recording.happenings):
        if number in moments:
            yield Cut(platter.left(chance), least, dict(acknowledged))
        platter.take_in(happening)
        if isinstance(happening, Noted):
            match happening.fact:
                case Committed():
                    least += 1
                case Acknowledged(deed, answer):
                    acknowledged[deed] = answer


def check_files(recording: Recording, cut: Cut, chance: random.Random) -> str:
    """Check that the file is sound and has the committed state, or also the commit in progress; returns which."""
    with memory_folder() as folder, closing(sqlite3.connect(cut.put_into(folder, chance))) as db:
        db.row_factory = sqlite3.Row
        try:
            assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok", DAMAGED
            found = digest(db)
        except sqlite3.DatabaseError as error:
            raise AssertionError(DAMAGED) from error
        came_of_it = dict(zip(recording.digests[cut.least :], ("as acknowledged", "one more"), strict=False))
        assert found in came_of_it, LOST
        if found != NOTHING:
            check_tables(db, START + LATER_MS)
        return "nothing yet" if found == NOTHING else came_of_it[found]


async def check_goes_on(recording: Recording, cut: Cut, chance: random.Random) -> None:
    """The ordinary store opens it; acknowledged verbs return the same result, and all others happen now, once."""
    with memory_folder() as folder:
        clock = ManualClock(START + LATER_MS)
        store = await open_store(f"sqlite:///{cut.put_into(folder, chance)}", clock)
        ocean = Ocean(store, clogs(), clock)
        try:
            await ocean.start()
            stage = Stage(ocean, clock)
            for name, deed in DEEDS.items():
                answer = await deed(stage)
                assert cut.acknowledged.get(name, answer) == answer, f"{name!r} was answered otherwise before"
            assert await story(stage) == recording.story
        finally:
            await ocean.close()


async def try_seed(seed: int, count: int, again_every: int, synchronous: str = "FULL") -> Counter[str]:
    """Cut one recording `count` times; after some cuts the day is repeated."""
    recording, chance = await record(seed, synchronous), random.Random(seed)
    moments = range(len(recording.happenings))
    chosen = set(chance.sample(moments, min(count, len(moments))))
    seen: Counter[str] = Counter()
    for number, cut in enumerate(cuts(recording, chosen, chance)):
        seen[check_files(recording, cut, chance)] += 1
        if number % again_every == 0:
            await check_goes_on(recording, cut, chance)
    return seen


async def _main(arguments: argparse.Namespace) -> None:
    seeds = [arguments.seed] if arguments.seed else range(arguments.first, arguments.first + arguments.seeds)
    began = time.monotonic()
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += await try_seed(seed, arguments.cuts, arguments.again_every, arguments.synchronous)
        except AssertionError as error:
            raise SystemExit(f"seed {seed}: {error}") from error
    took = time.monotonic() - began
    print(f"{len(seeds)} seeds, {len(seeds) / took:.1f}/s; {seen.total()} cuts, {seen.total() / took:.0f}/s: {seen}")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cuts", type=int, default=100, help="per seed; more than there are moments is every moment")
    parser.add_argument("--again-every", type=int, default=10, help="how many cuts for each that is gone on from")
    parser.add_argument("--synchronous", default="FULL")
    anyio.run(_main, parser.parse_args())


if __name__ == "__main__":
    main()
