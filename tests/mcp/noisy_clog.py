"""A clog that prints wherever it can; none of it may reach the protocol."""

import os
from typing import Any

from ocean import Clog, Done, Outcome, Tick, Wait

print("noise: imported")  # noqa: T201

noisy = Clog("noisy")


@noisy.on_advance
async def advance(tick: Tick) -> Outcome:
    print("noise: a tick")  # noqa: T201
    os.write(1, b"noise: past Python\n")
    return Wait(for_ms=60_000) if tick.input == "wait" else Done(tick.input)


@noisy.method
async def shout(tick: Tick, payload: Any) -> Any:
    print("noise: a method")  # noqa: T201
    return payload
