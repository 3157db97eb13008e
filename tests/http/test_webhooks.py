"""Webhooks over HTTP: which deliveries are accepted, and that a repeated delivery has one effect."""

import base64
import json
from typing import Any

import anyio
import httpx2
import pytest

from ocean import (
    Clog,
    Delivery,
    InvalidValue,
    Ok,
    Outcome,
    Refuse,
    RequestKeyReused,
    RunStatus,
    Tick,
    UnknownMethod,
    sign_webhook,
)
from ocean.http.app import make_app
from ocean.http.handlers.webhooks import NO_SECRET
from ocean.kernel.store.runs import Request
from ocean.kernel.verbs.webhooks import KEY
from ocean.state.ids import derived_id
from ocean.testing import world
from tests.http.kit import AppWorld, app_world, error_of
from tests.http.shop_clog import NEXT_SECRET, SECRET, envelope, make_till
from tests.lifecycle.acting import look

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
PLACEHOLDER_SECRET = "whsec_" + base64.b64encode(NO_SECRET[0]).decode()


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAID_SECRET", SECRET)


async def an_order(h: AppWorld) -> str:
    """Create a run that waits for its payment."""
    run = await h.w.ocean.create_run(session_id="s", clog_id="till")
    return run.run_id


async def deliver(
    h: AppWorld, body: Any, id: str = "msg_1", *, secret: str = SECRET, path: str = "/hooks/till/paid", **changed: str
) -> httpx2.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = sign_webhook(secret, id, raw, sent_at=h.w.clock.now())
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return await h.http.post(path, content=raw, headers=headers)


async def counted(h: AppWorld) -> int:
    response: int | None = await h.w.ocean.call_clog(clog_id="till", method="count")
    return response or 0


async def test_a_delivery_signals_a_run_in_one_commit() -> None:
    async with app_world(more=[make_till()]) as h:
        order = await an_order(h)
        before = await h.w.ocean.last_cursor()
        response = await deliver(h, {"order": order, "sum": 5})
        expected = {"answer": {"counted": 1, "by": "webhook:till/paid"}, "replayed": False}
        assert (response.status_code, response.json()) == (200, expected)
        events = await h.w.ocean.read_events(after=before)
        assert [(event.type, event.actor) for event in events] == [
            ("run.signalled", "webhook:till/paid"),
            ("call.committed", "webhook:till/paid"),
        ]
        await h.w.drain()
        run = await look(h.w, order)
        assert (run.status, run.output) == (RunStatus.DONE, {"paid": 5, "sent_at": h.w.clock.now()})


async def test_a_delivery_pokes_what_is_due() -> None:
    async with app_world(more=[make_till()], poke_ms=500) as h:
        order = await an_order(h)
        await deliver(h, {"order": order, "sum": 5})
        assert (await look(h.w, order)).status is RunStatus.DONE


async def test_each_delivery_makes_a_run_of_its_own() -> None:
    desk = Clog("desk")

    @desk.webhook("opened", secrets="env:PAID_SECRET", session="s")
    async def opened(tick: Tick, delivery: Delivery) -> str:
        return await tick.create_run(clog_id="desk", input=delivery.body)

    async with app_world(more=[desk]) as h:
        responses = [await deliver(h, 1, id, path="/hooks/desk/opened") for id in ("msg_1", "msg_2", "msg_1")]
        first, second, again = [response.json()["answer"] for response in responses]
        assert first == again != second
        assert {run.run_id for run in (await h.w.ocean.list_runs()).runs} == {first, second}


async def test_a_refused_delivery_pokes_nothing() -> None:
    async with app_world(more=[make_till()], poke_ms=100) as h:
        assert (await deliver(h, {}, secret=NEXT_SECRET)).status_code == 401
        assert (await deliver(h, b"not json")).status_code == 400
        assert "request" not in h.w.ocean.observed.pokes
        assert (await deliver(h, {"refuse": True})).status_code == 422
        assert h.w.ocean.observed.pokes["request"].count == 1


