"""The sections of the reference on tables, events, templates and errors: each example through the routes."""

from typing import Any

import pytest

from clogs.ops import Ops, OpsSettings
from clogs.ops.tables import POLICY_COLUMNS, TABLE_NAMES, TABLES
from clogs.ops.validation import checked_template
from ocean import CallRefused, InvalidValue, Refuse
from tests.clogs.ops.kit import EVERYTHING, HOUR_MS, MINUTE_MS, PROPOSE, Loop, loop

pytestmark = pytest.mark.anyio

ANONYMOUS = "123e4567-e89b-12d3-a456-426614174000"


async def columns(ops: Loop, table: str) -> list[str]:
    return list((await ops.rows(table))[0])


async def test_ops_policy() -> None:
    async with loop() as ops:
        inserted = await ops.put(
            {"key": "auto_approve", "value": {"enabled": True, "allowed_step_kinds": ["noop"]}},
            {"key": "proposal_caps", "value": {"daily_limit": 100}},
        )
        assert await ops.rows("ops_policy") == inserted
        assert await columns(ops, "ops_policy") == list(POLICY_COLUMNS) == ["key", "value", "version", "updated_at"]
        assert [row["version"] for row in inserted] == [1, 1]
        caps = {"key": "proposal_caps", "value": {"daily_limit": 7}}
        assert await ops.refusal("PUT", "ops_policy", caps) == (409, "23505"), "an insert of what is there"
        ops.w.clock.advance(MINUTE_MS)
        (row,) = await ops.put({**caps, "version": 1})
        assert (row["version"], row["updated_at"] > inserted[1]["updated_at"]) == (2, True)
        assert await ops.refusal("PUT", "ops_policy", {**caps, "version": 1}) == (409, "P0001"), (
            "a version that is gone"
        )
        both = [{"key": "agent_roles", "value": {}}, {**caps, "version": 9}]
        assert await ops.refusal("PUT", "ops_policy", both) == (409, "P0001")
        assert await ops.rows("ops_policy?key=eq.agent_roles") == [], "all, or none"


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("nonsense", {}, "23514"),
        ("auto_approve", {"enabled": "perhaps"}, "23514"),
        ("auto_approve", {"enabled": True, "allowed": []}, "23514"),
        ("proposal_caps", {"daily_limit": -1}, "23514"),
        ("proposal_caps", {"per_source_limits": {"mars": 1}}, "23514"),
        ("voting_policy", {"enabled": True, "thresholds": {"low": 0}}, "23514"),
        ("worker_policy", {"max_retries": 0}, "23514"),
        ("agent_roles", [], "23514"),
        ("reaction_matrix", {"patterns": [{"id": "p"}]}, "OPS_001"),
        ("reaction_matrix", [{"id": "p", "template": {}, "event_type": []}], "OPS_001"),
        ("reaction_matrix", [{"id": "p", "template": {}}, {"id": "p", "template": {}}], "OPS_001"),
        ("reaction_matrix", [{"id": "p", "template": {}, "probability": 2}], "OPS_001"),
    ],
)
@pytest.mark.sqlite
async def test_an_invalid_policy_is_refused(key: str, value: Any, code: str) -> None:
    async with loop() as ops:
        assert await ops.refusal("PUT", "ops_policy", {"key": key, "value": value}) == (400, code)
        assert await ops.rows("ops_policy") == []


async def test_ops_mission_proposals() -> None:
    async with loop() as ops:
        template = {
            "title": "Deploy to production",
            "risk_level": "high",
            "steps": [{"kind": "wreckit", "params": {"command": "deploy"}}],
        }
        await ops.rpc(PROPOSE, p_dedupe_key="k", p_source="manual", p_template=template)
        assert await columns(ops, "ops_mission_proposals") == [
            "id", "dedupe_key", "source", "status", "template", "reason", "policy_snapshot", "approved_at",
            "created_at",
        ]  # fmt: skip
        ops.w.clock.advance(1)
        await ops.propose(source="api")
        newest, oldest = await ops.rows("ops_mission_proposals?status=eq.pending&order=created_at.desc")
        assert (newest["source"], oldest["source"], oldest["template"]) == ("api", "manual", template)
        assert await ops.rows("ops_mission_proposals?status=in.(approved,rejected)") == []
        assert await ops.rows("ops_mission_proposals?dedupe_key=eq.k&select=source") == [{"source": "manual"}]


