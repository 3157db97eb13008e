"""The ten OPS_ codes: each looked for in what is stored, with what to do about it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from clogs.ops.api import Ops
from clogs.ops.patterns import Pattern, matches
from clogs.ops.policies import auto_approve_of, patterns_of
from clogs.ops.records import EVENTS, MISSIONS, POLICY, PROPOSALS, REACTIONS, STEPS, Row
from clogs.ops.validation import RISKS, risk_of, step_kinds

MOST_LOOKED_AT = 200
LATE_MS = 10 * 60_000
MANY_LAPSES = 3
OWN_TYPES = ("step:", "mission:", "proposal:")
"""Of events that the loop makes itself, whether or not anybody reacts to them."""


@dataclass(frozen=True, slots=True)
class OpsFinding:
    """`advice` is empty if all is well."""

    code: str
    name: str
    said: str = "nothing found"
    advice: str = ""

    @property
    def is_good(self) -> bool:
        return not self.advice


Found = tuple[str, str] | None
Check = Callable[["DoctorContext"], Awaitable[Found]]
CHECKS: list[tuple[str, str, Check]] = []


def check(code: str, name: str) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS.append((code, name, function))
        return function

    return register


async def examine(ops: Ops) -> list[OpsFinding]:
    """All ten, in order. Only reads."""
    patient = DoctorContext(ops, await ops.call(POLICY, "values"))
    findings = []
    for code, name, function in CHECKS:
        found = await function(patient)
        findings.append(OpsFinding(code, name, *found) if found else OpsFinding(code, name))
    return findings


@dataclass(frozen=True, slots=True)
class DoctorContext:
    ops: Ops
    policies: dict[str, Any]

    @property
    def now(self) -> int:
        return self.ops.ocean.clock.now()

    async def stored(self, clog_id: str, *, is_oldest: bool = False, **attributes: Any) -> list[tuple[str, int, Row]]:
        """Id, age in ms and row of the newest, or oldest, that have these attributes."""
        project = self.ops.settings.project
        page = await self.ops.ocean.list_runs(
            clog_id=clog_id, session_id=project, attributes=attributes, limit=MOST_LOOKED_AT,
            order="oldest" if is_oldest else "newest",
        )  # fmt: skip
        rows = await self.ops.call(clog_id, "show", [run.run_id for run in page.runs])
        return [(run.run_id, self.now - run.created_at, rows.get(run.run_id, {})) for run in page.runs]


@check("OPS_001", "Reaction Pattern Matching Failed")
async def patterns_match(patient: DoctorContext) -> Found:
    events = [row for _, _, row in await patient.stored(EVENTS, processed=True) if row and not row["is_own"]]
    idle = [p for p in patterns_of(patient.policies) if p.enabled and not any(_is_meant(p, row) for row in events)]
    if not events or not idle:
        return None
    seen = ", ".join(sorted({row["type"] for row in events})[:5])
    said = f"of {len(events)} events none matches {', '.join(p.id for p in idle[:5])}; their types are {seen}"
    return said, f"compare event_type, tags and source of {idle[0].id} with the events"


def _is_meant(pattern: Pattern, event: Row) -> bool:
    return matches(pattern, event["type"], event["data"])


@check("OPS_002", "Template Rendering Failed")
async def templates_render(patient: DoctorContext) -> Found:
    reactions = [row["payload"] for _, _, row in await patient.stored(REACTIONS) if row]
    for payload in reactions:
        if "error" in payload:
            return f"pattern {payload['pattern_id']}: {payload['error']}", "correct the template of this pattern"
        if "unfilled" in payload:
            left = ", ".join(f"{{{{{name}}}}}" for name in payload["unfilled"][:5])
            return f"pattern {payload['pattern_id']} leaves {left}", "use paths that its events have"
    return None


@check("OPS_003", "Auto-Approval Rejected")
async def approvals_happen(patient: DoctorContext) -> Found:
    waiting = [(id, row) for id, _, row in await patient.stored(PROPOSALS, state="pending") if row]
    mild = [(id, row) for id, row in waiting if risk_of(row["template"]) != "high"]
    if not mild:
        return None
    id, row = mild[0]
    return f"{len(mild)} proposals of low or medium risk wait for a human", f"{id}: {_why_not(row)}"


def _why_not(row: Row) -> str:
    """Where the tree said no, by the policy of the proposal's own time."""
    policy = auto_approve_of(row["policy_snapshot"])
    if policy is None:
        return "put a policy auto_approve"
    if not policy.enabled:
        return "auto_approve is not enabled"
    risk = risk_of(row["template"])
    if policy.max_risk_level is not None and RISKS.index(risk) > RISKS.index(policy.max_risk_level):
        return f"its risk is {risk}, over max_risk_level {policy.max_risk_level}"
    kinds = sorted(set(step_kinds(row["template"]) or ()) - set(policy.allowed_step_kinds or ()))
    return f"allowed_step_kinds lacks {', '.join(kinds)}"


