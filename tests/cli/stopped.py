"""Clogs whose handlers go on until a file exists, in each of the ways that a handler may treat its cancellation."""

import time
from pathlib import Path

import anyio

from ocean import Clog, Done, Outcome, Tick

gated, threaded, shielded = Clog("gated"), Clog("threaded"), Clog("shielded")
MOST_S = 60


async def opened(tick: Tick) -> Outcome:
    await tick.stream("begun")
    with anyio.fail_after(MOST_S):
        while not Path("gate").exists():  # noqa: ASYNC110, ASYNC240
            await anyio.sleep(0.01)
    return Done("finished")


@gated.on_advance
async def wait(tick: Tick) -> Outcome:
    return await opened(tick)


@shielded.on_advance
async def ignore(tick: Tick) -> Outcome:
    with anyio.CancelScope(shield=True):
        await opened(tick)
    return Done("finished")


@threaded.on_advance
def block(tick: Tick) -> Outcome:
    anyio.from_thread.run(tick.stream, "begun")
    until = time.monotonic() + MOST_S
    while not Path("gate").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return Done("finished")


def all_three() -> list[Clog]:
    return [gated, threaded, shielded]