async def test_a_repeated_delivery_has_no_second_effect() -> None:
    async with app_world(more=[make_till()]) as h:
        order = await an_order(h)
        first = await deliver(h, {"order": order, "sum": 5})
        h.w.clock.advance(60_000)
        cursor = await h.w.ocean.last_cursor()
        again = await deliver(h, {"sum": 5, "order": order})
        assert (again.status_code, again.json()) == (200, first.json() | {"replayed": True})
        assert (await counted(h), await h.w.ocean.last_cursor()) == (1, cursor)
        other = await deliver(h, {"order": order, "sum": 6})
        assert (other.status_code, error_of(other)["code"]) == (409, "webhook_replayed")
        fresh = await deliver(h, {"order": order, "sum": 5}, "msg_2")
        assert fresh.json()["replayed"] is False
        assert await counted(h) == 2


async def test_a_webhook_may_refuse_repeated_deliveries() -> None:
    async with app_world(more=[make_till(replays="refuse")]) as h:
        order = await an_order(h)
        assert (await deliver(h, {"order": order, "sum": 5})).status_code == 200
        again = await deliver(h, {"order": order, "sum": 5})
        assert (again.status_code, error_of(again)["code"]) == (409, "webhook_replayed")
        assert await counted(h) == 1


async def test_an_id_is_kept_for_a_day_and_longer_without_a_sweep() -> None:
    async with app_world(more=[make_till()]) as h:
        order = await an_order(h)
        body = {"order": order, "sum": 5}
        await deliver(h, body)
        h.w.clock.advance(DAY_MS)
        await h.w.ocean.sweep()
        assert (await deliver(h, body)).json()["replayed"] is True
        h.w.clock.advance(DAY_MS)
        assert (await deliver(h, body)).json()["replayed"] is True
        await h.w.ocean.sweep()
        assert (await deliver(h, body)).json()["replayed"] is False
        assert await counted(h) == 2


async def test_two_webhooks_may_use_the_same_delivery_id() -> None:
    clog = make_till()

    @clog.webhook("other", secrets="env:PAID_SECRET")
    async def other(tick: Tick, delivery: Delivery) -> str:
        return "another"

    async with app_world(more=[clog]) as h:
        body = {"order": await an_order(h), "sum": 5}
        await deliver(h, body)
        response = await deliver(h, body, path="/hooks/till/other")
        assert response.json() == {"answer": "another", "replayed": False}


async def test_a_request_cannot_use_the_idempotency_key_of_a_delivery() -> None:
    """The request key of a delivery contains a character that no header can contain."""
    async with app_world(more=[make_till()]) as h:
        await deliver(h, {"order": await an_order(h), "sum": 5})
        key = KEY + derived_id("till", "paid", "msg_1")
        assert "\n" in key
        with pytest.raises(RequestKeyReused):
            await h.w.store.stored_answer(Request(key, "another body's"))


async def test_deliveries_of_one_id_at_the_same_time_have_one_effect() -> None:
    both = anyio.Event()
    arrived: list[str] = []
    clog = Clog("till")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Ok()

    @clog.webhook("paid", secrets="env:PAID_SECRET")
    async def paid(tick: Tick, delivery: Delivery) -> Any:
        arrived.append(delivery.id)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        await tick.signal(delivery.body["order"], "paid")
        return len(arrived)

    async with app_world(more=[clog]) as h:
        order = await an_order(h)
        responses: list[Any] = []

        async def one() -> None:
            responses.append((await deliver(h, {"order": order})).json())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            tasks.start_soon(one)
        assert sorted(response["replayed"] for response in responses) == [False, True]
        assert len(await h.w.ocean.list_inputs(order)) == 1


async def test_a_response_lost_after_the_commit_is_returned_to_the_next_attempt() -> None:
    async with app_world(more=[make_till()]) as h:
        order = await an_order(h)
        body = json.dumps({"order": order, "sum": 5}).encode()
        headers = sign_webhook(SECRET, "msg_1", body, sent_at=h.w.clock.now())
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/hooks/till/paid",
            "raw_path": b"/hooks/till/paid",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "server": ("house", 80),
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def lost(message: Any) -> None:
            raise OSError("the line is dead")

        with pytest.raises(OSError, match="the line is dead"):
            await make_app(h.w.ocean, poke_ms=0)(scope, receive, lost)
        assert await counted(h) == 1
        assert (await deliver(h, {"order": order, "sum": 5})).json()["replayed"] is True
        assert (await counted(h), len(await h.w.ocean.list_inputs(order))) == (1, 1)


