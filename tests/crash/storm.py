"""Three processes that send and work, each killed repeatedly, and a checker of the result.

python -m tests.crash.storm --db postgresql://user@host/an_empty_database --seconds 45
python -m tests.crash.storm --db storm.db --seconds 45
"""

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

from ocean import Clog, Event, Ocean, OceanError, Ok, Outcome, RetryPolicy, Tick
from tests.crash.ferry_clog import note, noted
from tests.crash.places import Place, history_of, url_of

ROOT = Path(__file__).parents[2]
PROCESSES, RUNS, LOCK_MS = 3, 12, 300


def listener() -> Clog:
    clog = Clog("listener", lock_ms=LOCK_MS)

    @clog.on_advance
    async def hear(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        await tick.write(run=(rows.run or 0) + 1)
        await tick.emit("heard", {"word": tick.input})
        return Ok()

    return clog


def names() -> list[str]:
    return [f"run-{number}" for number in range(RUNS)]


async def work(db: str, seed: int) -> None:
    """Send and poke forever. Record what is sent before, and what is acknowledged after."""
    chance, history = random.Random(seed), history_of(db)
    async with Ocean.open(url_of(db), clogs=[listener()]) as ocean, anyio.create_task_group() as tasks:

        async def send() -> None:
            for number in itertools.count():
                run_id, word = chance.choice(names()), f"{os.getpid()}-{number}"
                note(history, "sent", run_id, word)
                await ocean.signal(run_id, word)
                note(history, "acked", run_id, word)
                # Each process has its own pace, so that kills hit them anywhere.
                await anyio.sleep(chance.random() / 50)

        async def poke() -> None:
            while True:
                await ocean.advance(budget_ms=500, concurrency=4)
                # An idle poke must not take CPU time from the senders.
                await anyio.sleep(0.02)

        tasks.start_soon(send)
        tasks.start_soon(poke)


@dataclass(frozen=True)
class Summary:
    kills: int
    sent: int
    acknowledged: int
    stored: int
    ticks: int
    restarted: int
    events: int


async def storm(db: Place, seconds: float, seed: int = 1, least: int = 3) -> Summary:
    """Run for `seconds`, and until there were at least `least` kills."""
    chance, kills = random.Random(seed), 0
    async with Ocean.open(url_of(db), clogs=[listener()]) as ocean:
        for run_id in names():
            for_ever = RetryPolicy(max_attempts=None)
            await ocean.create_run(session_id="s", clog_id="listener", run_id=run_id, retry=for_ever)
        crew = [_start(db, chance) for _ in range(PROCESSES)]
        with anyio.move_on_after(seconds) as time:
            while kills < least or not time.cancel_called:
                place = chance.randrange(PROCESSES)
                with anyio.CancelScope(shield=kills < least):
                    await _has_worked(crew[place].pid, chance.randint(2, 12), history_of(db))
                _kill(crew[place])
                kills += 1
                crew[place] = _start(db, chance)
        for process in crew:
            _kill(process)
        await _drain(ocean)
        return await check(ocean, db, kills)


async def _has_worked(pid: int, acks: int, history: Path) -> None:
    """Wait until a process works: killing one while it starts tests nothing."""
    # It reports so in a file, so that its output need not be read.
    while sum(word.startswith(f"{pid}-") for _, word in noted(history, "acked")) < acks:  # noqa: ASYNC110
        await anyio.sleep(0.05)


def _start(db: Place, chance: random.Random) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.crash.storm", "--db", str(db), "--seed", str(chance.randrange(1 << 30))]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


async def _drain(ocean: Ocean) -> None:
    """Wait until the locks of the killed processes have lapsed."""
    while True:
        try:
            poked = await ocean.advance(budget_ms=5_000)
        except OceanError:
            continue
        if poked.next_wake_at is None:
            return
        # By a real clock: on PostgreSQL it is the server's, which a test cannot move.
        await anyio.sleep(LOCK_MS / 1000)


async def check(ocean: Ocean, db: Place, kills: int) -> Summary:
    """No acknowledged signal is lost, none is consumed twice, no epoch commits twice, and the logs are dense."""
    history = history_of(db)
    sent = {word for _, word in noted(history, "sent")}
    acked = {word for _, word in noted(history, "acked")}
    log: list[Event] = []
    while page := await ocean.read_events(after=log[-1].seq if log else 0, limit=1_000):
        log += page
    stored: list[str] = []
    for run_id in names():
        mine = [event for event in log if event.run_id == run_id]
        assert [event.run_seq for event in mine] == list(range(1, len(mine) + 1)), f"the log of {run_id} has a gap"
        committed = [event for event in mine if event.type == "tick.committed"]
        epochs = [event.payload["epoch"] for event in committed]
        assert len(set(epochs)) == len(epochs), f"an epoch of {run_id} has committed twice"
        consumed = [number for event in committed for number in event.payload["inputs"]]
        inputs = [entry async for entry in _inputs(ocean, run_id)]
        assert sorted(consumed) == [number for number, _ in inputs], f"{run_id} has not consumed each input once"
        words = [event.payload["word"] for event in mine if event.type == "heard"]
        assert words == [dict(inputs)[number] for number in consumed], f"{run_id} has emitted other words"
        assert await _count(ocean, run_id) == len(committed)
        stored += [word for _, word in inputs]
    assert set(Counter(stored).values()) <= {1}, "a signal is there twice"
    assert acked <= set(stored) <= sent, "an acknowledged signal is lost, or one appeared"
    types = Counter(event.type for event in log)
    return Summary(
        kills, len(sent), len(acked), len(stored), types["tick.committed"], types["tick.restarted"], len(log)
    )


async def _inputs(ocean: Ocean, run_id: str) -> AsyncIterator[tuple[int, str]]:
    after = 0
    while page := await ocean.list_inputs(run_id, after=after, limit=500):
        for entry in page:
            yield entry.number, entry.body
        after = page[-1].number


async def _count(ocean: Ocean, run_id: str) -> int:
    ticks, after = 0, 0
    while page := await ocean.list_ticks(run_id, after=after, limit=500):
        ticks, after = ticks + len(page), page[-1].tick
    return ticks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", required=True)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.seconds is None:
        anyio.run(work, arguments.db, arguments.seed)
    else:
        found = anyio.run(storm, arguments.db, arguments.seconds, arguments.seed)
        print(", ".join(f"{name} {value}" for name, value in asdict(found).items()))  # noqa: T201


if __name__ == "__main__":
    main()
