"""Book a trip step by step; if it fails or is cancelled, undo the bookings in reverse order."""

from typing import Any

import anyio

from ocean import UNKNOWN, Abort, Clog, FetchResponse, Flow, RetryPolicy, RunFailed, Unknown
from ocean.testing import Outside, World, crash_everywhere, world

HOUR_MS = 3_600_000
PLACES = ("flight", "hotel", "car")
TOOLS = (
    "ocean.storage.read_scoped", "ocean.storage.write_scoped", "ocean.steps.run", "ocean.events.emit",
    "ocean.runs.create", "ocean.http.fetch",
)  # fmt: skip
trip = Clog("trip", tools=TOOLS)


@trip.flow
async def book_trip(flow: Flow, order: dict[str, Any]) -> Any:
    async def post(key: str, url: str, body: str) -> Any:
        """Send the step's key, by which a service recognises a repeated request."""
        response = await flow.fetch(url, method="POST", headers={"Idempotency-Key": key}, body=body.encode())
        if response.status == 409:
            raise Abort(f"{url} is sold out", code="sold_out")
        return response.json()

    def cancel(place: str) -> Any:
        async def cancel_booking(key: str, booked: dict[str, str] | Unknown) -> None:
            # Without a result, only the key under which the request was sent identifies what may have been booked.
            booking = key if booked is UNKNOWN else booked["booking"]
            await post(f"{key}/cancel", f"https://{place}.example/cancel", booking)

        return cancel_booking

    retry = RetryPolicy(max_attempts=5, backoff_ms=1_000)
    for place in PLACES:
        url = f"https://{place}.example/book"
        await flow.step(place, post, url, order["traveller"], undo=cancel(place), retry=retry)
    paid = await flow.wait_for_signal("paid", timeout_ms=HOUR_MS)
    return f"{order['traveller']} travels, paid with {paid.body['card']}"


def services(*, has_cars: bool = True, is_hotel_up: bool = True) -> Outside:
    """Return the simulated booking services."""
    outside, requests = Outside(), []

    def cancel_hotel(request: Any) -> Any:
        requests.append(request)
        if len(requests) == 1 and not is_hotel_up:
            raise ConnectionError("the hotel does not respond")
        return {}

    for place in PLACES:
        outside.answer(f"POST https://{place}.example/*", {"booking": f"{place} 1"})
    outside.answer("POST https://hotel.example/cancel", cancel_hotel)
    if not has_cars:
        outside.answer("POST https://car.example/book", lambda request: FetchResponse(409, {}, b"{}", request.url))
    return outside


async def travel(w: World, traveller: str, action: str) -> str:
    run = await w.ocean.create_run(session_id="trips", clog_id="trip", input={"traveller": traveller})
    await w.drain()
    if action == "pays":
        await w.ocean.signal(run.run_id, {"type": "paid", "card": "1234"})
    elif action == "cancels":
        await w.ocean.cancel_run(run.run_id, reason="the traveller is ill")
    await w.wait(HOUR_MS)
    try:
        return str(await w.ocean.result(run.run_id))
    except RunFailed as failed:
        return f"failed: {failed.error['code']}"


async def show(traveller: str, action: str, outside: Outside) -> None:
    async with world([trip], outside=outside) as w:
        print(f"{traveller} {action} -> {await travel(w, traveller, action)}")
        names: dict[str | None, str] = {}
        for event in await w.ocean.read_events(session_id="trips"):
            run = names.setdefault(event.run_id, "trip" if not names else "another run")
            if event.type.startswith("flow.") and "step" in event.payload:
                print(f"  {run}: {event.type.removeprefix('flow.')} {event.payload['step']}")


async def no_car(w: World) -> str:
    return await travel(w, "bob", "finds no car")


async def main() -> None:
    await show("ada", "pays", services())
    await show("bob", "finds no car", services(has_cars=False, is_hotel_up=False))
    await show("cay", "cancels", services())
    await crash_everywhere([trip], no_car, outside=lambda: services(has_cars=False))
    print("bob's trip with a crash at every await: same result, nothing booked or cancelled twice")


if __name__ == "__main__":
    anyio.run(main)
