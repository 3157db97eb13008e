"""The worker process of the demo: it pokes until nothing is due.

With `halt_at` it does the work of its n-th delivery, prints that on its standard output, and then blocks before the
commit until it is killed. If the demo dies first, standard input ends and the worker exits.
"""

import json
import os
import sys

import anyio

from ocean import Ocean, SystemClock, Tick
from ocean.cli.demo.clog import courier_clog


class Halt:
    """Blocks the process in the middle of the n-th call; 0 means never."""

    def __init__(self, at_call: int) -> None:
        self._calls_left = at_call

    async def __call__(self, tick: Tick) -> None:
        self._calls_left -= 1
        if self._calls_left == 0:
            sys.stdout.write(json.dumps({"run_id": tick.run_id, "tick": tick.number}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()  # blocks the whole process on purpose: nothing more of it is committed
            os._exit(3)


async def work(url: str, lock_ms: int, concurrency: int, halt_at: int) -> None:
    """Poke until no run is due or will be."""
    clog = courier_clog(Halt(halt_at))
    async with Ocean.open(url, clogs=[clog], lock_ms=lock_ms, instance_id=f"worker-{os.getpid()}") as ocean:
        while True:
            poked = await ocean.advance(concurrency=concurrency)
            if poked.next_wake_at is None:
                return
            # A poke returns when the next one is needed: here, when a lock of the killed worker expires.
            await anyio.sleep(max(poked.next_wake_at - SystemClock().now(), 0) / 1000)


if __name__ == "__main__":
    try:
        url, lock_ms, concurrency, halt_at = sys.argv[1:]
        anyio.run(work, url, int(lock_ms), int(concurrency), int(halt_at))
    except KeyboardInterrupt:
        sys.exit(130)