async def test_ops_missions() -> None:
    async with loop() as ops:
        first = await ops.mission({"kind": "noop"})
        ops.w.clock.advance(1)
        second = await ops.mission({"kind": "noop"})
        assert await columns(ops, "ops_missions") == [
            "id", "proposal_id", "status", "policy_snapshot", "started_at", "completed_at", "created_at", "updated_at",
        ]  # fmt: skip
        assert [row["id"] for row in await ops.rows("ops_missions?status=approved")] == [second, first]
        page = await ops.ask("GET", "ops_missions?order=created_at.asc&limit=1")
        cursor = page.headers["ocean-next-cursor"]
        following = await ops.rows(f"ops_missions?order=created_at.asc&limit=1&cursor={cursor}")
        assert [row["id"] for row in (*page.json(), *following)] == [first, second]


async def test_ops_mission_steps() -> None:
    async with loop() as ops:
        sage = {"kind": "openclaw", "params": {"agent": "sage", "prompt": "Analyze this"}, "executor": "openclaw"}
        mission = await ops.mission(sage, {"kind": "radar"})
        await ops.mission({"kind": "radar"})
        assert await columns(ops, "ops_mission_steps") == [
            "id", "mission_id", "kind", "params", "status", "executor", "reserved_at", "lease_expires_at",
            "failure_count", "max_retries", "last_error", "result", "created_at", "updated_at",
        ]  # fmt: skip
        queued = await ops.rows(f"ops_mission_steps?mission_id=eq.{mission}&status=eq.queued&order=created_at.asc")
        assert [step["kind"] for step in queued] == ["openclaw", "radar"]
        await ops.claim()
        ops.w.clock.advance(MINUTE_MS)
        await ops.claim()
        times = [s["reserved_at"] for s in await ops.rows("ops_mission_steps?status=eq.running&order=reserved_at.asc")]
        assert times == sorted(times)
        assert len(set(times)) == 2


async def test_ops_agent_events() -> None:
    async with loop() as ops:
        given = [
            {"type": "agent:thought", "data": {"agent": "Sage", "thought": "Processing request..."}},
            {"type": "deploy:requested", "data": {"service": "api", "environment": "prod"}},
        ]
        made = await ops.answer("POST", "ops_agent_events", given)
        assert [{name: row[name] for name in ("type", "data")} for row in made] == given
        assert list(made[0]) == ["id", "dedupe_key", "type", "data", "mission_id", "processed_at", "created_at"]
        assert await ops.rows("ops_agent_events?type=eq.deploy:requested&processed_at=not.is.null") == made[1:]
        assert await ops.rows("ops_agent_events?processed_at=is.null") == []


async def test_ops_agent_reactions() -> None:
    async with loop() as ops:
        deploy = {"title": "Deploy", "steps": [{"kind": "noop"}]}
        pattern = {"pattern_id": "deploy-trigger", "type": "deploy:*", "proposal_template": deploy,
                   "proposal_source": "trigger", "dedupe_key": "unique-key-{{event.data.n}}"}  # fmt: skip
        await ops.put({"key": "reaction_matrix", "value": [pattern]})
        await ops.answer("POST", "ops_agent_events", {"type": "deploy:requested", "data": {"n": 123}})
        (row,) = await ops.rows("ops_agent_reactions?status=eq.queued&order=created_at.desc")
        assert list(row) == ["id", "event_id", "status", "payload", "created_at", "updated_at"]
        assert row["payload"] == {
            "pattern_id": "deploy-trigger",
            "event_type": "deploy:requested",
            "proposal_template": deploy,
            "proposal_source": "trigger",
            "dedupe_key": "unique-key-123",
        }
        ops.w.clock.advance(MINUTE_MS)
        await ops.w.drain()
        (done,) = await ops.rows("ops_agent_reactions?payload->>pattern_id=eq.deploy-trigger")
        assert (done["status"], done["updated_at"] > row["updated_at"]) == ("done", True)
        (proposal,) = await ops.rows("ops_mission_proposals?source=eq.trigger")
        assert (proposal["dedupe_key"], done["payload"]["result"]["proposal_id"]) == ("unique-key-123", proposal["id"])


async def test_ops_action_runs() -> None:
    async with loop() as ops:
        await ops.mission({"kind": "noop"})
        step = await ops.claim(minutes=1, p_worker_id="w-1")
        (run,) = await ops.rows("ops_action_runs?status=eq.started")
        assert list(run) == [
            "id", "run_id", "step_id", "executor", "status", "started_at", "completed_at", "meta", "error",
        ]  # fmt: skip
        assert (run["step_id"], run["executor"], run["meta"]) == (step["id"], "openclaw", {"worker_id": "w-1"})
        ops.w.clock.advance(MINUTE_MS)
        await ops.complete(await ops.claim())
        runs = await ops.rows(f"ops_action_runs?step_id=eq.{step['id']}&order=started_at.desc")
        assert [(run["status"], run["error"]) for run in runs] == [("succeeded", None), ("failed", "Lease expired")]
        assert len({run["run_id"] for run in runs}) == 2, "one for each lease"


