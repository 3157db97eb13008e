"""A process that works: it pokes until nothing is left to do. Started by the demo, ended by it or by itself.

Told to stop at its n-th delivery, it does the work of that tick, says so on its standard output, and then stands
still before the commit until it is killed. If the demo dies first, its standard input ends and so does the worker.
"""

import json
import os
import sys

import anyio

from ocean import Ocean, SystemClock, Tick
from ocean.cli.demo.clog import courier_clog


class Halt:
    """Stands still in the middle of the n-th call; 0 means never."""

    def __init__(self, at_call: int) -> None:
        self._calls_left = at_call

    async def __call__(self, tick: Tick) -> None:
        self._calls_left -= 1
        if self._calls_left == 0:
            sys.stdout.write(json.dumps({"run_id": tick.run_id, "tick": tick.number}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()  # holds up the whole process on purpose: nothing more of it gets committed
            os._exit(3)


async def work(url: str, lock_ms: int, concurrency: int, halt_at: int) -> None:
    clog = courier_clog(Halt(halt_at))
    async with Ocean.open(url, clogs=[clog], lock_ms=lock_ms, instance_id=f"worker-{os.getpid()}") as ocean:
        while True:
            poked = await ocean.advance(concurrency=concurrency)
            if poked.next_wake_at is None:
                return
            # Every poke says when the next one is needed: here, when the lock of the dead lapses.
            await anyio.sleep(max(poked.next_wake_at - SystemClock().now(), 0) / 1000)


if __name__ == "__main__":
    try:
        url, lock_ms, concurrency, halt_at = sys.argv[1:]
        anyio.run(work, url, int(lock_ms), int(concurrency), int(halt_at))
    except KeyboardInterrupt:
        sys.exit(130)