@check("OPS_004", "Lease Expiration Loop")
async def leases_hold(patient: DoctorContext) -> Found:
    steps = [
        (id, row)
        for state in ("queued", "running")
        for id, _, row in await patient.stored(STEPS, is_oldest=True, state=state)
        if row and row["last_error"] == "Lease expired" and row["failure_count"] >= MANY_LAPSES
    ]
    if not steps:
        return None
    id, row = steps[0]
    said = f"{len(steps)} steps expire again and again, {id} {row['failure_count']} times"
    return said, "let the worker renew, give it longer leases, or set max_retries"


@check("OPS_005", "Stale Step Detection")
async def steps_progress(patient: DoctorContext) -> Found:
    limit = patient.now - patient.ops.settings.stale_step_minutes * 60_000
    running = await patient.stored(STEPS, is_oldest=True, state="running")
    stale = [id for id, _, row in running if row and row["renewed_at"] < limit]
    if not stale:
        return None
    said = f"{len(stale)} running steps were not renewed for {patient.ops.settings.stale_step_minutes} minutes"
    return said, f"look at the worker of {stale[0]}; the heartbeat fails it"


@check("OPS_006", "Proposal Cap Blocking")
async def caps_leave_room(patient: DoctorContext) -> Found:
    sources = (None, "api", "trigger", "reaction", "manual")
    refused = [reason for source in sources if (reason := await patient.ops.call(PROPOSALS, "gate", source))]
    return (refused[0], "raise the limit in proposal_caps, or wait for midnight UTC") if refused else None


@check("OPS_007", "Mission Finalization Stuck")
async def missions_end(patient: DoctorContext) -> Found:
    for state in ("approved", "running"):
        for id, _, row in await patient.stored(MISSIONS, is_oldest=True, state=state):
            if not row or "steps" not in row:
                continue
            steps = await patient.ops.call(STEPS, "show", row["steps"])
            states = [step["status"] for step in steps.values()]
            if "failed" in states or (states and set(states) == {"succeeded"}):
                return f"mission {id} is {state}, and its steps are over", "nobody pokes: call the heartbeat"
    return None


@check("OPS_008", "Dedupe Key Collision")
async def keys_are_unique(patient: DoctorContext) -> Found:
    times, last, after = 0, None, 0
    while page := await patient.ops.ocean.read_events(
        session_id=patient.ops.settings.project, types=["proposal.collided"], after=after, limit=MOST_LOOKED_AT
    ):
        times, last, after = times + len(page), page[-1].payload, page[-1].seq
    if last is None:
        return None
    said = f"{times} times another proposal came under a key that is taken, last under {last['dedupe_key']!r}"
    return said, f"give each proposal a key of its own, or none; this one is {last['proposal_id']}'s"


@check("OPS_009", "Reaction Queue Buildup")
async def reactions_are_processed(patient: DoctorContext) -> Found:
    late = [id for id, age, _ in await patient.stored(REACTIONS, is_oldest=True, state="queued") if age > LATE_MS]
    return (
        (f"{len(late)} reactions are queued for over 10 minutes", "nobody pokes: call the heartbeat") if late else None
    )


@check("OPS_010", "Event Processing Backlog")
async def events_are_processed(patient: DoctorContext) -> Found:
    late = [id for id, age, _ in await patient.stored(EVENTS, is_oldest=True, processed=False) if age > LATE_MS]
    if late:
        return f"{len(late)} events wait for over 10 minutes", "nobody pokes: call the heartbeat"
    events = [row for _, _, row in await patient.stored(EVENTS, processed=True) if row and not row["is_own"]]
    events = [row for row in events if not row["type"].startswith(OWN_TYPES)]
    if events and not patterns_of(patient.policies):
        return "there are events, and no pattern to react to them", "put patterns into reaction_matrix"
    return None
