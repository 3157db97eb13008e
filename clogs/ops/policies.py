"""The policies of a project, and the decisions that follow from them.

The models and decisions are pure. The clog stores all policies in one row, each key with its own version.
"""

from typing import Annotated, Any

from pydantic import Field, ValidationError

from clogs.ops.errors import BAD_PATTERN, check_size, duplicate, not_now, violates
from clogs.ops.patterns import Name, Pattern, PolicyModel, ReactionMatrix, Source
from clogs.ops.records import POLICY, Row
from clogs.ops.validation import RISKS, Risk, is_valid, risk_of, step_kinds
from ocean import Clog, Refuse, Tick

MOST_POLICY_BYTES = 128 * 1024
CAP_REACHED = "Daily proposal cap reached"

Count = Annotated[int, Field(ge=0, le=1_000_000_000, strict=True)]


class AutoApprove(PolicyModel):
    """Without `allowed_step_kinds`, all kinds are allowed. A risk above `max_risk_level` needs a human."""

    enabled: bool = False
    allowed_step_kinds: list[Name] | None = None
    max_risk_level: Risk | None = None


class ProposalCaps(PolicyModel):
    daily_limit: Count | None = None
    per_source_limits: dict[Source, Count] = Field(default_factory=dict)

    def limit_of(self, source: str) -> int | None:
        return next((limit for name, limit in self.per_source_limits.items() if name == source), None)


class VotingPolicy(PolicyModel):
    enabled: bool = False
    thresholds: dict[Risk, Annotated[int, Field(ge=1, le=100, strict=True)]] = Field(default_factory=dict)

    def needed(self, risk: Risk) -> int:
        return self.thresholds.get(risk, RISKS.index(risk) + 1)


class WorkerPolicy(PolicyModel):
    """Defaults for steps that do not set these fields."""

    max_retries: Annotated[int, Field(ge=1, strict=True)] | None = None


POLICIES: dict[str, type[PolicyModel] | None] = {
    "reaction_matrix": ReactionMatrix,
    "auto_approve": AutoApprove,
    "proposal_caps": ProposalCaps,
    "worker_policy": WorkerPolicy,
    "agent_roles": None,
    "voting_policy": VotingPolicy,
}
"""The model of each policy. `agent_roles` has none: its content is up to the agents."""


def checked_policy(key: str, value: Any) -> Any:
    """Return the value to store, or raise an error that names the first wrong field."""
    if key not in POLICIES:
        raise violates(f"there is no policy {key!r}; use one of {', '.join(POLICIES)}")
    check_size(value, key, MOST_POLICY_BYTES)
    model = POLICIES[key]
    if model is None:
        if not isinstance(value, dict):
            raise violates(f"{key} must be a JSON object, got {type(value).__name__}")
        return value
    try:
        model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([key, *map(str, first["loc"])])
        if key == "reaction_matrix":
            raise Refuse(f"{place}: {first['msg']}", code=BAD_PATTERN, http_status=400) from None
        raise violates(f"{place}: {first['msg']}") from None
    return value


def auto_approve_of(policies: dict[str, Any]) -> AutoApprove | None:
    return AutoApprove.model_validate(policies["auto_approve"]) if "auto_approve" in policies else None


def caps_of(policies: dict[str, Any]) -> ProposalCaps:
    return ProposalCaps.model_validate(policies.get("proposal_caps", {}))


def voting_of(policies: dict[str, Any]) -> VotingPolicy:
    return VotingPolicy.model_validate(policies.get("voting_policy", {}))


def worker_policy_of(policies: dict[str, Any]) -> WorkerPolicy:
    return WorkerPolicy.model_validate(policies.get("worker_policy", {}))


def patterns_of(policies: dict[str, Any]) -> list[Pattern]:
    return ReactionMatrix.model_validate(policies.get("reaction_matrix", {})).patterns


def is_auto_approvable(policy: AutoApprove | None, template: Any) -> bool:
    """Return whether a valid template is approved without a human, by the decision tree of the contract."""
    if policy is None or not policy.enabled or not is_valid(template):
        return False
    if policy.max_risk_level is not None and RISKS.index(risk_of(template)) > RISKS.index(policy.max_risk_level):
        return False
    return policy.allowed_step_kinds is None or set(step_kinds(template) or ()) <= set(policy.allowed_step_kinds)


policy = Clog(POLICY, generic=())

NOT_IN_SNAPSHOT = ("reaction_matrix",)
"""Not part of a snapshot: it decides what is proposed, not what happens to a proposal, and may be large."""


@policy.method
async def rows(tick: Tick, payload: None) -> list[Row]:
    kept = (await tick.read(session=True)).session or {}
    return [{"key": key, **kept[key]} for key in sorted(kept)]


@policy.method
async def values(tick: Tick, payload: None) -> dict[str, Any]:
    kept = (await tick.read(session=True)).session or {}
    return {key: each["value"] for key, each in kept.items()}


@policy.method
async def put(tick: Tick, changes: list[Row]) -> list[Row]:
    """Insert policies or, with a version, replace exactly that version; all of them or none."""
    kept = dict((await tick.read(session=True)).session or {})
    for change in changes:
        key, before = change["key"], change["version"]
        value = checked_policy(key, change["value"])
        version = kept[key]["version"] if key in kept else 0
        if before is None and version:
            raise duplicate("ops_policy_key", f"Key (key)=({key}) already exists; to replace it, give its version")
        if before is not None and before != version:
            raise not_now(f"policy {key} is at version {version}, not {before}; read it, and put the change again")
        kept[key] = {"value": value, "version": version + 1, "updated_at": tick.now}
    await tick.write(session=kept)
    return [{"key": change["key"], **kept[change["key"]]} for change in changes]


def snapshot(policies: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in policies.items() if key not in NOT_IN_SNAPSHOT}
