"""Small versions of foreign contracts: a clog's routes can express what other systems need."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from ocean import Access, Clog, Incoming, OceanError, Refuse, Reply, RunNotFound, Tick
from tests.http.kit import app_world

pytestmark = pytest.mark.anyio

SCHEMA = "loop.runNextStep.v1"
CODES = {400: "INVALID_REQUEST", 401: "UNAUTHORIZED", 404: "ISSUE_NOT_FOUND", 409: "LOOP_CONFLICT"}


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    mode: Literal["execute", "dryRun"] = "execute"


def loop() -> Clog:
    """One error form with five codes, an actor in a header that does not authenticate, and its own replay."""

    def errors(refusal: OceanError, incoming: Incoming) -> Reply:
        status = 400 if refusal.http_status in (413, 415) else refusal.http_status
        error = {"code": CODES.get(status, "INTERNAL_ERROR"), "message": refusal.message}
        return Reply({"schemaVersion": SCHEMA, "requestId": incoming.request_id, "error": error}, status)

    clog = Clog("loop", errors=errors)

    @clog.method
    async def next_step(tick: Tick, payload: Any) -> Any:
        """Stores only successes, each with the whole response, under the key that the client chose."""
        state = (await tick.read(run=True)).run or {"step": 0, "responses": {}}
        kept = state["responses"].get(payload["key"])
        if kept is None:
            state["step"] += 1
            kept = {"schemaVersion": SCHEMA, "requestId": payload["requestId"], "step": state["step"]}
            if payload["key"]:
                state["responses"][payload["key"]] = kept
            await tick.write(run=state)
        return kept

    @clog.route("POST", "/api/loop/issues/{issueId}/run-next-step", access="signal", session="checked", body=Step,
                keyed=True)  # fmt: skip
    async def run_next_step(incoming: Incoming) -> Any:
        actor = incoming.headers.get("x-afu9-sub")
        if incoming.access.key_id is None and not actor:
            raise Refuse("x-afu9-sub is missing", http_status=401)
        if incoming.access.key_id is not None and actor not in (None, incoming.caller.actor):
            raise Refuse("this key is not that actor's", http_status=401)
        run = await incoming.run(incoming.path["issueId"])
        payload = {"requestId": incoming.request_id, "key": incoming.request_key, "mode": incoming.body.mode}
        return await incoming.ocean.call_clog(run_id=run.run_id, method="next_step", payload=payload)

    return clog


async def test_the_loop_api() -> None:
    async with app_world(more=[loop()]) as h:
        await h.w.ocean.create_run(session_id="s", clog_id="loop", run_id="AFU9-123")
        path, actor = "/api/loop/issues/AFU9-123/run-next-step", {"x-afu9-sub": "user@example.com"}
        first = await h.http.post(path, headers=actor)
        assert first.json()["requestId"] == first.headers["x-request-id"]
        kept = [await h.post(path, {"mode": "execute"}, headers=actor | {"idempotency-key": "k"}) for _ in range(2)]
        assert kept[0].content == kept[1].content
        assert [response.json()["step"] for response in (first, *kept)] == [1, 2, 2]
        for response, status, code in (
            (await h.post(path), 401, "UNAUTHORIZED"),
            (await h.post(path, {"mode": "x"}, headers=actor), 400, "INVALID_REQUEST"),
            (await h.post("/api/loop/issues/no/run-next-step", headers=actor), 404, "ISSUE_NOT_FOUND"),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (status, code)
            assert (response.json()["schemaVersion"], "timestamp" in response.json()) == (SCHEMA, False)
        created = await h.w.ocean.create_api_key("kim", ["signal"])
        bearer = {"authorization": f"Bearer {created.key}"}
        assert (await h.post(path, headers=bearer)).status_code == 200
        assert (await h.post(path, headers=bearer | actor)).status_code == 401
        assert (await h.post(path, headers=actor)).json()["error"]["code"] == "UNAUTHORIZED"


async def test_the_ops_loop() -> None:
    clog = Clog("ops", errors=lambda refusal, incoming: {"error": MESSAGES.get(refusal.http_status, refusal.message)})

    @clog.route("POST", "/api/ops/heartbeat", access="advance")
    async def heartbeat(incoming: Incoming) -> Any:
        raise RuntimeError("database")

    @clog.route("GET", "/api/ops/{table}", access="read")
    async def rows(incoming: Incoming) -> Any:
        return [incoming.path["table"], *incoming.pairs]

    async with app_world(more=[clog]) as h:
        assert (await h.get("/api/ops/ops_policy", key="eq.caps")).json() == ["ops_policy", ["key", "eq.caps"]]
        await h.w.ocean.create_api_key("cron", ["advance"])
        responses = [await h.http.request(method, "/api/ops/heartbeat") for method in ("POST", "PUT")]
        assert [(response.status_code, response.json()) for response in responses] == [
            (401, {"error": "Unauthorized"}),
            (405, {"error": "Method not allowed"}),
        ]


MESSAGES = {401: "Unauthorized", 405: "Method not allowed"}


class Meta(BaseModel):
    trace_id: str
    project_id: str


class Decision(BaseModel):
    meta: Meta
    idempotency_key: str
    decision: Literal["approve", "reject"]
    reason: Annotated[str, Field(min_length=1)]


TOKENS = {"jwt-of-ann": Access(frozenset(), "ann", ("owner",), frozenset({"p1"}))}


async def bearer(incoming: Incoming) -> Access:
    """Stands for the check of a JWT whose claims name the caller and the projects."""
    token = incoming.headers.get("authorization", "").removeprefix("Bearer ")
    if token not in TOKENS:
        raise Refuse("invalid token", code="AUTH_401_INVALID_TOKEN", http_status=401)
    return TOKENS[token]


def rias() -> Clog:
    codes = {"invalid_body": "REQ_400_INVALID_SCHEMA", "body_too_large": "REQ_400_INVALID_SCHEMA"}
    codes |= {"run_not_found": "JOB_404_NOT_FOUND", "method_not_allowed": "REQ_405_METHOD"}

    def errors(refusal: OceanError, incoming: Incoming) -> Reply:
        code = codes.get(refusal.code, refusal.code)
        status = int(code.split("_")[1])
        try:
            trace_id = incoming.json()["meta"]["trace_id"]
        except (OceanError, KeyError, TypeError):
            trace_id = incoming.request_id
        error = {"code": code, "http_status": status, "request_id": incoming.request_id, "trace_id": trace_id}
        return Reply({"error": error | {"job_id": incoming.path.get("job_id")}}, status)

    clog = Clog("rias", errors=errors)

    @clog.route("GET", "/jobs/{job_id}", access=bearer, session="checked")
    async def get_job(incoming: Incoming) -> Any:
        run = await incoming.run(incoming.path["job_id"])
        return {"job_id": run.run_id, "status": "queued"}

    @clog.route("POST", "/jobs/{job_id}:decision", access=bearer, session="checked", body=Decision, most_bytes=500)
    async def decide(incoming: Incoming) -> Any:
        body: Decision = incoming.body
        run = await incoming.run(incoming.path["job_id"])
        if body.meta.project_id != run.session_id:
            raise RunNotFound("another project's")
        return {"by": incoming.caller.actor, "roles": incoming.caller.roles}

    return clog


async def test_rias() -> None:
    async with app_world(more=[rias()]) as h:
        for project in ("p1", "p2"):
            await h.w.ocean.create_run(session_id=project, clog_id="rias", run_id=f"job-{project}")
        h.http.headers["authorization"] = "Bearer jwt-of-ann"
        meta = {"trace_id": "trc-1", "project_id": "p1"}
        good = {"meta": meta, "idempotency_key": "k", "decision": "approve", "reason": "fine"}
        decided = await h.post("/jobs/job-p1:decision", good)
        assert (decided.status_code, decided.json()) == (200, {"by": "ann", "roles": ["owner"]})
        assert (await h.get("/jobs/job-p1")).json() == {"job_id": "job-p1", "status": "queued"}
        for path, body, code, trace_id in (
            ("/jobs/job-p1:decision", good | {"reason": ""}, "REQ_400_INVALID_SCHEMA", "trc-1"),
            ("/jobs/job-p1:decision", good | {"reason": "x" * 500}, "REQ_400_INVALID_SCHEMA", None),
            ("/jobs/job-p2:decision", good, "JOB_404_NOT_FOUND", "trc-1"),
        ):
            response = await h.post(path, body)
            error = response.json()["error"]
            assert (error["code"], response.status_code) == (code, error["http_status"])
            assert error["trace_id"] == (trace_id or response.headers["x-request-id"])
        response = await h.http.get("/jobs/job-p1", headers={"authorization": "Bearer forged"})
        assert (response.status_code, response.json()["error"]["code"]) == (401, "AUTH_401_INVALID_TOKEN")


async def test_requests_are_counted_and_logged_by_the_contracts_own_paths(caplog: pytest.LogCaptureFixture) -> None:
    async with app_world(more=[rias()]) as h:
        await h.w.ocean.create_run(session_id="p1", clog_id="rias", run_id="job-p1")
        headers = {"authorization": "Bearer jwt-of-ann"}
        with caplog.at_level("INFO", "ocean.http"):
            await h.post("/jobs/job-p1:decision", headers=headers)
            await h.http.put("/jobs/job-p1:decision", headers=headers)
        metrics = (await h.get("/metrics")).text
        for method, status in (("POST", 400), ("PUT", 405)):
            labels = f'method="{method}",route="/jobs/{{job_id}}:decision",status="{status}"'
            assert f"ocean_http_requests_total{{{labels}}} 1" in metrics
        logged = [record.__dict__["ocean_fields"] for record in caplog.records if record.message == "request"]
        assert [each.get("actor") for each in logged] == ["ann", None]
        assert "job-p1" not in repr(logged)


async def test_an_access_policy_that_returns_nothing_grants_nothing() -> None:
    clog = Clog("careless")

    @clog.route("GET", "/careless", access=lambda incoming: None)
    async def read_everything(incoming: Incoming) -> Any:
        return "everything"

    async with app_world(more=[clog]) as h:
        response = await h.get("/careless")
        assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
        assert (await h.get_json("/openapi.json"))["paths"]["/careless"]["get"]["x-ocean-scope"] == "the clog's own"