async def test_ops_step_dead_letters() -> None:
    async with loop() as ops:
        step = {"kind": "wreckit", "params": {"command": "deploy"}, "max_retries": 3}
        mission = await ops.mission(step)
        for _ in range(3):
            await ops.complete(await ops.claim(), "failed", last_error="Connection timeout", result={"partial": True})
        (letter,) = await ops.rows(f"ops_step_dead_letters?mission_id=eq.{mission}&order=created_at.desc")
        assert list(letter) == [
            "id", "step_id", "mission_id", "kind", "params", "executor", "failure_count", "last_error", "result",
            "created_at",
        ]  # fmt: skip
        assert (letter["kind"], letter["params"], letter["failure_count"], letter["last_error"], letter["result"]) == (
            "wreckit", {"command": "deploy"}, 3, "Connection timeout", {"partial": True},
        )  # fmt: skip


@pytest.mark.sqlite
async def test_every_table_is_read_strictly() -> None:
    async with loop() as ops:
        for table in TABLE_NAMES:
            assert await ops.rows(table) == []
            assert await ops.refusal("GET", f"{table}?colour=eq.red") == (400, "42703")
            assert await ops.refusal("GET", f"{table}?order=colour.desc") == (400, "42703")
            assert await ops.refusal("GET", f"{table}?select=colour") == (400, "42703")
            assert await ops.refusal("GET", f"{table}?limit=0") == (400, "22023")
            assert await ops.refusal("GET", f"{table}?limit=9&limit=9") == (400, "22023")
        for table in TABLES:
            assert await ops.refusal("GET", f"{table}?cursor=x") == (400, "22023")
            assert await ops.rows(f"{table}?id=eq.{ANONYMOUS}") == []
        assert await ops.refusal("GET", "ops_missions?status=not.eq.x") == (400, "22023")
        assert await ops.refusal("GET", "ops_missions?order=created_at.up") == (400, "22023")
        assert await ops.refusal("GET", "ops_agent_events?processed_at=eq.3") == (400, "22023")
        assert await ops.refusal("GET", "ops_nonsense") == (404, "42P01")
        assert await ops.refusal("POST", "rpc/ops_nonsense") == (404, "42883")


async def test_event_schema_reference() -> None:
    async with loop() as ops:
        mission = await ops.mission({"kind": "openclaw"}, {"kind": "wreckit", "max_retries": 1})
        await ops.complete(await ops.claim(), result={"ok": 1})
        step = await ops.claim()
        await ops.complete(step, "failed", last_error="Connection timeout")
        (succeeded,) = await ops.rows("ops_agent_events?type=eq.step:succeeded")
        assert succeeded["data"].keys() == {"step_id", "kind", "result"}
        assert (succeeded["mission_id"], succeeded["data"]["result"]) == (mission, {"ok": 1})
        (failed,) = await ops.rows(f"ops_agent_events?type=eq.step:failed&mission_id=eq.{mission}")
        error = {"error": "Connection timeout", "failure_count": 1}
        assert failed["data"] == {"step_id": step["id"], "kind": "wreckit", **error}
        custom = {
            "type": "deploy:requested",
            "data": {
                "service": "api", "environment": "production", "source": "manual", "tags": ["deploy", "production"],
            },
        }  # fmt: skip
        matched = {"id": "m", "event_type": "deploy:requested", "tags": ["production"], "source": "manual",
                   "template": {"steps": [{"kind": "noop"}]}}  # fmt: skip
        await ops.put({"key": "reaction_matrix", "value": [matched]})
        await ops.answer("POST", "ops_agent_events", {**custom, "mission_id": mission})
        assert len(await ops.rows("ops_agent_reactions")) == 1