async def test_a_handler_that_breaks_stores_nothing_and_is_called_again() -> None:
    async with app_world(more=[make_till()]) as h:
        cursor = await h.w.ocean.last_cursor()
        for _ in range(2):
            response = await deliver(h, {"break": True})
            assert (response.status_code, error_of(response)["code"]) == (500, "internal")
            assert "the till is broken" not in response.text
        assert await h.w.ocean.last_cursor() == cursor
        assert (await deliver(h, {"order": await an_order(h), "sum": 1})).json()["replayed"] is False


async def test_a_handler_that_refuses_has_its_status_and_is_called_once() -> None:
    async with app_world(more=[make_till()]) as h:
        responses = [await deliver(h, {"refuse": True}) for _ in range(2)]
        assert [(response.status_code, error_of(response)["code"]) for response in responses] == [(422, "no_order")] * 2
        assert len(await h.w.ocean.read_events(types=["refused"])) == 1


def changed(response: httpx2.Response) -> dict[str, Any]:
    """Return a response without the parts that differ each time."""
    error = error_of(response)
    return {"status": response.status_code} | {
        name: error[name] for name in ("code", "message", "details", "retryable")
    }


@pytest.mark.parametrize("path", ["/hooks/till/gone", "/hooks/gone/paid", "/hooks/c/echo", "/hooks/till/count"])
async def test_a_missing_webhook_looks_like_a_wrong_signature(path: str) -> None:
    async with app_world(more=[make_till(most_bytes=10)]) as h:
        for body in (b"{}", b"not json", b" " * 2_000_000):
            wrong = changed(await deliver(h, body, secret=NEXT_SECRET))
            for secret in (SECRET, PLACEHOLDER_SECRET):
                assert changed(await deliver(h, body, path=path, secret=secret)) == wrong
            assert wrong["status"] == (413 if len(body) > 1_000_000 else 401)
        late = {"webhook_timestamp": str(h.w.clock.now() // 1_000 - 301)}
        assert changed(await deliver(h, b"{}", path=path, **late)) == changed(await deliver(h, b"{}", **late))


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook_id": "msg_2"},
        {"webhook_id": "msg.1"},
        {"webhook_timestamp": "1699999699"},
        {"webhook_timestamp": "1700000301"},
        {"webhook_timestamp": "now"},
        {"webhook_signature": "v1,AAAA"},
        {"webhook_signature": ""},
    ],
    ids=str,
)
async def test_a_delivery_with_a_wrong_signature_has_no_effect(wrong: dict[str, str]) -> None:
    async with app_world(more=[make_till()]) as h:
        cursor = await h.w.ocean.last_cursor()
        response = await deliver(h, {"order": "x", "sum": 5}, **wrong)
        assert (response.status_code, error_of(response)["code"]) == (401, "webhook_refused")
        bare = await h.http.post("/hooks/till/paid", content=b"{}")
        assert (bare.status_code, error_of(bare)["code"]) == (401, "webhook_refused")
        assert (await counted(h), await h.w.ocean.last_cursor()) == (0, cursor)


async def test_bodies_are_parsed_after_the_signature_is_verified() -> None:
    async with app_world(more=[make_till(most_bytes=100)]) as h:
        for body, status, code in (
            (b"not json", 400, "not_json"),
            (b'{"a": 1, "a": 2}', 400, "not_json"),
            (b'"' + b"x" * 100 + b'"', 413, "body_too_large"),
            (b'"' + b"x" * 2_000_000 + b'"', 413, "body_too_large"),
        ):
            response = await deliver(h, body)
            assert (response.status_code, error_of(response)["code"]) == (status, code)
        assert (await h.http.get("/hooks/till/paid")).status_code == 405


async def test_a_secret_is_replaced_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAID_SECRET", f"{SECRET} {NEXT_SECRET}")
    async with app_world(more=[make_till()]) as h:
        body = {"order": await an_order(h), "sum": 1}
        assert (await deliver(h, body, "msg_1")).status_code == 200
        assert (await deliver(h, body, "msg_2", secret=NEXT_SECRET)).status_code == 200


async def test_a_missing_secret_stops_the_start_and_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(clogs=[make_till()]) as w:
        app = make_app(w.ocean)
        assert SECRET not in repr(vars(app)) + repr(app.routes) + repr(w.ocean.clogs[0].webhooks)
        monkeypatch.delenv("PAID_SECRET")
        with pytest.raises(InvalidValue, match="environment variable PAID_SECRET must be set"):
            make_app(w.ocean)


