"""The routes of the Ops-Loop, with the paths and error shape of its contract, and the commands `ocean ops …`."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel

from clogs.ops.api import Ops
from clogs.ops.doctor import OpsFinding, examine
from clogs.ops.errors import NO_FUNCTION, WRONG_PARAMETER, wrong
from clogs.ops.schemas import (
    ClaimStepBody,
    CompleteStepBody,
    DecisionBody,
    EmptyBody,
    GateBody,
    MissionIdBody,
    ProposalBody,
    ProposalIdBody,
    RenewStepBody,
    StaleStepsBody,
    TemplateBody,
    VoteBody,
)
from clogs.ops.settings import OpsSettings
from clogs.ops.tables import TABLE_NAMES
from clogs.ops.worker import Worker
from ocean import Clog, CommandAnswer, Incoming, KeyIsLimited, Ocean, OceanError, Refuse, Reply

ROOT = "/api/ops"
NEXT_CURSOR = "Ocean-Next-Cursor"
MOST_AT_ONCE = 100
UNKNOWN_TABLE = "ops_{other}"


def errors(refusal: OceanError, incoming: Incoming) -> Reply:
    """Return the response for a refusal: `{"error": text}`, with a `code` where the status is not enough."""
    match refusal.http_status:
        case 401:
            return Reply({"error": "Unauthorized"}, 401)
        case 405:
            return Reply({"error": "Method not allowed"}, 405)
        case 400 | 413 | 415 | 422 as status:
            code = refusal.code if refusal.code[:2] in ("22", "23", "42", "OP") else WRONG_PARAMETER
            return Reply({"error": refusal.message, "code": code}, 400 if status == 422 else status)
        case status:
            return Reply({"error": refusal.message, "code": refusal.code}, status)


def route_clog(settings: OpsSettings) -> Clog:
    """Make a clog without runs that has the routes; they act on the other clogs."""
    front = Clog("ops", errors=errors, generic=())

    def ops(incoming: Incoming) -> Ops:
        if not incoming.access.sees(settings.project):
            raise KeyIsLimited(f"this key may not use the project {settings.project!r}")
        return Ops(incoming.ocean, settings)

    _functions(front, ops)
    _tables(front, ops)
    _decisions(front, ops)
    _leases(front, ops)
    return front


OpsFactory = Callable[[Incoming], Ops]


def _functions(front: Clog, ops: OpsFactory) -> None:
    def rpc(name: str, access: Any, body: type[BaseModel], keyed: bool = False) -> Callable[[Any], Any]:
        return front.route("POST", f"{ROOT}/rpc/{name}", access=access, session="checked", body=body, keyed=keyed)

    @rpc("ops_create_proposal_and_maybe_autoapprove", "signal", ProposalBody, keyed=True)
    async def create(incoming: Incoming) -> Any:
        given = incoming.body
        return await ops(incoming).ops_create_proposal_and_maybe_autoapprove(
            given.p_dedupe_key, given.p_source, given.p_template,
            caller=incoming.caller, request_key=incoming.request_key,
        )  # fmt: skip

    def plain(name: str, access: Any, body: type[BaseModel]) -> None:
        async def called(incoming: Incoming) -> Any:
            function: Callable[..., Awaitable[Any]] = getattr(ops(incoming), name)
            return await function(**incoming.body.model_dump())

        rpc(name, access, body)(called)

    plain("ops_gate_proposal", "read", GateBody)
    plain("ops_is_auto_approvable", "read", TemplateBody)
    plain("ops_extract_step_kinds", "read", TemplateBody)
    plain("ops_create_mission_from_proposal", "signal", ProposalIdBody)
    plain("ops_maybe_finalize_mission", "advance", MissionIdBody)
    plain("ops_recover_stale_steps", "advance", StaleStepsBody)
    plain("ops_recover_expired_leases", "advance", EmptyBody)

    @rpc("ops_claim_next_step", "work", ClaimStepBody)
    async def claim(incoming: Incoming) -> Any:
        given = incoming.body
        worker = given.p_worker_id or incoming.caller.actor or "worker"
        return await ops(incoming).ops_claim_next_step(given.p_lease_minutes, given.p_executor, worker)

    @front.route("POST", f"{ROOT}/rpc/{{name}}", access="read", session="checked")
    async def unknown(incoming: Incoming) -> Any:
        name = incoming.path["name"]
        raise Refuse(f"function {name} does not exist", code=NO_FUNCTION, http_status=404)

    @front.route("POST", f"{ROOT}/heartbeat", access="advance", session="checked", body=EmptyBody)
    async def heartbeat(incoming: Incoming) -> Any:
        return await ops(incoming).heartbeat()


def _tables(front: Clog, ops: OpsFactory) -> None:
    def listed(table: str) -> None:
        @front.route("GET", f"{ROOT}/{table}", access="read", session="checked")
        async def rows(incoming: Incoming) -> Reply:
            found, cursor = await ops(incoming).rows(_table_name(incoming, table), incoming.pairs)
            return Reply(found, headers={} if cursor is None else {NEXT_CURSOR: cursor})

    for name in (*TABLE_NAMES, UNKNOWN_TABLE):
        listed(name)

    @front.route("POST", f"{ROOT}/ops_agent_events", access="signal", session="checked", keyed=True)
    async def insert(incoming: Incoming) -> Reply:
        given = _rows_of(incoming, "events")
        made = await ops(incoming).insert_events(given, caller=incoming.caller, request_key=incoming.request_key)
        return Reply(made, 201)

    @front.route("PUT", f"{ROOT}/ops_policy", access="admin", session="checked", keyed=True)
    async def put(incoming: Incoming) -> Any:
        changes = [_policy_change(each) for each in _rows_of(incoming, "policies")]
        return await ops(incoming).put_policy(changes, caller=incoming.caller, request_key=incoming.request_key)


def _table_name(incoming: Incoming, table: str) -> str:
    return f"ops_{incoming.path['other']}" if table == UNKNOWN_TABLE else table


def _rows_of(incoming: Incoming, what: str) -> list[Any]:
    """Return the body as a list: it is one row, or a list of rows."""
    given = incoming.json() if incoming.raw else None
    rows = given if isinstance(given, list) else [given]
    if not 1 <= len(rows) <= MOST_AT_ONCE or not all(isinstance(row, dict) for row in rows):
        raise wrong(f"the body must be a JSON object, or a list of 1 to {MOST_AT_ONCE} {what}")
    return rows


def _policy_change(given: dict[str, Any]) -> dict[str, Any]:
    version = given.get("version")
    if not {"key", "value"} <= given.keys() <= {"key", "value", "version"} or not isinstance(given["key"], str):
        raise wrong("a policy must be {key, value}, or {key, value, version} with the version that it replaces")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise wrong(f"version must be the number of the version that is replaced, got {version!r}")
    return {"key": given["key"], "value": given["value"], "version": version}


def _decisions(front: Clog, ops: OpsFactory) -> None:
    proposal = f"{ROOT}/ops_mission_proposals/{{id}}"

    @front.route("POST", f"{proposal}/approve", access="admin", session="checked", body=DecisionBody, keyed=True)
    async def approve(incoming: Incoming) -> Any:
        return await ops(incoming).approve(incoming.path["id"], incoming.body.reason, **_options(incoming))

    @front.route("POST", f"{proposal}/reject", access="admin", session="checked", body=DecisionBody, keyed=True)
    async def reject(incoming: Incoming) -> Any:
        return await ops(incoming).reject(incoming.path["id"], incoming.body.reason, **_options(incoming))

    @front.route("POST", f"{proposal}/vote", access="signal", session="checked", body=VoteBody, keyed=True)
    async def vote(incoming: Incoming) -> Any:
        return await ops(incoming).vote(
            incoming.path["id"], incoming.body.vote, incoming.body.role, **_options(incoming)
        )

    @front.route(
        "POST", f"{ROOT}/ops_step_dead_letters/{{id}}/redrive", access="admin", session="checked", body=EmptyBody,
        keyed=True,
    )  # fmt: skip
    async def redrive(incoming: Incoming) -> Any:
        return await ops(incoming).redrive(incoming.path["id"], **_options(incoming))


def _options(incoming: Incoming) -> dict[str, Any]:
    return {"caller": incoming.caller, "request_key": incoming.request_key}


def _leases(front: Clog, ops: OpsFactory) -> None:
    step = f"{ROOT}/ops_mission_steps/{{id}}"

    @front.route("POST", f"{step}/renew", access="work", session="checked", body=RenewStepBody)
    async def renew(incoming: Incoming) -> Any:
        return await ops(incoming).renew(incoming.path["id"], incoming.body.lease_id, incoming.body.lease_minutes)

    @front.route("POST", f"{step}/complete", access="work", session="checked", body=CompleteStepBody)
    async def complete(incoming: Incoming) -> Any:
        given = incoming.body
        return await ops(incoming).complete(
            incoming.path["id"], given.lease_id, given.status, given.result, given.last_error
        )


def add_commands(front: Clog, settings: OpsSettings) -> None:
    @front.command
    async def doctor(ocean: Ocean) -> CommandAnswer:
        """Find the ten OPS_ codes in the stored records."""
        findings = await examine(Ops(ocean, settings))
        is_ok = all(found.is_ok for found in findings)
        checks = [_check_shown(found) for found in findings]
        return CommandAnswer("\n".join(map(_line, findings)), {"ok": is_ok, "checks": checks}, is_ok)

    @front.command
    async def heartbeat(ocean: Ocean) -> CommandAnswer:
        """Do what `POST /api/ops/heartbeat` does, for cron without a server."""
        beat = await Ops(ocean, settings).heartbeat()
        return CommandAnswer("\n".join(f"{name} {value}" for name, value in beat.items()), beat)

    @front.command
    async def work(ocean: Ocean) -> CommandAnswer:
        """Execute steps with the shipped executors until there is none to claim."""
        worker, done = Worker(Ops(ocean, settings), worker_id=ocean.instance_id), 0
        while await worker.work_once():
            done += 1
        return CommandAnswer(f"{done} steps done", {"done": done})


def _check_shown(found: OpsFinding) -> dict[str, Any]:
    return {
        "code": found.code,
        "name": found.name,
        "said": found.detail,
        "advice": found.advice or None,
        "ok": found.is_ok,
    }


def _line(found: OpsFinding) -> str:
    mark = "ok" if found.is_ok else "NO"
    line = f"{mark}  {found.code} {found.name}: {found.detail}"
    return line if found.is_ok else f"{line}\n    -> {found.advice}"
