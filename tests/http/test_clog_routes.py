"""The routes of a clog: paths, error form, limits, and routes that are refused at the start."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import anyio
import httpx2
import pytest
from pydantic import BaseModel, ConfigDict

from ocean import Clog, ClogError, Incoming, InvalidValue, Refuse, Reply, RunStatus, StoreBusy
from ocean.http.app import make_app
from ocean.http.framework.clog_routes import rendered
from ocean.testing import world
from tests.http.kit import AppWorld, app_world
from tests.http.shop_clog import LIMIT, envelope, make_shop
from tests.lifecycle.acting import look

pytestmark = pytest.mark.anyio


def shop_error(response: httpx2.Response, status: int, code: str) -> Any:
    """Return the message of an error in the shop's form after checking it."""
    assert (response.status_code, response.headers["x-shop"]) == (status, "closed")
    body = response.json()
    assert (set(body), body["shop"]) == ({"shop", "error"}, "v1")
    error = body["error"]
    assert (error["code"], error["request_id"]) == (f"SHOP_{code.upper()}", response.headers["x-request-id"])
    return error["text"]


async def an_order(h: AppWorld) -> str:
    return (await h.w.ocean.create_run(session_id="s", clog_id="shop")).run_id


async def test_a_route_responds_as_its_contract_defines() -> None:
    async with app_world(more=[make_shop()]) as h:
        order = await an_order(h)
        paid = await h.post(f"/shop/orders/{order}:pay", {"mode": "now"})
        assert (paid.status_code, paid.json(), paid.headers["x-shop"]) == (202, {"paid": ["now"], "by": None}, "open")
        assert paid.headers["cache-control"] == "no-store"
        assert (await h.get(f"/shop/orders/{order}")).json() == {"order": order, "status": "pending"}
        assert (await h.http.head(f"/shop/orders/{order}")).status_code == 200


async def test_a_change_pokes_what_is_due() -> None:
    async with app_world(more=[make_shop()], poke_ms=500) as h:
        order = await an_order(h)
        await h.post(f"/shop/orders/{order}:pay")
        assert (await look(h.w, order)).status is RunStatus.DONE


async def test_an_empty_body_is_an_empty_object() -> None:
    async with app_world(more=[make_shop()]) as h:
        response = await h.http.post(f"/shop/orders/{await an_order(h)}:pay")
        assert (response.status_code, response.json()["paid"]) == (202, ["now"])


async def test_a_key_makes_the_route_repeatable() -> None:
    async with app_world(more=[make_shop()]) as h:
        order = await an_order(h)
        key = {"Idempotency-Key": "k"}
        first = await h.post(f"/shop/orders/{order}:pay", {}, headers=key)
        again = await h.post(f"/shop/orders/{order}:pay", {}, headers=key)
        assert (first.content, first.status_code) == (again.content, again.status_code)
        other = await h.post(f"/shop/orders/{order}:pay", {"mode": "later"}, headers=key)
        shop_error(other, 409, "request_key_reused")
        refused = await h.post("/shop/json", {}, headers=key)
        assert "does not accept Idempotency-Key" in shop_error(refused, 400, "idempotency_key_not_taken")
        assert (await look(h.w, order)).pending_count == 1
        twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("content-type", "application/json")]
        shop_error(await h.http.post(f"/shop/orders/{order}:pay", headers=twice, content=b"{}"), 400, "invalid_value")


REFUSALS: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", "/shop/orders/{order}:pay", {"json": {"mode": "never"}}, 400, "invalid_body"),
    ("POST", "/shop/orders/{order}:pay", {"json": {"more": 1}}, 400, "invalid_body"),
    ("POST", "/shop/orders/{order}:pay", {"json": []}, 400, "invalid_body"),
    ("POST", "/shop/orders/gone:pay", {"json": {}}, 404, "run_not_found"),
    ("POST", "/shop/orders/{order}:pay", {"content": b"{}"}, 415, "wrong_content_type"),
    ("POST", "/shop/orders/{order}:pay", {"json": "x" * LIMIT}, 400, "body_too_large"),
    ("POST", "/shop/orders/{order}:pay", {"json": {"mode": "later"}}, 422, "too_late"),
    ("POST", "/shop/orders/{order}", {"json": {}}, 405, "method_not_allowed"),
    ("PATCH", "/shop/do/x", {"json": {}}, 405, "method_not_allowed"),
    ("GET", "/shop/orders?limit=0", {}, 400, "invalid_query"),
    ("GET", "/shop/orders?limit=1&limit=2", {}, 400, "invalid_query"),
    ("GET", "/shop/orders?surprise=1", {}, 400, "invalid_query"),
    ("POST", "/shop/do/refuse", {"json": {}}, 410, "no_stock"),
    ("POST", "/shop/do/break", {"json": {}}, 500, "internal"),
    ("POST", "/shop/do/nonsense", {"json": {}}, 500, "internal"),
    ("POST", "/shop/do/header", {"json": {}}, 500, "internal"),
]