async def test_a_webhook_is_not_a_method() -> None:
    async with app_world(more=[make_till()]) as h:
        for name in ("paid", "webhook paid"):
            response = await h.post(f"/v1/clogs/till/call/{name}")
            assert error_of(response)["code"] == "unknown_method"
            with pytest.raises(UnknownMethod):
                await h.w.ocean.call_clog(clog_id="till", method=name)


@pytest.mark.parametrize(
    "wrong",
    [Delivery("", {}, 1), Delivery("m", {}, -1), Delivery("m", {}, "now"), Delivery("m", object(), 1), "m"],  # type: ignore[arg-type]
)
async def test_an_invalid_delivery_is_refused_in_python_too(wrong: Any) -> None:
    async with app_world(more=[make_till()]) as h:
        cursor = await h.w.ocean.last_cursor()
        with pytest.raises(InvalidValue):
            await h.w.ocean.receive_webhook("till", "paid", wrong)
        assert await h.w.ocean.last_cursor() == cursor


async def test_a_webhook_has_its_clogs_envelope() -> None:
    async with app_world(more=[make_till(errors=envelope)]) as h:
        for response, status, code in (
            (await deliver(h, {}, webhook_id="other"), 401, "SHOP_WEBHOOK_REFUSED"),
            (await deliver(h, {"break": True}), 500, "SHOP_INTERNAL"),
            (await deliver(h, {"refuse": True}), 422, "SHOP_NO_ORDER"),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_a_plain_function_can_be_a_webhook_with_any_name() -> None:
    clog = Clog("to/ll: é")

    @clog.webhook("paid", secrets="env:PAID_SECRET")
    def paid(tick: Tick, delivery: Delivery) -> Any:
        tick.block(tick.emit("heard", delivery.body))
        return delivery.body

    async with app_world(more=[clog]) as h:
        response = await deliver(h, [1], path="/hooks/to%2Fll%3A%20%C3%A9/paid")
        assert response.json() == {"answer": [1], "replayed": False}
        assert [event.payload for event in await h.w.ocean.read_events(types=["heard"])] == [[1]]


async def test_the_document_describes_deliveries_but_lists_no_webhooks() -> None:
    async with app_world(more=[make_till()]) as h:
        document = await h.get_json("/openapi.json")
        assert [path for path in document["paths"] if path.startswith("/hooks")] == ["/hooks/{clog_id}/{name}"]
        assert "paid" not in (await h.get("/docs")).text


@pytest.mark.parametrize("session", ["s1", lambda delivery: delivery.body["project"]], ids=["said", "read"])
async def test_a_webhook_may_be_called_in_a_session(session: Any) -> None:
    clog = Clog("till")

    @clog.webhook("paid", secrets="env:PAID_SECRET", session=session)
    async def paid(tick: Tick, delivery: Delivery) -> Any:
        rows = await tick.read(session=True, keys=["order-1"])
        await tick.write(session=(rows.session or 0) + 1)
        found = rows.by_key["order-1"]
        return [tick.session_id, found and found.run_id]

    async with app_world(more=[clog]) as h:
        run = await h.w.ocean.create_run(session_id="s1", clog_id="till", dedupe_key="order-1")
        response = await deliver(h, {"project": "s1"})
        assert response.json()["answer"] == ["s1", run.run_id]


async def test_a_session_that_cannot_be_read_is_refused() -> None:
    def session(delivery: Delivery) -> str:
        if "project" not in delivery.body:
            raise Refuse("no project", code="no_project", http_status=400)
        project: str = delivery.body["project"]
        return project

    clog = Clog("till")

    @clog.webhook("paid", secrets="env:PAID_SECRET", session=session)
    async def paid(tick: Tick, delivery: Delivery) -> Any:
        return tick.session_id

    async with app_world(more=[clog]) as h:
        for body, status, code in (({}, 400, "no_project"), ({"project": 5}, 400, "invalid_value")):
            response = await deliver(h, body)
            assert (response.status_code, error_of(response)["code"]) == (status, code)
        assert (await deliver(h, {"project": "p"})).json() == {"answer": "p", "replayed": False}


async def test_a_delivery_is_counted_by_its_route_and_not_by_its_webhook() -> None:
    async with app_world(more=[make_till()]) as h:
        await deliver(h, {})
        metrics = (await h.get("/metrics")).text
        assert 'ocean_http_requests_total{method="POST",route="/hooks/{clog_id}/{name}"' in metrics
