"""A decision that several callers want to make, as a clog, and as the plain object that it must behave like."""

from collections.abc import Awaitable, Callable
from typing import Any

from ocean import Clog, Tick

Dawdle = Callable[[Tick], Awaitable[None]]
State = tuple[str, str]
"""A status and the person it belongs to: `("claimed", "ada")`, `("rendered", "ada")`."""

OPEN: State = ("open", "")
PEOPLE = ("ada", "bo", "cy")


def after(state: State, what: tuple[str, ...]) -> tuple[State, list[str]]:
    """Return the next state and the response of an operation on the plain object."""
    following = state
    match what, state:
        case ("claim", who), ("open", _):
            following = ("claimed", who)
        case ("render", who), ("claimed", holder) if who == holder:
            following = ("rendered", who)
        case ("expire",), ("open" | "claimed", _):
            following = ("expired", "")
    return following, ["done" if following != state else "refused", *following]


async def at_once(tick: Tick) -> None:
    pass


def decision(dawdle: Dawdle = at_once, *, is_careless: bool = False) -> Clog:
    """Return a clog whose methods read, wait and write. Careless methods write a stale decision with a row function."""
    clog = Clog("decision")

    async def take(tick: Tick, what: tuple[str, ...]) -> list[str]:
        row = (await tick.read(run=True)).run
        state: State = tuple(row) if row else OPEN
        following, answer = after(state, what)
        await dawdle(tick)
        if following != state:
            # A function is applied to the value at the commit: no version is checked.
            await tick.write(run=(lambda _: list(following)) if is_careless else list(following))
            await tick.emit(following[0], {"by": following[1]})
        return answer

    @clog.method
    async def claim(tick: Tick, payload: str) -> list[str]:
        return await take(tick, ("claim", payload))

    @clog.method
    async def render(tick: Tick, payload: str) -> list[str]:
        return await take(tick, ("render", payload))

    @clog.method
    async def expire(tick: Tick, payload: Any) -> list[str]:
        return await take(tick, ("expire",))

    @clog.method
    async def look(tick: Tick, payload: Any) -> list[str]:
        return await take(tick, ("look",))

    return clog