@pytest.mark.parametrize(
    "template",
    [
        {"title": "Test Proposal", "steps": [{"kind": "noop", "params": {}}]},
        {
            "title": "Deploy API to Production",
            "risk_level": "high",
            "steps": [
                {"kind": "openclaw", "params": {"agent": "Scout", "prompt": "Verify deployment prerequisites"}},
                {"kind": "wreckit", "params": {"command": "deploy", "id": "api-production"}},
                {"kind": "openclaw", "params": {"agent": "Observer", "prompt": "Verify deployment health"}},
            ],
        },
        {
            "title": "Track New Feature Demand",
            "steps": [{"kind": "radar", "params": {"action": "create", "title": "Auth", "stage": "Watching"}}],
        },
    ],
    ids=lambda template: str(template["title"]),
)
@pytest.mark.sqlite
async def test_proposal_template_schema(template: Any) -> None:
    async with loop() as ops:
        await ops.put(EVERYTHING)
        (made,) = await ops.rpc(PROPOSE, p_source="manual", p_template=template)
        found = await ops.rows(f"ops_mission_steps?mission_id=eq.{made['mission_id']}&order=created_at.asc")
        assert [{"kind": s["kind"], "params": s["params"]} for s in found] == template["steps"]
        assert {s["executor"] for s in found} == {"openclaw"}


@pytest.mark.parametrize(
    "template",
    [
        None, [], "text", {}, {"steps": []}, {"steps": {}}, {"steps": ["noop"]}, {"steps": [{}]},
        {"steps": [{"kind": ""}]}, {"steps": [{"kind": 7}]}, {"steps": [{"kind": "x", "params": []}]},
        {"steps": [{"kind": "x", "executor": 1}]}, {"steps": [{"kind": "x"}], "risk_level": "extreme"},
        {"steps": [{"kind": "x"}], "colour": "red"}, {"steps": [{"kind": "x", "max_retries": 0}]},
        {"steps": [{"kind": "x"}] * 101}, {"steps": [{"kind": "x"}], "title": 7},
    ],
)  # fmt: skip
def test_an_invalid_template_is_refused(template: Any) -> None:
    with pytest.raises(Refuse) as refused:
        checked_template(template)
    assert refused.value.code == "23514"


async def test_template_rendering_in_reaction_matrix() -> None:
    async with loop() as ops:
        steps = [{"kind": "wreckit", "params": {"command": "deploy", "id": "{{event.data.service}}"}}]
        template = {"title": "Deploy {{event.data.service}} {{event.data.nowhere}}", "steps": steps}
        pattern = {"id": "d", "event_type": "deploy:requested", "template": template}
        await ops.put({"key": "reaction_matrix", "value": {"patterns": [pattern]}})
        data = {"service": "api", "environment": "production"}
        await ops.answer("POST", "ops_agent_events", {"type": "deploy:requested", "data": data})
        await ops.w.drain()
        (made,) = await ops.rows("ops_mission_proposals")
        assert made["template"] == {
            "title": "Deploy api {{event.data.nowhere}}",
            "steps": [{"kind": "wreckit", "params": {"command": "deploy", "id": "api"}}],
        }


async def test_database_errors() -> None:
    async with loop() as ops:
        event = {"type": "t", "data": {}, "dedupe_key": "proposal-123"}
        await ops.answer("POST", "ops_agent_events", event)
        assert await ops.refusal("POST", "ops_agent_events", {**event, "type": "u"}) == (409, "23505")
        orphan = {"type": "t", "data": {}, "mission_id": ANONYMOUS}
        assert await ops.refusal("POST", "ops_agent_events", orphan) == (409, "23503")
        bad = {"p_source": "mars", "p_template": {"steps": [{"kind": "noop"}]}}
        assert await ops.refusal("POST", f"rpc/{PROPOSE}", bad) == (400, "23514")
        long = {**bad, "p_source": "api", "p_dedupe_key": "k" * 201}
        assert await ops.refusal("POST", f"rpc/{PROPOSE}", long) == (400, "22001")
        assert await ops.refusal("POST", "ops_agent_events", {"type": "t" * 201, "data": {}}) == (400, "22001")
        huge = "x" * (256 * 1024)
        assert await ops.refusal("POST", "ops_agent_events", {"type": "t", "data": {"x": huge}}) == (400, "22001")
        large = {**bad, "p_source": "api", "p_template": {"title": huge, "steps": [{"kind": "noop"}]}}
        assert await ops.refusal("POST", f"rpc/{PROPOSE}", large) == (400, "22001")
        roles = {"key": "agent_roles", "value": {"all": huge}}
        assert await ops.refusal("PUT", "ops_policy", roles) == (400, "22001")
        for verb in ("approve", "reject"):
            gone = await ops.ask("POST", f"ops_mission_proposals/{ANONYMOUS}/{verb}")
            assert (gone.status, gone.json()) == (404, {"error": f"Proposal {ANONYMOUS} not found", "code": "P0001"})
        assert await ops.refusal("POST", f"ops_step_dead_letters/{ANONYMOUS}/redrive") == (404, "P0001")
        assert len(await ops.rows("ops_agent_events")) == 1


