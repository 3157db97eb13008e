"""A process that executes the next step: it merges, and is killed before it can record that."""

import os
import signal
import sys
from pathlib import Path

import anyio

from clogs.loop import Facts, Loop, LoopPlan, OnPaper, Sight, Step
from ocean import Ocean

LOCK_MS = 200


class Ledger(OnPaper):
    """Merge by appending a line to a file: a repeated key has no second effect."""

    def __init__(self, file: Path, is_fatal: bool) -> None:
        self._file, self._is_fatal = file, is_fatal

    async def merge(self, sight: Sight, key: str) -> Facts:
        earlier = self._file.read_text().splitlines() if self._file.exists() else []
        with self._file.open("a") as out:
            out.write(f"{'again' if any(key in line for line in earlier) else 'merged'} {key}\n")
        if self._is_fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"mergedUnder": key}


def merging(file: Path, *, is_fatal: bool = False) -> Loop:
    desk = Ledger(file, is_fatal)
    return Loop(LoopPlan("merge", [Step(number=1, type="MERGE", state="REVIEWED", to="DONE", effect=desk.merge)]))


async def main(url: str, file: str) -> None:
    loop = merging(Path(file), is_fatal=True)
    async with Ocean.open(url, clogs=loop.clogs, lock_ms=LOCK_MS) as ocean:
        await loop.run_next_step(ocean, "AFU9-123", actor="ann", idempotency_key="k")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