@pytest.mark.parametrize(("method", "path", "sent", "status", "code"), REFUSALS)
async def test_every_error_has_the_clogs_own_form(
    method: str, path: str, sent: dict[str, Any], status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_world(more=[make_shop()]) as h:
        response = await h.http.request(method, path.replace("{order}", await an_order(h)), **sent)
        text = shop_error(response, status, code)
        assert "secret" not in response.text
        assert "Traceback" not in response.text
        if status == 405:
            assert response.headers["allow"] in ("GET, HEAD", "POST")
        if code == "body_too_large":
            assert response.headers["connection"] == "close"
        if code == "internal":
            assert response.headers["x-request-id"] in text
            assert response.headers["x-request-id"] in caplog.text


@pytest.mark.parametrize("body", [b'{"a": 1, "a": 2}', b"NaN", b"", b"{", b'"\xff"'])
async def test_json_is_parsed_strictly(body: bytes) -> None:
    async with app_world(more=[make_shop()]) as h:
        response = await h.http.post("/shop/json", content=body, headers={"content-type": "application/json"})
        shop_error(response, 400, "not_json")


async def test_only_routes_that_declare_it_take_bodies_other_than_json() -> None:
    async with app_world(more=[make_shop()]) as h:
        echo = await h.http.post("/shop/echo", content=b"\x00\xff", headers={"content-type": "image/x"})
        assert (echo.content, echo.headers["content-type"]) == (b"\x00\xff", "image/x")
        assert echo.headers["x-content-type-options"] == "nosniff"
        nothing = await h.post("/shop/do/nothing")
        assert (nothing.status_code, nothing.content) == (204, b"")


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection", "X Y", ""])
async def test_a_clog_cannot_set_framing_headers(name: str) -> None:
    with pytest.raises(ClogError, match="must not have the header"):
        rendered(Reply("x", headers={name: "1"}))


async def test_only_handled_requests_that_may_change_something_poke() -> None:
    async with app_world(more=[make_shop()], poke_ms=10) as h:
        pokes = h.w.ocean.observed.pokes
        created = await h.w.ocean.create_api_key("ann", ["admin"])
        h.http.headers["authorization"] = f"Bearer {created.key}"
        assert (await h.get("/shop/orders")).status_code == 200
        assert (await h.http.post("/shop/json", headers={"authorization": "Bearer x"})).status_code == 401
        assert (await h.http.post("/shop/json", content=b"{}", headers={"content-type": "x/y"})).status_code == 415
        assert "request" not in pokes
        assert (await h.post("/shop/json")).status_code == 200
        assert (await h.post("/shop/do/refuse")).status_code == 410
        assert pokes["request"].count == 2


async def test_a_query_is_an_instance_of_the_routes_model() -> None:
    async with app_world(more=[make_shop()]) as h:
        assert await h.get_json("/shop/orders", limit=3, tag=["a", "b"]) == {"limit": 3, "tag": ["a", "b"]}


async def test_the_most_specific_path_is_matched_first() -> None:
    """In any order of declaration, and by any clog."""
    loose, strict = Clog("loose"), Clog("strict")

    def add_route(clog: Clog, path: str) -> None:
        @clog.route("POST", path, access="signal")
        async def echo_path(incoming: Incoming) -> Any:
            return [path, dict(incoming.path)]

    for path in ("/a/{rest:path}", "/a/{id}", "/a/{id}/{more}"):
        add_route(loose, path)
    for path in ("/a/b", "/a/{id}:do", "/a/{id}/c"):
        add_route(strict, path)
    async with app_world(more=[loose, strict]) as h:

        async def matched(path: str) -> Any:
            return (await h.http.post(path)).json()

        assert await matched("/a/b") == ["/a/b", {}]
        assert await matched("/a/x:do") == ["/a/{id}:do", {"id": "x"}]
        assert await matched("/a/x") == ["/a/{id}", {"id": "x"}]
        assert await matched("/a/x/c") == ["/a/{id}/c", {"id": "x"}]
        assert await matched("/a/x/y") == ["/a/{id}/{more}", {"id": "x", "more": "y"}]
        assert await matched("/a/x%2Fy:do") == ["/a/{id}:do", {"id": "x/y"}]
        assert await matched("/a/x%3Ado") == ["/a/{id}:do", {"id": "x"}]
        assert await matched("/a/%7Bid%7D") == ["/a/{id}", {"id": "{id}"}]
        assert await matched("/a/%2562") == ["/a/{id}", {"id": "%62"}]
        assert await matched("/a/x/y/z") == ["/a/{rest:path}", {"rest": "x/y/z"}]


async def test_a_clog_without_its_own_error_form_has_oceans() -> None:
    clog = Clog("plain")

    @clog.route("GET", "/plain", access="read")
    async def fail(incoming: Incoming) -> Any:
        raise RuntimeError("a secret")

    @clog.route("PUT", "/plain", access="read", errors=lambda refusal, incoming: [refusal.code])
    async def put(incoming: Incoming) -> Any:
        return incoming.json()

    async with app_world(more=[clog]) as h:
        broken = await h.get("/plain")
        assert (broken.status_code, broken.json()["error"]["code"]) == (500, "internal")
        assert "secret" not in broken.text
        own = await h.http.put("/plain")
        assert (own.status_code, own.json()) == (400, ["not_json"])


async def test_a_header_set_by_the_error_form_is_not_overwritten() -> None:
    def own(refusal: Any, incoming: Any) -> Any:
        return Reply(refusal.code, 401, {"WWW-Authenticate": "JWT"})

    clog = Clog("plain", errors=lambda refusal, incoming: refusal.code)
    clog.route("GET", "/plain/own", access="read", errors=own)(handler)
    clog.route("GET", "/plain/ours", access="read")(handler)
    async with app_world(more=[clog]) as h:
        await h.w.ocean.create_api_key("ann", ["read"])
        for path, challenge in (("/plain/own", "JWT"), ("/plain/ours", 'Bearer realm="ocean"')):
            response = await h.get(path)
            assert (response.json(), response.headers.get_list("www-authenticate")) == (
                "not_authenticated",
                [challenge],
            )


@pytest.mark.parametrize("what", ["break", "nonsense", "busy"])
async def test_an_unexpected_error_is_logged_once(what: str, caplog: pytest.LogCaptureFixture) -> None:
    clog = Clog("plain", errors=envelope)

    @clog.route("POST", "/plain", access="signal")
    async def fail(incoming: Incoming) -> Any:
        if what == "nonsense":
            return {1}
        raise StoreBusy("wait") if what == "busy" else RuntimeError("x")

    async with app_world(more=[clog]) as h:
        assert (await h.post("/plain")).status_code >= 500
    assert len([record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]) == 1


async def test_a_failing_error_function_reveals_nothing() -> None:
    def broken(refusal: Any, incoming: Any) -> Any:
        raise RuntimeError("a secret")

    clog = Clog("plain", errors=broken)

    @clog.route("GET", "/plain", access="read")
    async def fail(incoming: Incoming) -> Any:
        raise RuntimeError("another secret")

    async with app_world(more=[clog]) as h:
        response = await h.get("/plain")
        assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
        assert "secret" not in response.text


async def test_only_open_routes_see_the_key() -> None:
    seen: dict[str, Any] = {}
    clog = Clog("seer")

    def add_route(path: str, access: Literal["read", "open"]) -> None:
        @clog.route("GET", path, access=access)
        async def show_access(incoming: Incoming) -> Any:
            seen[path] = incoming.headers
            return [sorted(incoming.access.scopes), incoming.access.sees("s")]

    add_route("/seer/closed", "read")
    add_route("/seer/open", "open")
    async with app_world(more=[clog]) as h:
        headers = [("x-more", "a"), ("X-More", "b")]
        created = await h.w.ocean.create_api_key("ann", ["read"])
        bearer = ("authorization", f"Bearer {created.key}")
        assert (await h.http.get("/seer/closed", headers=[*headers, bearer, ("cookie", "a=b")])).json()[1] is True
        assert (await h.http.get("/seer/open", headers=[*headers, ("authorization", "JWT x")])).json() == [[], False]
    assert not {"authorization", "cookie"} & seen["/seer/closed"].keys()
    assert seen["/seer/open"]["authorization"] == "JWT x"
    assert seen["/seer/open"]["x-more"] == "a, b"


async def test_the_served_document_has_the_clogs_routes() -> None:
    async with app_world(more=[make_shop()]) as h:
        document = await h.get_json("/openapi.json")
        pay = document["paths"]["/shop/orders/{order_id}:pay"]["post"]
        assert (pay["summary"], pay["x-ocean-scope"], pay["tags"]) == ("Pay an order", "signal", ["shop"])
        assert [each["name"] for each in pay["parameters"]] == ["order_id", "Idempotency-Key"]
        ref = pay["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert document["components"]["schemas"][ref.rpartition("/")[2]]["properties"].keys() == {"mode"}
        found = document["paths"]["/shop/orders"]["get"]["parameters"]
        assert [(each["name"], each["in"]) for each in found] == [("limit", "query"), ("tag", "query")]
        assert "/v1/runs" in document["paths"]
        assert [path for path in document["paths"] if path.startswith("/hooks")] == []
        page = (await h.get("/docs")).text
        assert "/shop/orders/{order_id}:pay" in page
        assert "Pay an order" in page


async def handler(incoming: Incoming) -> Any:
    return None


def refuses(make: Callable[[Clog], Any], *parts: str) -> None:
    clog = Clog("c1")
    with pytest.raises(InvalidValue) as refusal:
        make(clog)
    for part in parts:
        assert part in refusal.value.message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"access": "everybody"}, ("GET /x of clog 'c1'", "'open'", "'everybody'")),
        ({"path": "x"}, ("the path must be like",)),
        ({"path": "/"}, ("the path must be like",)),
        ({"path": "/x/"}, ("the path must be like",)),
        ({"path": "/x//y"}, ("the path must be like",)),
        ({"path": "/x/../y"}, ("the path must be like",)),
        ({"path": "/x/{"}, ("the path must be like",)),
        ({"path": "/x/{a:int}"}, ("the path must be like",)),
        ({"path": "/x/y?z"}, ("the path must be like",)),
        ({"path": 5}, ("the path must be like",)),
        ({"path": "/x/{a}", "access": "open", "session": "a"}, ("session must be left out",)),
        ({"path": "/x/{a}{b}"}, ("would be ambiguous",)),
        ({"path": "/x/{a}-{b}/c"}, ("would be ambiguous",)),
        ({"path": "/x/{a:path}/y/{b:path}"}, ("would be ambiguous",)),
        ({"path": "/{x}"}, ("must begin with a word",)),
        ({"path": "/x/{a}/{a}"}, ("must have different names",)),
        ({"path": "/x/{a}", "session": "b"}, ("session must be one of ['a']",)),
        ({"method": "get"}, ("'GET'",)),
        ({"most_bytes": -1}, ("most_bytes",)),
        ({"keyed": 1}, ("keyed",)),
        ({"keyed": "mine"}, ("keyed",)),
        ({"check": "ok"}, ("check of GET /x", "a function of an Incoming")),
        ({"body": dict}, ("pydantic models",)),
    ],
)
def test_an_invalid_route_is_refused_at_its_declaration(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    given: dict[str, Any] = {"method": "GET", "path": "/x", "access": "read"} | changes
    refuses(lambda clog: clog.route(given.pop("method"), given.pop("path"), **given)(handler), *parts)


async def starts(*clogs: Clog) -> None:
    async with world(clogs=clogs) as w:
        make_app(w.ocean)


async def test_a_route_without_an_access_policy_stops_the_start() -> None:
    clog = Clog("c1")
    clog.route("POST", "/x/{id}")(handler)
    with pytest.raises(InvalidValue, match=r"POST /x/\{id\} of clog 'c1' must have an access policy"):
        await starts(clog)


@pytest.mark.parametrize("path", ["/v1/more", "/hooks/c1/x", "/healthz", "/docs", "/metrics", "/openapi.json"])
async def test_a_route_that_collides_with_oceans_own_stops_the_start(path: str) -> None:
    clog = Clog("c1")
    clog.route("GET", path, access="open")(handler)
    with pytest.raises(InvalidValue, match=f"GET {path} of clog 'c1' must not begin with a path of Ocean's own routes"):
        await starts(clog)


async def test_two_equal_routes_stop_the_start() -> None:
    one, other = Clog("one"), Clog("other")
    one.route("GET", "/x/{a}", access="read")(handler)
    other.route("PUT", "/x/{b}", access="read")(handler)
    await starts(one, other)
    other.route("GET", "/x/{b}", access="read")(handler)
    with pytest.raises(
        InvalidValue, match=r"GET /x/\{b\} of clog 'other' must not have the same path as GET /x/\{a\} of"
    ):
        await starts(one, other)


def test_a_clog_declares_what_the_generic_routes_may_do() -> None:
    everything = {"create", "signal", "call", "cancel", "pause", "retry", "delete", "work"}
    assert Clog("a").allows == everything
    assert make_shop().allows == set()
    assert make_shop(generic=["create", "signal"]).allows == {"create", "signal"}
    assert Clog("a", generic=[]).allows == set()
    with pytest.raises(InvalidValue, match="each of generic must be 'create'"):
        Clog("a", generic=["read"])  # type: ignore[list-item]
    with pytest.raises(InvalidValue, match="generic must be a list"):
        Clog("a", generic="signal")  # type: ignore[arg-type]


async def test_a_world_can_receive_requests_like_a_server() -> None:
    async with world(clogs=[make_shop()]) as w:
        order = (await w.ocean.create_run(session_id="s", clog_id="shop")).run_id
        paid = await w.request("POST", f"/shop/orders/{order}:pay", json={"mode": "now"})
        assert (paid.status, paid.json()["paid"], paid.headers["x-shop"]) == (202, ["now"], "open")
        echo = await w.request("POST", "/shop/echo", body=b"x", headers={"Content-Type": "text/x"})
        assert (echo.body, echo.headers["content-type"]) == (b"x", "text/x")
        assert (await w.request("GET", "/shop/orders?limit=3")).json()["limit"] == 3
        for path in ("/shop/projects/é a%2Fb/orders", "/shop/projects/%C3%A9%20a%2Fb/orders"):
            assert (await w.request("GET", path)).json() == ["é a/b"]


async def test_a_key_whose_request_is_running_is_refused() -> None:
    clog, started, proceed = Clog("slow", errors=envelope), anyio.Event(), anyio.Event()

    @clog.route("POST", "/slow", access="signal", keyed=True)
    async def work(incoming: Incoming) -> Any:
        started.set()
        await proceed.wait()
        return "done"

    async with app_world(more=[clog]) as h, anyio.create_task_group() as tasks:
        responses: list[httpx2.Response] = []

        async def first() -> None:
            responses.append(await h.post("/slow", headers={"Idempotency-Key": "k"}))

        tasks.start_soon(first)
        await started.wait()
        shop_error(await h.post("/slow", headers={"Idempotency-Key": "k"}), 409, "request_running")
        proceed.set()
    assert [response.json() for response in responses] == ["done"]


async def test_a_contract_may_respond_to_a_repeated_running_request_itself() -> None:
    clog, started, proceed = Clog("slow", errors=envelope), anyio.Event(), anyio.Event()

    @clog.route("POST", "/slow", access="signal", keyed="own")
    async def work(incoming: Incoming) -> Any:
        if started.is_set():
            return f"{incoming.request_key} is at work"
        started.set()
        await proceed.wait()
        return "done"

    async with app_world(more=[clog]) as h, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(h.post, "/slow", headers={"Idempotency-Key": "k"}))
        await started.wait()
        assert (await h.post("/slow", headers={"Idempotency-Key": "k"})).json() == "k is at work"
        proceed.set()


class Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


async def test_a_check_is_called_after_authentication_and_before_the_body_is_read() -> None:
    clog = Clog("strict", errors=envelope)

    def has_header(incoming: Incoming) -> None:
        if "x-sub" not in incoming.headers:
            raise Refuse("x-sub is missing", code="no_sub", http_status=401)

    @clog.route("POST", "/strict", access="signal", check=has_header, body=Empty)
    async def work(incoming: Incoming) -> Any:
        return "done"

    async with app_world(more=[clog]) as h:
        shop_error(await h.post("/strict", {"more": 1}), 401, "no_sub")
        shop_error(await h.post("/strict", {"more": 1}, headers={"x-sub": "ann"}), 400, "invalid_body")
        assert (await h.post("/strict", headers={"x-sub": "ann"})).json() == "done"
        await h.w.ocean.create_api_key("ann", ["signal"])
        shop_error(await h.post("/strict"), 401, "not_authenticated")


async def test_a_reply_keeps_a_request_id_of_its_own() -> None:
    clog = Clog("own")

    @clog.route("GET", "/own", access="read")
    async def own(incoming: Incoming) -> Any:
        return Reply(incoming.request_id, headers={"X-Request-Id": "the-first"})

    async with app_world(more=[clog]) as h:
        response = await h.http.get("/own", headers={"X-Request-Id": "mine"})
        assert (response.json(), response.headers.get_list("x-request-id")) == ("mine", ["the-first"])
