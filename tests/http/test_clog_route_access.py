"""Every route of a clog with every kind of key that must be refused, and the clog's form of the error."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from ocean import Access, Clog, Incoming
from ocean.clog.routes import PARAMETER, Route, RouteAccess
from ocean.state.records import KEY_SCOPES, KeyScope
from tests.http.kit import AppWorld, app_world, error_of
from tests.http.shop_clog import make_shop
from tests.http.test_clog_routes import shop_error
from tests.stores.dump import changed, dump, of_sqlite

pytestmark = pytest.mark.anyio

CLOSED = [route for route in make_shop().routes if route.access != "open"]
PLACES = {"order_id": "secret", "project": "theirs", "what": "else"}


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture
async def h(anyio_backend: Any) -> AsyncIterator[AppWorld]:
    """A world with an order in the session `theirs`."""
    async with app_world(more=[make_shop()]) as h:
        await h.w.ocean.create_run(session_id="theirs", clog_id="shop", run_id="secret")
        yield h


async def key(h: AppWorld, *scopes: KeyScope, actor: str = "ann", **more: Any) -> str:
    return (await h.w.ocean.create_api_key(actor, scopes, **more)).key


async def send(h: AppWorld, route: Route, key: str | None) -> httpx2.Response:
    path = PARAMETER.sub(lambda match: PLACES[match[1]], route.path)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    sent: dict[str, Any] = {"json": {}} if route.method == "POST" else {}
    return await h.http.request(route.method, path, headers=headers, **sent)


async def refused(h: AppWorld, route: Route, key: str | None, status: int, code: str) -> None:
    database = of_sqlite(h.w.store)
    before = await database.read(dump)
    response = await send(h, route, key)
    shop_error(response, status, code)
    assert changed(before, await database.read(dump)) == set()
    assert ("www-authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize("route", CLOSED, ids=name)
async def test_a_missing_or_revoked_key_is_refused(h: AppWorld, route: Route) -> None:
    revoked = await h.w.ocean.create_api_key("ann", ["admin"])
    await h.w.ocean.revoke_api_key(revoked.info.key_id)
    for each in (None, revoked.key, "letmein"):
        await refused(h, route, each, 401, "not_authenticated")


@pytest.mark.parametrize("route", CLOSED, ids=name)
async def test_a_key_without_the_scope_is_refused(h: AppWorld, route: Route) -> None:
    others = [scope for scope in KEY_SCOPES if scope not in (route.access, "admin")]
    await refused(h, route, await key(h, *others), 403, "wrong_scope")


@pytest.mark.parametrize("route", CLOSED, ids=name)
async def test_a_key_for_other_sessions_is_refused(h: AppWorld, route: Route) -> None:
    """A route without a session is closed to such a key; orders of other sessions are not found."""
    status, code = {
        None: (403, "key_is_limited"),
        "project": (404, "session_not_found"),
        "checked": (404, "run_not_found"),
    }[route.session]
    await refused(h, route, await key(h, "admin", sessions=["ours"]), status, code)


@pytest.mark.parametrize("route", CLOSED, ids=name)
async def test_a_key_with_the_scope_is_accepted(h: AppWorld, route: Route) -> None:
    assert route.access is not None
    assert route.access != "open"
    assert not callable(route.access)
    sessions = ["theirs"] if route.session else None
    response = await send(h, route, await key(h, route.access, sessions=sessions))
    assert response.status_code < 300, response.text


async def test_the_handler_knows_the_caller(h: AppWorld) -> None:
    token = await key(h, "signal", actor="kim", roles=["owner"])
    response = await h.post("/shop/orders/secret:pay", headers={"authorization": f"Bearer {token}"})
    assert response.json()["by"] == "kim"


async def test_two_actors_may_use_the_same_key(h: AppWorld) -> None:
    bodies = []
    for actor in ("ann", "kim"):
        headers = {"authorization": f"Bearer {await key(h, 'signal', actor=actor)}", "idempotency-key": "k"}
        bodies.append((await h.post("/shop/orders/secret:pay", headers=headers)).json())
    assert [body["by"] for body in bodies] == ["ann", "kim"]


async def test_generic_verbs_are_refused_for_a_clog_with_routes(h: AppWorld) -> None:
    response = await h.post("/v1/runs/secret/signal", {"input": {"paid": True}})
    assert (response.status_code, error_of(response)["code"]) == (403, "not_generic")
    assert (await h.get("/v1/runs/secret")).status_code == 200


async def test_open_routes_and_deliveries_need_no_key(h: AppWorld) -> None:
    await key(h, "read")
    assert (await h.http.post("/shop/echo", content=b"x")).content == b"x"
    assert error_of(await h.http.post("/hooks/shop/x", content=b"x"))["code"] == "webhook_refused"


async def test_an_open_route_cannot_use_an_actors_idempotency_key() -> None:
    seen: list[str | None] = []
    clog = Clog("seer")

    def add_route(path: str, access: RouteAccess) -> None:
        @clog.route("POST", path, access=access, keyed=True)
        async def show_access(incoming: Incoming) -> Any:
            seen.append(incoming.request_key)

    add_route("/seer/closed", "signal")
    add_route("/seer/open", "open")
    add_route("/seer/own", lambda incoming: Access(frozenset()))
    add_route("/seer/scoped", lambda incoming: Access(frozenset({"signal"})))
    async with app_world(more=[clog]) as h:
        bearer = f"Bearer {await key(h, 'signal')}"
        await h.post("/seer/closed", headers={"authorization": bearer, "idempotency-key": "k"})
        for path in ("/seer/open", "/seer/own", "/seer/scoped"):
            await h.post(path, headers={"idempotency-key": str(seen[0])})
    assert len(seen) == 4
    assert len({*seen[:2]}) == 2
    assert seen[0] not in seen[1:]
