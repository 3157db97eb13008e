"""A trip is booked step by step; if it fails, or is called off, what was booked is cancelled in reverse."""

from typing import Any

import anyio

from ocean import Abort, Clog, FetchResponse, Flow, RetryPolicy, RunFailed
from ocean.testing import Outside, World, crash_everywhere, world

HOUR_MS = 3_600_000
PLACES = ("flight", "hotel", "car")
TOOLS = (
    "ocean.storage.read_scoped", "ocean.storage.write_scoped", "ocean.steps.run", "ocean.events.emit",
    "ocean.runs.create", "ocean.http.fetch",
)  # fmt: skip
trip = Clog("trip", tools=TOOLS)


@trip.flow
async def book_trip(flow: Flow, wish: dict[str, Any]) -> Any:
    async def ask(key: str, url: str) -> Any:
        """Every service is given the step's key, by which it knows a request that comes again."""
        answer = await flow.fetch(url, method="POST", headers={"Idempotency-Key": key}, body=wish["who"].encode())
        if answer.status == 409:
            raise Abort(f"{url} is sold out", code="sold_out")
        return answer.json()

    async def cancel(key: str, booked: dict[str, str]) -> None:
        await ask(key, f"https://{booked['place']}.example/cancel")

    patient = RetryPolicy(max_attempts=5, backoff_ms=1_000)
    for place in PLACES:
        await flow.step(place, ask, f"https://{place}.example/book", undo=cancel, retry=patient)
    paid = await flow.wait_for_signal("paid", timeout_ms=HOUR_MS)
    return f"{wish['who']} travels, paid with {paid.body['card']}"


def services(*, has_cars: bool = True, is_desk_open: bool = True) -> Outside:
    """What is out there, for a day."""
    outside, asked = Outside(), []

    def desk(request: Any) -> Any:
        asked.append(request)
        if len(asked) == 1 and not is_desk_open:
            raise ConnectionError("nobody is at the desk")
        return {"place": "hotel"}

    for place in PLACES:
        outside.answer(f"POST https://{place}.example/*", {"place": place})
    outside.answer("POST https://hotel.example/cancel", desk)
    if not has_cars:
        outside.answer("POST https://car.example/book", lambda request: FetchResponse(409, {}, b"{}", request.url))
    return outside


async def travel(w: World, who: str, then: str) -> str:
    run = await w.ocean.create_run(session_id="trips", clog_id="trip", input={"who": who})
    await w.drain()
    if then == "pays":
        await w.ocean.signal(run.run_id, {"type": "paid", "card": "1234"})
    elif then == "calls it off":
        await w.ocean.cancel_run(run.run_id, reason="the traveller is ill")
    await w.wait(HOUR_MS)
    try:
        return str(await w.ocean.result(run.run_id))
    except RunFailed as failed:
        return f"failed: {failed.error['code']}"


async def show(who: str, then: str, outside: Outside) -> None:
    async with world([trip], outside=outside) as w:
        print(f"{who} {then} -> {await travel(w, who, then)}")
        names: dict[str | None, str] = {}
        for event in await w.ocean.read_events(session_id="trips"):
            run = names.setdefault(event.run_id, "trip" if not names else "another run")
            if event.type.startswith("flow.") and "step" in event.payload:
                print(f"  {run}: {event.type.removeprefix('flow.')} {event.payload['step']}")


async def no_car(w: World) -> str:
    return await travel(w, "bob", "finds no car")


async def main() -> None:
    await show("ada", "pays", services())
    await show("bob", "finds no car", services(has_cars=False, is_desk_open=False))
    await show("cay", "calls it off", services())
    await crash_everywhere([trip], no_car, outside=lambda: services(has_cars=False))
    print("bob's process, killed at every await: the same, and nothing booked or cancelled twice")


if __name__ == "__main__":
    anyio.run(main)
