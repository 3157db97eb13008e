"""Authentication: keys, cookies with CSRF tokens, and servers without keys, which serve only their own machine."""

from functools import partial
from typing import Any

import anyio
import httpx2
import pytest

from ocean import Clog, Ok, Outcome, Tick
from ocean.http.app import make_app
from ocean.http.framework.authorization import COOKIE
from ocean.http.streaming.sse import PING_MS, sse_response
from tests.http.kit import AppWorld, app_world, error_of
from tests.lifecycle.acting import let_others_go_on
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

MACHINE = "http://127.0.0.1"


def client(h: AppWorld, base_url: str = MACHINE, address: str = "127.0.0.1", **settings: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(make_app(h.w.ocean, poke_ms=0, **settings), client=(address, 1))
    return httpx2.AsyncClient(transport=transport, base_url=base_url)


async def signed_in(h: AppWorld, http: httpx2.AsyncClient, **options: Any) -> str:
    """Sign in, so that the client has a cookie, and return its CSRF token."""
    created = await h.w.ocean.create_api_key("ann", ["read", "signal"], **options)
    response = await http.post("/v1/session", json={"key": created.key})
    assert response.status_code == 201
    token: str = response.json()["csrfToken"]
    return token


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.1:8080", "[::1]:8080"])
async def test_without_keys_this_machine_may_do_everything(name: str) -> None:
    async with app_world() as h:
        response = await h.http.post("/v1/advance", json={}, headers={"host": name})
        assert response.status_code == 200


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
async def test_without_keys_a_foreign_host_name_is_refused(name: str) -> None:
    async with app_world() as h:
        response = await h.http.get("/v1/runs", headers={"host": name})
        assert (response.status_code, error_of(response)["code"]) == (421, "not_our_host")
        await h.w.ocean.create_api_key("ann", ["read"])
        assert (await h.http.get("/v1/runs", headers={"host": name})).status_code == 401


async def test_without_keys_more_host_names_can_be_accepted() -> None:
    async with app_world() as h, client(h, "http://house", hosts=["house"]) as http:
        assert (await http.get("/v1/runs")).status_code == 200


@pytest.mark.parametrize("address", ["10.0.0.1", "8.8.8.8", "::2", "testclient"])
async def test_without_keys_another_machine_is_refused(address: str) -> None:
    async with app_world() as h, client(h, address=address) as http:
        response = await http.get("/v1/runs")
        assert (response.status_code, error_of(response)["code"]) == (401, "not_authenticated")
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"origin": MACHINE + ":1"},
        {"origin": "http://["},
        {"origin": ""},
        {"origin": "127.0.0.1"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_without_keys_a_page_of_another_origin_is_refused(headers: dict[str, str]) -> None:
    async with app_world() as h:
        response = await h.http.get("/v1/runs", headers=headers)
        assert (response.status_code, error_of(response)["code"]) == (403, "foreign_origin")
        for ours in ({"origin": MACHINE}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
            assert (await h.http.get("/v1/runs", headers=ours)).status_code == 200


@pytest.mark.parametrize(
    "name", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
)
async def test_without_keys_a_request_through_a_proxy_is_refused(name: str) -> None:
    """Behind a proxy on this machine every client has a loopback address, and clients can set the headers."""
    async with app_world() as h:
        response = await h.http.get("/v1/runs", headers={name: "127.0.0.1"})
        assert (response.status_code, error_of(response)["code"]) == (401, "not_authenticated")
        created = await h.w.ocean.create_api_key("ann", ["read"])
        headers = {name: "127.0.0.1", "authorization": f"Bearer {created.key}"}
        assert (await h.http.get("/v1/runs", headers=headers)).status_code == 200


async def test_an_empty_origin_does_not_match_an_empty_host() -> None:
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        headers = {"origin": "null", "host": ""}
        response = await h.http.post("/v1/session", json={"key": created.key}, headers=headers)
        assert (response.status_code, error_of(response)["code"]) == (403, "foreign_origin")


async def test_the_first_key_closes_the_server_and_revoking_the_last_does_not_open_it() -> None:
    async with app_world() as h:
        assert (await h.get("/v1/runs")).status_code == 200
        created = await h.w.ocean.create_api_key("ann", ["read"])
        assert (await h.get("/v1/runs")).status_code == 401
        await h.w.ocean.revoke_api_key(created.info.key_id)
        assert (await h.get("/v1/runs")).status_code == 401


@pytest.mark.parametrize("form", ["{key}", "Basic {key}", "Bearer", "Bearer {key} x", "Bearer  x", "Token {key}"])
async def test_a_header_that_is_not_a_bearer_key_is_refused(form: str) -> None:
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        good = {"authorization": f"bearer {created.key}"}
        assert (await h.http.get("/v1/runs", headers=good)).status_code == 200
        response = await h.http.get("/v1/runs", headers={"authorization": form.format(key=created.key)})
        assert (response.status_code, error_of(response)["code"]) == (401, "not_authenticated")
        assert created.key not in response.text


async def test_two_authorization_headers_are_refused() -> None:
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        header = ("authorization", f"Bearer {created.key}")
        assert (await h.http.get("/v1/runs", headers=[header, header])).status_code == 401


async def test_a_key_in_the_url_is_not_accepted() -> None:
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        for query in ({"key": created.key}, {"access_token": created.key}):
            response = await h.http.get("/v1/events", params=query, headers={"accept": "text/event-stream"})
            assert response.status_code == 401


async def test_a_cookie_may_read_and_with_its_token_may_change() -> None:
    async with app_world() as h:
        run_id = await h.new_run()
        csrf = await signed_in(h, h.http)
        session = await h.get_json("/v1/session")
        assert session == {
            "actor": "ann",
            "roles": [],
            "scopes": ["read", "signal"],
            "sessions": None,
            "csrfToken": csrf,
        }
        assert (await h.get(f"/v1/runs/{run_id}")).status_code == 200
        for wrong in ({}, {"x-csrf-token": ""}, {"x-csrf-token": csrf[:-1] + "x"}, {"x-csrf-token": "ä"}):
            sent = {name.encode(): value.encode() for name, value in wrong.items()}
            response = await h.http.post(f"/v1/runs/{run_id}/signal", json={}, headers=sent)
            assert (response.status_code, error_of(response)["code"]) == (403, "wrong_csrf_token")
        response = await h.http.post(f"/v1/runs/{run_id}/signal", json={}, headers={"x-csrf-token": csrf})
        assert response.status_code == 202
        (event,) = await h.w.ocean.read_events(run_id, types=["run.signalled"])
        assert event.actor == "ann"


async def test_a_cookie_sent_for_a_page_of_another_origin_is_refused() -> None:
    async with app_world() as h:
        csrf = await signed_in(h, h.http)
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            response = await h.http.get("/v1/runs", headers=headers | {"x-csrf-token": csrf})
            assert (response.status_code, error_of(response)["code"]) == (403, "foreign_origin")


async def test_a_page_of_another_origin_cannot_sign_a_browser_in() -> None:
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        response = await h.http.post(
            "/v1/session", json={"key": created.key}, headers={"origin": "http://evil.example"}
        )
        assert error_of(response)["code"] == "foreign_origin"
        assert "set-cookie" not in response.headers


@pytest.mark.parametrize(("scheme", "name"), [("http", COOKIE), ("https", f"__Host-{COOKIE}")])
async def test_a_cookie_is_hidden_from_scripts_and_other_sites(scheme: str, name: str) -> None:
    async with app_world() as h, client(h, f"{scheme}://127.0.0.1") as http:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        response = await http.post("/v1/session", json={"key": created.key})
        first, *flags = response.headers["set-cookie"].split("; ")
        assert first.startswith(f"{name}=")
        assert {flag.lower() for flag in flags} >= {"httponly", "samesite=strict", "path=/"}
        assert ("Secure" in flags) == (scheme == "https")
        assert first.partition("=")[2] not in response.text
        assert (await http.get("/v1/runs")).status_code == 200


async def test_a_wrong_key_gets_no_cookie() -> None:
    async with app_world() as h:
        await h.w.ocean.create_api_key("ann", ["read"])
        for body, status in (({"key": "nope"}, 401), ({}, 400), ({"key": 1}, 400)):
            response = await h.post("/v1/session", body)
            assert response.status_code == status
            assert "set-cookie" not in response.headers


async def test_a_cookie_ends_on_sign_out_with_its_key_and_on_expiry() -> None:
    async with app_world() as h:
        csrf = await signed_in(h, h.http)
        assert (await h.http.delete("/v1/session")).status_code == 403, "it needs the token too"
        kept = h.http.cookies[COOKIE]
        response = await h.http.delete("/v1/session", headers={"x-csrf-token": csrf})
        assert response.json() == {"ended": True}
        assert COOKIE not in h.http.cookies
        response = await h.http.get("/v1/runs", headers={"cookie": f"{COOKIE}={kept}"})
        assert (response.status_code, error_of(response)["code"]) == (401, "not_authenticated")

        await signed_in(h, h.http)
        for key in await h.w.ocean.list_api_keys():
            await h.w.ocean.revoke_api_key(key.key_id)
        assert (await h.get("/v1/runs")).status_code == 401

        await signed_in(h, h.http)
        h.w.clock.advance(12 * 3_600_000 - 1)
        assert (await h.get("/v1/runs")).status_code == 200
        h.w.clock.advance(1)
        assert (await h.get("/v1/runs")).status_code == 401


async def test_an_invalid_key_is_refused_even_with_a_valid_cookie() -> None:
    async with app_world() as h:
        await signed_in(h, h.http)
        response = await h.http.get("/v1/runs", headers={"authorization": "Bearer nope"})
        assert response.status_code == 401


async def test_a_key_needs_no_token_and_may_be_sent_by_any_page() -> None:
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["advance"])
        headers = {"authorization": f"Bearer {created.key}", "origin": "http://elsewhere.example"}
        assert (await h.http.post("/v1/advance", json={}, headers=headers)).status_code == 200
        assert (await h.http.get("/v1/session", headers=headers)).json()["csrfToken"] is None
        assert (await h.http.delete("/v1/session", headers=headers)).json() == {"ended": False}
        await signed_in(h, h.http)
        assert (await h.http.get("/v1/session", headers=headers)).json()["csrfToken"] is None
        assert (await h.http.delete("/v1/session", headers=headers)).json() == {"ended": False}
        assert COOKIE in h.http.cookies, "the browser keeps a cookie whose session has not ended"
        assert (await h.get("/v1/session")).status_code == 200


async def test_roles_and_actor_reach_the_clog_and_nothing_in_the_request_can_add_to_them() -> None:
    clog = Clog("who")

    @clog.method
    async def who(tick: Tick, payload: Any) -> Any:
        return [tick.caller.actor, *tick.caller.roles]

    async with app_world(more=[clog]) as h:
        created = await h.w.ocean.create_api_key("ann", ["signal"], roles=["owner"])
        headers = {"authorization": f"Bearer {created.key}", "x-actor": "bob", "x-afu9-sub": "bob"}
        response = await h.http.post("/v1/clogs/who/call/who", json={"payload": {"actor": "bob"}}, headers=headers)
        assert response.json() == {"answer": ["ann", "owner"]}


async def test_two_actors_may_choose_the_same_idempotency_key() -> None:
    async with app_world() as h:
        responses = []
        for actor in ("ann", "bob", "ann"):
            created = await h.w.ocean.create_api_key(actor, ["signal"])
            headers = {"authorization": f"Bearer {created.key}", "idempotency-key": "k" * 256}
            body = {"sessionId": "s", "clogId": "c"}
            responses.append(await h.http.post("/v1/runs", json=body, headers=headers))
        assert [response.status_code for response in responses] == [201] * 3
        ann, bob, ann_again = (response.json()["runId"] for response in responses)
        assert ann == ann_again != bob


async def test_an_open_stream_ends_when_its_key_is_revoked() -> None:
    """The next ping checks the key; the reader reconnects and is refused."""
    async with app_world() as h, anyio.create_task_group() as tasks:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        def has_sent(text: bytes) -> bool:
            return any(text in message.get("body", b"") for message in sent)

        async def next_ping() -> None:
            await let_others_go_on(h.w)
            h.w.clock.advance(PING_MS)

        app = make_app(h.w.ocean, stream=partial(sse_response, clock=h.w.clock))
        tasks.start_soon(app, streaming(created.key), nothing_more, send)
        await until(lambda: has_sent(b"retry:"))
        await next_ping()
        await until(lambda: has_sent(b": ping"))
        await h.w.ocean.revoke_api_key(created.info.key_id)
        await next_ping()
        await until(lambda: sent[-1].get("more_body") is False)
        assert sent[0]["status"] == 200


async def nothing_more() -> Any:
    await anyio.sleep_forever()


def streaming(key: str) -> dict[str, Any]:
    """Return a request for the stream of all events."""
    headers = {"host": "127.0.0.1", "accept": "text/event-stream", "authorization": f"Bearer {key}"}
    return {
        "type": "http",
        "method": "GET",
        "path": "/v1/events",
        "raw_path": b"/v1/events",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }


@pytest.fixture
def keeper() -> Clog:
    """A clog that allows only `cancel` to the generic routes."""
    clog = Clog("keeper", generic=["cancel"])

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Ok()

    @clog.method
    async def touch(tick: Tick, payload: Any) -> None: ...

    return clog


async def test_generic_routes_refuse_verbs_that_a_clog_does_not_allow(keeper: Clog) -> None:
    async with app_world(more=[keeper]) as h:
        await h.w.ocean.create_run(session_id="s", clog_id="keeper", run_id="r")
        await h.w.ocean.create_run(session_id="s", clog_id="c", run_id="free")
        for path, body in (
            ("/v1/runs", {"sessionId": "s", "clogId": "keeper"}),
            ("/v1/runs/r/signal", {}),
            ("/v1/runs/r/call/touch", {}),
            ("/v1/runs/r/pause", {}),
            ("/v1/runs/r/resume", {}),
            ("/v1/runs/r/retry", {}),
            ("/v1/runs/r/retry-end", {}),
            ("/v1/clogs/keeper/call/touch", {}),
            ("/v1/clogs/keeper/pause", {}),
            ("/v1/clogs/keeper/resume", {}),
            ("/v1/leases", {"clogId": "keeper", "workerId": "w"}),
            ("/v1/runs/delete", {"clogId": ["c", "keeper"]}),
        ):
            response = await h.post(path, body)
            assert (response.status_code, error_of(response)["code"]) == (403, "not_generic"), path
            assert error_of(response)["details"]["allows"] == ["cancel"]
        for path in ("/v1/runs/r", "/v1/sessions/s"):
            response = await h.http.delete(path)
            assert (response.status_code, error_of(response)["code"]) == (403, "not_generic")
        assert (await h.post("/v1/runs/delete", {"everything": True})).json()["done"] == 1
        assert await h.w.ocean.get_run("r") is not None
        assert await h.w.ocean.get_run("free") is None
        assert (await h.get("/v1/runs/r")).status_code == 200
        assert (await h.post("/v1/advance", {"runId": "r"})).status_code == 200
        assert (await h.post("/v1/runs/r/cancel", {})).status_code == 200


async def test_verbs_that_a_clog_does_not_allow_are_refused_by_a_process_without_the_clog(
    keeper: Clog, tmp_path: Any
) -> None:
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    async with app_world(url, more=[keeper]) as h:
        await h.w.ocean.create_run(session_id="s", clog_id="keeper", run_id="r")
    async with app_world(url) as h:
        assert error_of(await h.post("/v1/runs/r/signal", {}))["code"] == "not_generic"
        assert error_of(await h.post("/v1/runs", {"sessionId": "s", "clogId": "keeper"}))["code"] == "not_generic"


async def test_generic_routes_cannot_complete_a_lease_of_a_clog_that_does_not_allow_work() -> None:
    outside = Clog("outside", external=True, generic=[])
    async with app_world(more=[outside]) as h:
        await h.w.ocean.create_run(session_id="s", clog_id="outside", run_id="r", input=1)
        (lease,) = await h.w.ocean.claim_work("outside", "w")
        for verb, body in (("renew", {}), ("release", {}), ("complete", {"outcome": {"type": "done"}})):
            response = await h.post(f"/v1/leases/{lease.lease_id}/{verb}", body)
            assert (response.status_code, error_of(response)["code"]) == (403, "not_generic")
