"""Clogs with and without mistakes, for the tests of the testing kit."""

from collections.abc import Awaitable, Callable
from typing import Any

from ocean import Clog, Done, Outcome, Tick
from ocean.testing import Outside, World

URL = "https://pay.example/charges"
CHARGE = f"POST {URL}"
Handler = Callable[[Tick], Awaitable[Outcome]]


def clog_of(handler: Any, **options: Any) -> Clog:
    """A clog called c with this handler, which may reach out."""
    from ocean.kernel.tools import TOOLS

    clog = Clog("c", tools=list(TOOLS), **options)
    clog.on_advance(handler)
    return clog


def paying() -> Outside:
    outside = Outside()
    outside.answer(CHARGE, {"id": "ch_1"})
    return outside


async def one_run(w: World) -> None:
    await w.ocean.create_run(session_id="s", clog_id="c", input={"amount": 40})
    await w.drain()


async def charges_in_a_step(tick: Tick) -> Outcome:
    async def charge(key: str) -> Any:
        answer = await tick.fetch(URL, method="POST", headers={"Idempotency-Key": key}, body=b'{"amount": 40}')
        return answer.json()

    await tick.read(run=True)
    paid = await tick.step("charge", charge)
    await tick.emit("paid", paid)
    await tick.write(run={"paid": paid["id"]})
    return Done(paid)


async def charges_outside_of_a_step(tick: Tick) -> Outcome:
    await tick.read(run=True)
    paid = (await tick.fetch(URL, method="POST", body=b'{"amount": 40}')).json()
    await tick.emit("paid", paid)
    await tick.write(run={"paid": paid["id"]})
    return Done(paid)
