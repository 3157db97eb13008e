"""The request bodies of the Ops-Loop, with the field names of its contract."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EmptyBody(_Body):
    pass


class ProposalBody(_Body):
    p_dedupe_key: Any = None
    p_source: Any = None
    p_template: Any = None


class GateBody(_Body):
    p_template: Any = None
    p_source: str | None = None


class TemplateBody(_Body):
    p_template: Any = None


class ProposalIdBody(_Body):
    p_proposal_id: str


class MissionIdBody(_Body):
    p_mission_id: str


class StaleStepsBody(_Body):
    p_threshold_minutes: Any = None


class ClaimStepBody(_Body):
    p_lease_minutes: Any = None
    p_executor: str | list[str] | None = None
    p_worker_id: str | None = None


class DecisionBody(_Body):
    reason: str | None = None


class VoteBody(_Body):
    vote: str
    role: str | None = None


class RenewStepBody(_Body):
    lease_id: str
    lease_minutes: Any = None


class CompleteStepBody(_Body):
    lease_id: str
    status: str
    result: Any = None
    last_error: str | None = None
