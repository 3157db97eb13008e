"""Access: a key is the authentication, the header names the actor."""

from typing import Any

import pytest

from tests.clogs.loop.kit import ISSUE, Town, error_of, town

pytestmark = pytest.mark.anyio

PATHS = [
    ("POST", f"/api/loop/issues/{ISSUE}/run-next-step"),
    ("POST", "/api/loop/issues"),
    ("POST", f"/api/loop/issues/{ISSUE}/resume"),
    ("PATCH", f"/api/loop/issues/{ISSUE}"),
    ("GET", "/api/loop/issues"),
    ("GET", f"/api/loop/issues/{ISSUE}"),
    ("GET", f"/api/loop/issues/{ISSUE}/runs"),
    ("GET", f"/api/loop/issues/{ISSUE}/events"),
    ("GET", "/api/loop/runs/r"),
    ("GET", "/api/loop/runs/r/steps"),
]


async def bearer(t: Town, actor: str, *scopes: Any, **more: Any) -> str:
    return f"Bearer {(await t.w.ocean.create_api_key(actor, scopes, **more)).key}"


async def test_without_keys_the_header_is_required_on_every_path() -> None:
    async with town() as t:
        assert {(route.method, route.path.replace("{issueId}", ISSUE).replace("{runId}", "r"))
                for route in t.loop.issues.routes} == {*PATHS}  # fmt: skip
        for method, path in PATHS:
            for named in ("", " ", "x" * 257):
                error_of(await t.ask(method, path, x_afu9_sub=named), 401, "UNAUTHORIZED")


async def test_with_keys_the_header_is_no_authentication() -> None:
    async with town() as t:
        await bearer(t, "ann", "signal")
        for method, path in PATHS:
            error_of(await t.ask(method, path), 401, "UNAUTHORIZED")
            error_of(await t.ask(method, path, authorization="Bearer ocean_x_y"), 401, "UNAUTHORIZED")


async def test_a_key_acts_for_its_actor_and_for_those_that_its_roles_name() -> None:
    async with town() as t:
        own = await bearer(t, "ann", "read", "signal")
        assert (await t.click(authorization=own, x_afu9_sub="")).status == 200
        assert (await t.click(authorization=own, x_afu9_sub="ann")).status == 200
        error_of(await t.click(authorization=own, x_afu9_sub="kim"), 401, "UNAUTHORIZED")
        desk = await bearer(t, "desk", "read", "signal", roles=["sub:kim"])
        error_of(await t.click(authorization=desk, x_afu9_sub="lee"), 401, "UNAUTHORIZED")
        assert (await t.click(authorization=desk, x_afu9_sub="kim")).status == 200
        every = await bearer(t, "every", "read", "signal", roles=["sub:*"])
        assert (await t.click(authorization=every, x_afu9_sub="lee")).status == 200
        path = f"/api/loop/issues/{ISSUE}/runs"
        runs = (await t.ask("GET", path, authorization=own, x_afu9_sub="")).json()["runs"]
        assert [run["actor"] for run in runs] == ["lee", "kim", "ann", "ann"]


async def test_a_key_that_is_for_something_else_is_forbidden_not_unknown() -> None:
    async with town() as t:
        reader = await bearer(t, "ann", "read")
        error_of(await t.click(authorization=reader, x_afu9_sub=""), 403, "UNAUTHORIZED")


async def test_a_key_for_some_projects_sees_no_other() -> None:
    async with town() as t:
        await t.loop.create_issue(t.w.ocean, "theirs", actor="bob", issue_id="theirs", project="b")
        theirs = await t.loop.run_next_step(t.w.ocean, "theirs", actor="bob")
        mine: dict[str, str] = {
            "authorization": await bearer(t, "ann", "read", "signal", sessions=["default"]),
            "x_afu9_sub": "",
        }
        shown = (await t.ask("GET", "/api/loop/issues", **mine)).json()["issues"]
        assert [issue["issueId"] for issue in shown] == [ISSUE]
        assert (await t.ask("GET", "/api/loop/issues?project=b", **mine)).json()["issues"] == []
        for method, path in (
            ("GET", "/api/loop/issues/theirs"),
            ("GET", "/api/loop/issues/theirs/runs"),
            ("GET", "/api/loop/issues/theirs/events"),
            ("GET", f"/api/loop/runs/{theirs.run_id}"),
            ("GET", f"/api/loop/runs/{theirs.run_id}/steps"),
            ("POST", "/api/loop/issues/theirs/run-next-step"),
            ("POST", "/api/loop/issues/theirs/resume"),
        ):
            error_of(await t.ask(method, path, **mine), 404, "ISSUE_NOT_FOUND")
        error_of(await t.ask("PATCH", "/api/loop/issues/theirs", {"facts": {}}, **mine), 404, "ISSUE_NOT_FOUND")
        made = await t.ask("POST", "/api/loop/issues", {"title": "x", "project": "b"}, **mine)
        error_of(made, 404, "ISSUE_NOT_FOUND")
        assert (await t.click(**mine)).status == 200


async def test_the_generic_routes_can_neither_create_nor_execute_nor_repeat() -> None:
    async with town() as t:
        run_id = (await t.click()).json()["runId"]
        for method, path, body in (
            ("POST", "/v1/runs", {"sessionId": "default", "clogId": "loop", "input": {}}),
            ("POST", "/v1/runs", {"sessionId": "default", "clogId": "loop.run", "input": {}}),
            ("POST", f"/v1/runs/{ISSUE}/signal", {"input": {}}),
            ("POST", f"/v1/runs/{ISSUE}/call/begin", {"payload": {}}),
            ("POST", f"/v1/runs/{ISSUE}/call/resume", {"payload": {}}),
            ("POST", "/v1/clogs/loop/call/create", {"sessionId": "default", "payload": {}}),
            ("POST", f"/v1/runs/{ISSUE}/cancel", {}),
            ("POST", f"/v1/runs/{run_id}/retry", {}),
            ("POST", f"/v1/runs/{run_id}/signal", {}),
            ("DELETE", f"/v1/runs/{run_id}", None),
        ):
            answer = await t.ask(method, path, body)
            assert (answer.status, answer.json()["error"]["code"]) == (403, "not_generic"), path
        assert (await t.w.request("GET", f"/v1/runs/{ISSUE}")).status == 200
