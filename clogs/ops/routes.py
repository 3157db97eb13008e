"""The routes of the Ops-Loop, with the paths, bodies and error shape of its contract."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from clogs.ops.columns import TABLE_NAMES
from clogs.ops.operations import Ops
from clogs.ops.refusals import NO_FUNCTION, WRONG_PARAMETER, wrong
from clogs.ops.settings import OpsSettings
from ocean import Clog, Incoming, KeyIsLimited, OceanError, Refuse, Reply

ROOT = "/api/ops"
NEXT_CURSOR = "Ocean-Next-Cursor"
MOST_AT_ONCE = 100
UNKNOWN_TABLE = "ops_{other}"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Nothing(_Body):
    pass


class NewProposal(_Body):
    p_dedupe_key: Any = None
    p_source: Any = None
    p_template: Any = None


class Gated(_Body):
    p_template: Any = None
    p_source: str | None = None


class OfTemplate(_Body):
    p_template: Any = None


class OfProposal(_Body):
    p_proposal_id: str


class OfMission(_Body):
    p_mission_id: str


class Stale(_Body):
    p_threshold_minutes: Any = None


class Claim(_Body):
    p_lease_minutes: Any = None
    p_executor: str | list[str] | None = None
    p_worker_id: str | None = None


class Decision(_Body):
    reason: str | None = None


class Vote(_Body):
    vote: str
    role: str | None = None


class Renewal(_Body):
    lease_id: str
    lease_minutes: Any = None


class Report(_Body):
    lease_id: str
    status: str
    result: Any = None
    last_error: str | None = None


def errors(refusal: OceanError, incoming: Incoming) -> Reply:
    """`{"error": text}`, and a `code` where there is more to know than the status says."""
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
    """A clog without runs: it brings the routes, and what is behind them is the other clogs'."""
    front = Clog("ops", errors=errors, generic=())

    def ops(incoming: Incoming) -> Ops:
        if not incoming.access.sees(settings.project):
            raise KeyIsLimited(f"this key is not for the project {settings.project!r}")
        return Ops(incoming.ocean, settings)

    _functions(front, ops)
    _tables(front, ops)
    _decisions(front, ops)
    _leases(front, ops)
    return front


Asking = Callable[[Incoming], Ops]


def _functions(front: Clog, ops: Asking) -> None:
    def rpc(name: str, access: Any, body: type[BaseModel], keyed: bool = False) -> Callable[[Any], Any]:
        return front.route("POST", f"{ROOT}/rpc/{name}", access=access, session="checked", body=body, keyed=keyed)

    @rpc("ops_create_proposal_and_maybe_autoapprove", "signal", NewProposal, keyed=True)
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

    plain("ops_gate_proposal", "read", Gated)
    plain("ops_is_auto_approvable", "read", OfTemplate)
    plain("ops_extract_step_kinds", "read", OfTemplate)
    plain("ops_create_mission_from_proposal", "signal", OfProposal)
    plain("ops_maybe_finalize_mission", "advance", OfMission)
    plain("ops_recover_stale_steps", "advance", Stale)
    plain("ops_recover_expired_leases", "advance", Nothing)

    @rpc("ops_claim_next_step", "work", Claim)
    async def claim(incoming: Incoming) -> Any:
        given = incoming.body
        worker = given.p_worker_id or incoming.caller.actor or "worker"
        return await ops(incoming).ops_claim_next_step(given.p_lease_minutes, given.p_executor, worker)

    @front.route("POST", f"{ROOT}/rpc/{{name}}", access="read", session="checked")
    async def unknown(incoming: Incoming) -> Any:
        name = incoming.path["name"]
        raise Refuse(f"function {name} does not exist", code=NO_FUNCTION, http_status=404)

    @front.route("POST", f"{ROOT}/heartbeat", access="advance", session="checked", body=Nothing)
    async def heartbeat(incoming: Incoming) -> Any:
        return await ops(incoming).heartbeat()


