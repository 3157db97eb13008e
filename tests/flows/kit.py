"""A clog with one flow, a world that is checked at its end, and the events of its runs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ocean import Clog, Flow, RunInfo
from ocean.testing import World, world
from tests.invariants import check

Function = Callable[[Flow, Any], Awaitable[Any]]


def flow_clog(function: Function, clog_id: str = "f", **options: Any) -> Clog:
    """A clog whose steps get no time to finish when their run is to end, unless the test asks for it: many hang."""
    clog = Clog(clog_id, **{"cancel_grace_ms": 0} | options)
    clog.flow(function)
    return clog


@asynccontextmanager
async def stage(*clogs: Clog | Function) -> AsyncIterator[World]:
    made = [each if isinstance(each, Clog) else flow_clog(each) for each in clogs]
    async with world(clogs=made) as w:
        yield w
        await check(w)


async def start(w: World, input: Any = None, *, clog_id: str = "f", **options: Any) -> str:
    return (await w.ocean.create_run(session_id="s", clog_id=clog_id, input=input, **options)).run_id


async def look(w: World, run_id: str) -> RunInfo:
    info = await w.ocean.get_run(run_id)
    assert info is not None
    return info


async def events_of(w: World, run_id: str, *types: str) -> list[tuple[str, Any]]:
    """The flow's own events, or those of these types: (type, payload)."""
    events = await w.ocean.read_events(run_id, limit=1_000)
    mine = [event for event in events if (event.type in types if types else event.type.startswith("flow."))]
    return [(event.type, event.payload) for event in mine]


async def journal(w: World, run_id: str) -> Any:
    """Return the run row, as a direct call reads it."""
    from ocean.kernel.store.claims import RowsAsk
    from ocean.state.effects import RowKey
    from ocean.state.values import decode

    info = await look(w, run_id)
    key = RowKey("run", info.clog_id, run_id=run_id)
    answer = await w.store.read_rows(RowsAsk(info.clog_id, info.session_id, run_id, (key,)))
    return decode(answer.rows[key].text)


class Effects:
    """What steps have done, in order, and the keys they were given."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.keys: list[str] = []

    async def do(self, key: str, what: Any) -> Any:
        self.done.append(what)
        self.keys.append(key)
        return what

    def failing(self, times: int, what: str = "line down") -> Callable[[str], Awaitable[str]]:
        """Return a step function whose first `times` calls raise."""
        count = 0

        async def work(key: str) -> str:
            nonlocal count
            count += 1
            self.keys.append(key)
            if count <= times:
                raise OSError(what)
            self.done.append(count)
            return f"through at {count}"

        return work
