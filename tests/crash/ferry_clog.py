"""The clog whose processes are killed: it reports every point of a tick to a callback."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ocean import Clog, Done, Ok, Outcome, Tick

TICK_MS = 77_777
"""An unusual time limit, by which a clock recognizes the handler's limit among other timers."""

At = Callable[[str, Tick], None]
Linger = Callable[[Tick], Awaitable[None]]

CLAIMED = "between claim and call"
CALLED = "in the call"
STEPPING = "before the step's result is stored"
STEPPED = "after the step"
STREAMED = "after the stream"
WORKED = "after all its work"
RETURNED = "between handler and commit"
COMMITTING = "in the commit's transaction"
POINTS = (CLAIMED, STEPPING, STEPPED, STREAMED, RETURNED, COMMITTING)


def nowhere(point: str, tick: Tick) -> None:
    pass


async def not_at_all(tick: Tick) -> None:
    pass


def note(history: Path, *words: Any) -> None:
    """Append one line atomically, before anything else happens; other processes may write at the same time."""
    file = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


def noted(history: Path, first: str) -> list[list[str]]:
    """The lines that begin with this word, without it."""
    lines = [line.split() for line in history.read_text().splitlines()] if history.exists() else []
    return [words for word, *words in lines if word == first]


def ferry(history: Path, at: At = nowhere, *, linger: Linger = not_at_all, lock_ms: int = 30_000) -> Clog:
    """Adds each input's cargo to its run's row, and one crossing to the session's; ends after a `last` input."""
    clog = Clog("ferry", lock_ms=lock_ms, tick_ms=TICK_MS)

    @clog.on_advance
    async def cross(tick: Tick) -> Outcome:
        note(history, "call", tick.run_id, tick.number, tick.call_number, os.getpid())
        at(CALLED, tick)
        rows = await tick.read(run=True, session=True)

        def pay(key: str) -> str:
            note(history, "pay", tick.run_id, tick.number, key)
            at(STEPPING, tick)
            return f"{os.getpid()}"

        paid_by = await tick.step("pay", pay)
        at(STEPPED, tick)
        await tick.stream("splash", {"by": os.getpid()})
        # Streamed events are stored before a later step's result.
        await tick.step("look back", lambda key: None)
        at(STREAMED, tick)

        def one_more(old: dict[str, int] | None) -> dict[str, int]:
            at(COMMITTING, tick)
            return {"crossings": (old or {"crossings": 0})["crossings"] + 1}

        row = rows.run or {"cargo": 0, "paid_by": []}
        row = {"cargo": row["cargo"] + tick.input["cargo"], "paid_by": [*row["paid_by"], paid_by]}
        await tick.write(run=row, session=one_more)
        await tick.emit("crossed", {"cargo": tick.input["cargo"], "paid_by": paid_by})
        at(WORKED, tick)
        await linger(tick)
        return Done(row) if tick.input.get("last") else Ok()

    @clog.method
    async def load(tick: Tick, payload: dict[str, int]) -> dict[str, Any]:
        note(history, "load", tick.run_id, os.getpid())

        def loaded(old: dict[str, Any] | None) -> dict[str, Any]:
            at(COMMITTING, tick)
            return {"cargo": (old or {"cargo": 0})["cargo"] + payload["cargo"], "paid_by": []}

        await tick.read(run=True)
        await tick.write(run=loaded)
        await tick.emit("loaded", payload)
        at(WORKED, tick)
        return {"by": os.getpid()}

    @clog.method
    async def row(tick: Tick, payload: Any) -> Any:
        return (await tick.read(run=True)).run

    @clog.method
    async def crossings(tick: Tick, payload: Any) -> int:
        return int(((await tick.read(session=True)).session or {"crossings": 0})["crossings"])

    return clog
