"""Every target gets every webhook until it has acknowledged it, and not again after that."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from clogs.webhook_relay import ATTEMPTS, SECRET_IN, SECRET_OUT, TARGETS, webhook_relay
from ocean import Event, RunInfo, sign_webhook
from ocean.testing import Outside, World, crash_everywhere, world
from tests.clogs.sites import Reply, a_site
from tests.invariants import check

pytestmark = pytest.mark.anyio

IN, OUT = ("whsec_" + base64.b64encode(byte * 32).decode() for byte in (b"i", b"o"))
BODY = {"order": 17, "note": "größer"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_IN, IN)
    monkeypatch.setenv(SECRET_OUT, OUT)


@asynccontextmanager
async def relay(*hosts: str) -> AsyncIterator[World]:
    async with world(clogs=[webhook_relay], private_hosts=hosts) as w:
        yield w
        await check(w)


async def send(w: World, id: str = "msg_1", body: Any = BODY, secret: str = IN) -> Any:
    raw = json.dumps(body).encode()
    headers = sign_webhook(secret, id, raw, sent_at=w.clock.now())
    return await w.request("POST", "/hooks/webhook-relay/in", body=raw, headers=headers)


async def runs(w: World) -> list[RunInfo]:
    return list((await w.ocean.list_runs(clog_id="webhook-relay", order="oldest")).runs)


async def emitted(w: World, type: str) -> list[Event]:
    return await w.ocean.read_events(types=[type])


async def wait_long(w: World) -> None:
    for _ in range(12):
        await w.wait(7 * 3_600_000)


async def test_each_target_gets_a_webhook_once_with_a_new_signature_whatever_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_site() as one, a_site(Reply(201)) as two:
        monkeypatch.setenv(TARGETS, f"{one.url} {two.url} {one.url}")
        async with relay(one.host, two.host) as w:
            assert (await send(w)).json() == {"answer": {"targets": 2}, "replayed": False}
            assert (await send(w)).json()["replayed"] is True
            await w.drain()
            assert (await send(w)).json()["replayed"] is True
            await wait_long(w)
            assert sorted(run.output["status"] for run in await runs(w)) == [200, 201]
    for site in (one, two):
        (request,) = site.requests
        assert json.loads(request.body) == BODY
        assert (request.headers["webhook-id"], request.headers["idempotency-key"]) == ("msg_1", "msg_1")
        sent_at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
        assert request.headers["webhook-signature"] == Webhook(OUT).sign("msg_1", sent_at, request.body.decode())


async def test_a_target_that_is_down_is_tried_again_and_the_other_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_site() as fine, a_site(Reply(500), Reply(503, headers={"Retry-After": "90"}), Reply(204)) as weak:
        monkeypatch.setenv(TARGETS, f"{fine.url} {weak.url}")
        async with relay(fine.host, weak.host) as w:
            await send(w)
            await w.drain()
            assert (len(fine.requests), len(weak.requests)) == (1, 1)
            await w.wait(6_000)
            assert len(weak.requests) == 2
            await w.wait(89_000)
            assert len(weak.requests) == 2
            await w.wait(1_000)
            assert (len(fine.requests), len(weak.requests)) == (1, 3)
            assert {run.status for run in await runs(w)} == {"done"}
    assert {request.headers["webhook-id"] for request in weak.requests} == {"msg_1"}
    assert len({request.headers["webhook-signature"] for request in weak.requests}) == 3


async def test_what_was_never_acknowledged_is_a_dead_letter_and_can_be_sent_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_site(Reply(500, b"a stack trace with a password")) as site:
        monkeypatch.setenv(TARGETS, site.url)
        async with relay(site.host) as w:
            await send(w)
            await wait_long(w)
            assert len(site.requests) == ATTEMPTS.max_attempts
            (dead,) = (await w.ocean.list_runs(clog_id="webhook-relay", attributes={"dead": True})).runs
            assert dead.error == {
                "code": "not_acknowledged",
                "message": "the target responded with 500",
                "details": None,
            }
            assert [event.payload["delivery"] for event in await emitted(w, "relay.dead")] == ["msg_1"]
            assert not any("password" in str(event.payload) for event in await w.ocean.read_events(limit=1_000))
            site.replies = [Reply()]
            again = await w.ocean.retry_run(dead.run_id)
            assert (await w.ocean.retry_run(dead.run_id)).run_id == again.run_id
            await w.drain()
            assert await w.ocean.result(again.run_id) == {"status": 200}
            assert (await send(w)).json()["replayed"] is True
            await wait_long(w)
            assert len(site.requests) == ATTEMPTS.max_attempts + 1


@pytest.mark.parametrize(("status", "allowed", "code"), [(410, True, "gone"), (200, False, "fetch_refused")])
async def test_a_permanent_error_is_a_dead_letter_at_once(
    status: int, allowed: bool, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_site(Reply(status)) as site:
        monkeypatch.setenv(TARGETS, site.url)
        async with relay(*([site.host] if allowed else [])) as w:
            await send(w)
            await w.drain()
            (run,) = await runs(w)
            assert run.error is not None
            assert (run.status, run.error["code"], run.attributes["dead"]) == ("failed", code, True)
    assert len(site.requests) == int(allowed)


async def test_an_unsigned_webhook_or_one_without_targets_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with relay() as w:
        monkeypatch.setenv(TARGETS, "")
        assert (await send(w, "msg_1")).status == 503
        monkeypatch.setenv(TARGETS, "https://target.example/")
        monkeypatch.delenv(SECRET_OUT)
        assert (await send(w, "msg_2")).status == 503
        assert (await send(w, "msg_3", secret=OUT)).status == 401
        assert await runs(w) == []
        monkeypatch.setenv(SECRET_OUT, OUT)
        assert (await send(w, "msg_1")).json() == {"answer": {"targets": 1}, "replayed": False}
        made = await w.request("POST", "/v1/runs", json={"sessionId": "s", "clogId": "webhook-relay", "input": {}})
        assert made.status == 403
        assert len(await runs(w)) == 1


@pytest.mark.sqlite
async def test_a_crash_at_any_place_loses_nothing_and_delivers_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TARGETS, "https://one.example/ https://two.example/")

    def outside() -> Outside:
        made = Outside()
        made.answer("POST https://*.example/", {})
        return made

    async def scenario(w: World) -> None:
        await send(w)
        await w.drain()

    requests: list[int] = []

    async def count(w: World) -> None:
        requests.append(sum(call.kind == "fetch" for call in w.outside.calls))

    report = await crash_everywhere([webhook_relay], scenario, outside=outside, check=count)
    after_the_answer = [n for point, n in zip(report.killed, requests[2:], strict=True) if "emit" in point.what]
    assert after_the_answer == [2, 2], "an answer that was stored was requested again"