async def test_http_errors() -> None:
    async with loop() as ops:
        mission = await ops.mission({"kind": "noop"})
        admin, reader = await ops.key(), await ops.key(scopes=("read",), actor="bob")
        elsewhere = await ops.w.ocean.create_api_key(actor="eve", scopes=["read"], sessions=["other"])
        eve = {"Authorization": f"Bearer {elsewhere.key}"}
        for method, path in (
            ("POST", "heartbeat"), ("GET", "ops_missions"), ("PUT", "ops_policy"), ("POST", f"rpc/{PROPOSE}"),
            ("POST", f"ops_mission_proposals/{ANONYMOUS}/approve"), ("POST", "rpc/ops_claim_next_step"),
        ):  # fmt: skip
            refused = await ops.ask(method, path, {})
            assert (refused.status, refused.json()) == (401, {"error": "Unauthorized"})
            assert (await ops.ask(method, path, {}, reader)).status == (200 if method == "GET" else 403)
        for method, path in (("GET", "heartbeat"), ("DELETE", "ops_missions"), ("POST", "ops_policy")):
            refused = await ops.ask(method, path, {}, admin)
            assert (refused.status, refused.json()) == (405, {"error": "Method not allowed"})
        limited = await ops.ask("GET", f"ops_missions?id=eq.{mission}", headers=eve)
        assert (limited.status, limited.json()["code"]) == (403, "key_is_limited")
        malformed = await ops.w.request(
            "POST", "/api/ops/heartbeat", body=b"{", headers={**admin, "content-type": "application/json"}
        )
        assert (malformed.status, malformed.json()["code"]) == (400, "22023")


async def test_rpc_function_errors() -> None:
    async with loop() as ops:
        await ops.put({"key": "proposal_caps", "value": {"daily_limit": 1}})
        await ops.propose()
        over = await ops.propose()
        assert (over["status"], over["reason"]) == ("rejected", "Daily proposal cap reached")
        assert await ops.claim() is None
        for minutes in (0, -5, None, "5", 1.5, True):
            threshold = {"p_threshold_minutes": minutes}
            assert await ops.refusal("POST", "rpc/ops_recover_stale_steps", threshold) == (400, "22023")
            lease = {"p_lease_minutes": minutes}
            assert await ops.refusal("POST", "rpc/ops_claim_next_step", lease) == (400, "22023")
        with pytest.raises(Refuse, match="source_check"):
            await ops.ops.ops_create_proposal_and_maybe_autoapprove(None, "mars", {"steps": [{"kind": "noop"}]})
        with pytest.raises(CallRefused, match="already exists"):
            await ops.ops.put_policy([{"key": "proposal_caps", "value": {}}])


def test_settings_have_the_contracts_names() -> None:
    given = {
        "OPS_EVENT_BATCH_SIZE": "5", "OPS_REACTION_BATCH_SIZE": "6", "OPS_STALE_STEP_MINUTES": "7",
        "OPS_PROJECT": "blue", "OPS_SHELL_ALLOWLIST": "/bin/true, /bin/echo", "OPS_LEASE_MINUTES": "8",
    }  # fmt: skip
    settings = OpsSettings.from_environment(given)
    assert settings == OpsSettings("blue", 5, 6, 7, 8, ("/bin/true", "/bin/echo"))
    assert OpsSettings.from_environment({}) == OpsSettings("ops", 25, 25, 30, 5, ())
    for wrong in ("0", "-1", "many", "1.5"):
        with pytest.raises(InvalidValue, match="OPS_STALE_STEP_MINUTES"):
            OpsSettings.from_environment({"OPS_STALE_STEP_MINUTES": wrong})


async def test_projects_do_not_see_each_other() -> None:
    async with loop() as ops:
        blue = Ops(ops.w.ocean, OpsSettings(project="blue"))
        await ops.mission({"kind": "noop"})
        assert await blue.rows("ops_missions") == ([], None)
        assert await blue.rows("ops_policy") == ([], None)
        (made,) = await blue.ops_create_proposal_and_maybe_autoapprove("k", "api", {"steps": [{"kind": "noop"}]})
        assert made["status"] == "pending"
        path = f"ops_mission_proposals/{made['proposal_id']}/approve"
        assert await ops.refusal("POST", path) == (404, "P0001")
        ops.w.clock.advance(HOUR_MS)
