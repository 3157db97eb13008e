"""A process may be killed at every await of a flow: stored steps are not repeated, and the result is the same."""

from typing import Any

import pytest

from ocean import Abort, Cancelled, Clog, Flow, RetryPolicy, StepFailed
from ocean.testing import Outside, World, crash_everywhere

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]

TOOLS = (
    "ocean.storage.read_scoped", "ocean.storage.write_scoped", "ocean.steps.run", "ocean.events.emit",
    "ocean.runs.create", "ocean.runs.signal", "ocean.http.fetch",
)  # fmt: skip
BANK, HOTEL = "https://bank.example/charges", "https://hotel.example/rooms"


def outside() -> Outside:
    made = Outside()
    made.answer(f"POST {BANK}", {"id": "ch_1"})
    made.answer(f"POST {HOTEL}", {"id": "room_1"})
    made.answer(f"POST {BANK}/refund", {})
    return made


def booking() -> list[Clog]:
    """One of everything: steps that fail, sleeps, signals, children, a gather, a generation, an undo."""
    trip, kid = Clog("trip", tools=TOOLS), Clog("kid")

    @trip.flow
    async def book(flow: Flow, input: Any) -> Any:
        async def post(key: str, url: str) -> Any:
            headers = {"Idempotency-Key": key}
            return (await flow.fetch(url, method="POST", headers=headers, body=b"{}")).json()

        async def broken(key: str) -> None:
            raise OSError("always")

        async def try_twice() -> str:
            try:
                await flow.step("broken", broken, retry=RetryPolicy(max_attempts=2, backoff_ms=0))
            except StepFailed as failed:
                await flow.emit("gave up", failed.attempts)
            return "gave up"

        if input == "first":
            room = await flow.step("room", post, HOTEL)
            await flow.emit("booked", room)
            return flow.again("second")
        await flow.step("charge", post, BANK, undo=lambda key, _: post(key, f"{BANK}/refund"))
        await flow.gather(try_twice(), flow.child("kid", 3), flow.sleep(1_000))
        if (await flow.wait_for_signal("decide")).body["ok"]:
            return "kept"
        raise Abort("not wanted", code="unwanted")

    @kid.flow
    async def work(flow: Flow, n: int) -> int:
        await flow.emit("worked", n)
        return n * n

    return [trip, kid]


async def test_a_crash_at_any_point_changes_nothing() -> None:
    async def scenario(w: World) -> Any:
        run = await w.ocean.create_run(session_id="s", clog_id="trip", input="first", retry=RetryPolicy(backoff_ms=0))
        await w.wait(1_000)
        await w.ocean.signal(run.run_id, {"type": "decide", "ok": False}, signal_id="d")
        await w.drain()
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        return info.output, (info.error or {}).get("code")

    async def look(w: World) -> None:
        names = [call.name for call in w.outside.effects() if call.kind == "fetch"]
        assert names == [f"POST {HOTEL}", f"POST {BANK}", f"POST {BANK}/refund"]

    report = await crash_everywhere(booking, scenario, outside=outside, check=look, ignore=["*: ticks"])
    assert len(report.killed) > 50
    assert report.findings == ()


def cancellable() -> list[Clog]:
    """An order with two steps to undo, which is cancelled: it cleans up, waits, and is undone."""
    trip = Clog("trip", tools=TOOLS)

    @trip.flow
    async def book(flow: Flow, input: Any) -> Any:
        async def post(key: str, url: str) -> Any:
            headers = {"Idempotency-Key": key}
            return (await flow.fetch(url, method="POST", headers=headers, body=b"{}")).json()

        async def refund(key: str, result: Any) -> None:
            await post(f"{key}/undo", f"{BANK}/refund")

        await flow.step("charge", post, BANK, undo=refund)
        await flow.step("deposit", post, f"{BANK}/deposit", undo=refund)
        try:
            await flow.gather(flow.wait_for_signal("decide"), flow.sleep(60_000))
        except Cancelled:
            await flow.step("call off", post, f"{HOTEL}/off")
            await flow.sleep(1_000)
            raise
        finally:
            await flow.emit("closed")

    return [trip]


def bank() -> Outside:
    made = Outside()
    made.answer("POST https://*", {"id": "x"})
    return made


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_crash_at_any_point_of_a_cancelled_flow_undoes_everything_once(how: str) -> None:
    async def scenario(w: World) -> Any:
        deadline_at = w.clock.now() + 30_000 if how == "deadline" else None
        run = await w.ocean.create_run(
            session_id="s", clog_id="trip", input={}, deadline_at=deadline_at, retry=RetryPolicy(backoff_ms=0)
        )
        await w.drain()
        if how == "cancel":
            await w.ocean.cancel_run(run.run_id)
        await w.wait(60_000)
        (cleaning,) = (await w.ocean.list_runs(parent_run_id=run.run_id)).runs
        return cleaning.status, cleaning.output

    async def look(w: World) -> None:
        names = [call.name for call in w.outside.effects() if call.kind == "fetch"]
        urls = [BANK, f"{BANK}/deposit", f"{HOTEL}/off", f"{BANK}/refund", f"{BANK}/refund"]
        assert names == [f"POST {url}" for url in urls]

    report = await crash_everywhere(
        cancellable, scenario, outside=bank, check=look, ignore=["*: ticks"], kill_on_end=True
    )
    assert len(report.killed) > 50
    assert report.findings == ()