def _tables(front: Clog, ops: Asking) -> None:
    def listed(table: str) -> None:
        @front.route("GET", f"{ROOT}/{table}", access="read", session="checked")
        async def rows(incoming: Incoming) -> Reply:
            found, cursor = await ops(incoming).rows(_named(incoming, table), incoming.pairs)
            return Reply(found, headers={} if cursor is None else {NEXT_CURSOR: cursor})

    for name in (*TABLE_NAMES, UNKNOWN_TABLE):
        listed(name)

    @front.route("POST", f"{ROOT}/ops_agent_events", access="signal", session="checked", keyed=True)
    async def insert(incoming: Incoming) -> Reply:
        given = _several(incoming, "events")
        made = await ops(incoming).insert_events(given, caller=incoming.caller, request_key=incoming.request_key)
        return Reply(made, 201)

    @front.route("PUT", f"{ROOT}/ops_policy", access="admin", session="checked", keyed=True)
    async def put(incoming: Incoming) -> Any:
        changes = [_change(each) for each in _several(incoming, "policies")]
        return await ops(incoming).put_policy(changes, caller=incoming.caller, request_key=incoming.request_key)


def _named(incoming: Incoming, table: str) -> str:
    return f"ops_{incoming.path['other']}" if table == UNKNOWN_TABLE else table


def _several(incoming: Incoming, what: str) -> list[Any]:
    """A row, or a list of them."""
    given = incoming.json() if incoming.raw else None
    rows = given if isinstance(given, list) else [given]
    if not 1 <= len(rows) <= MOST_AT_ONCE or not all(isinstance(row, dict) for row in rows):
        raise wrong(f"the body is a JSON object, or a list of 1 to {MOST_AT_ONCE} {what}")
    return rows


def _change(given: dict[str, Any]) -> dict[str, Any]:
    version = given.get("version")
    if not {"key", "value"} <= given.keys() <= {"key", "value", "version"} or not isinstance(given["key"], str):
        raise wrong("a policy is {key, value}, or with the version that it replaces {key, value, version}")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise wrong(f"version is the number of the version that is replaced, got {version!r}")
    return {"key": given["key"], "value": given["value"], "version": version}


def _decisions(front: Clog, ops: Asking) -> None:
    proposal = f"{ROOT}/ops_mission_proposals/{{id}}"

    @front.route("POST", f"{proposal}/approve", access="admin", session="checked", body=Decision, keyed=True)
    async def approve(incoming: Incoming) -> Any:
        return await ops(incoming).approve(incoming.path["id"], incoming.body.reason, **_by(incoming))

    @front.route("POST", f"{proposal}/reject", access="admin", session="checked", body=Decision, keyed=True)
    async def reject(incoming: Incoming) -> Any:
        return await ops(incoming).reject(incoming.path["id"], incoming.body.reason, **_by(incoming))

    @front.route("POST", f"{proposal}/vote", access="signal", session="checked", body=Vote, keyed=True)
    async def vote(incoming: Incoming) -> Any:
        return await ops(incoming).vote(incoming.path["id"], incoming.body.vote, incoming.body.role, **_by(incoming))

    @front.route(
        "POST", f"{ROOT}/ops_step_dead_letters/{{id}}/redrive", access="admin", session="checked", body=Nothing,
        keyed=True,
    )  # fmt: skip
    async def redrive(incoming: Incoming) -> Any:
        return await ops(incoming).redrive(incoming.path["id"], **_by(incoming))


def _by(incoming: Incoming) -> dict[str, Any]:
    return {"caller": incoming.caller, "request_key": incoming.request_key}


def _leases(front: Clog, ops: Asking) -> None:
    step = f"{ROOT}/ops_mission_steps/{{id}}"

    @front.route("POST", f"{step}/renew", access="work", session="checked", body=Renewal)
    async def renew(incoming: Incoming) -> Any:
        return await ops(incoming).renew(incoming.path["id"], incoming.body.lease_id, incoming.body.lease_minutes)

    @front.route("POST", f"{step}/complete", access="work", session="checked", body=Report)
    async def complete(incoming: Incoming) -> Any:
        given = incoming.body
        return await ops(incoming).complete(
            incoming.path["id"], given.lease_id, given.status, given.result, given.last_error
        )
