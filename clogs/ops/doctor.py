"""Find the ten OPS_ codes in the stored records, with advice for each. `ocean ops doctor` prints the findings."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from clogs.ops.api import Ops
from clogs.ops.patterns import Pattern, matches
from clogs.ops.policies import auto_approve_of, patterns_of
from clogs.ops.records import EVENTS, MISSIONS, POLICY, PROPOSALS, REACTIONS, STEPS, Row
from clogs.ops.validation import RISKS, risk_of, step_kinds

MOST_CHECKED = 200
LATE_MS = 10 * 60_000
MANY_LAPSES = 3
OWN_TYPES = ("step:", "mission:", "proposal:")
"""Prefixes of the events that the loop publishes itself, whether or not a pattern matches them."""


@dataclass(frozen=True, slots=True)
class OpsFinding:
    """The result of one check. `advice` is empty if nothing was found."""

    code: str
    name: str
    detail: str = "nothing found"
    advice: str = ""

    @property
    def is_ok(self) -> bool:
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
    """Run the ten checks in order and return their findings. Only reads."""
    context = DoctorContext(ops, await ops.call(POLICY, "values"))
    findings = []
    for code, name, function in CHECKS:
        found = await function(context)
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
        """Return id, age in ms and row of the newest (or oldest) records with these attributes."""
        project = self.ops.settings.project
        page = await self.ops.ocean.list_runs(
            clog_id=clog_id, session_id=project, attributes=attributes, limit=MOST_CHECKED,
            order="oldest" if is_oldest else "newest",
        )  # fmt: skip
        rows = await self.ops.call(clog_id, "show", [run.run_id for run in page.runs])
        return [(run.run_id, self.now - run.created_at, rows.get(run.run_id, {})) for run in page.runs]


@check("OPS_001", "Reaction Pattern Matching Failed")
async def patterns_match(context: DoctorContext) -> Found:
    events = [row for _, _, row in await context.stored(EVENTS, processed=True) if row and not row["is_own"]]
    idle = [p for p in patterns_of(context.policies) if p.enabled and not any(_matches(p, row) for row in events)]
    if not events or not idle:
        return None
    seen = ", ".join(sorted({row["type"] for row in events})[:5])
    detail = f"none of {len(events)} events matches {', '.join(p.id for p in idle[:5])}; their types are {seen}"
    return detail, f"compare event_type, tags and source of {idle[0].id} with the events"


def _matches(pattern: Pattern, event: Row) -> bool:
    return matches(pattern, event["type"], event["data"])


@check("OPS_002", "Template Rendering Failed")
async def templates_render(context: DoctorContext) -> Found:
    reactions = [row["payload"] for _, _, row in await context.stored(REACTIONS) if row]
    for payload in reactions:
        if "error" in payload:
            return f"pattern {payload['pattern_id']}: {payload['error']}", "correct the template of this pattern"
        if "unfilled" in payload:
            left = ", ".join(f"{{{{{name}}}}}" for name in payload["unfilled"][:5])
            return f"pattern {payload['pattern_id']} leaves {left}", "use paths that its events have"
    return None


@check("OPS_003", "Auto-Approval Rejected")
async def approvals_happen(context: DoctorContext) -> Found:
    waiting = [(id, row) for id, _, row in await context.stored(PROPOSALS, state="pending") if row]
    unapproved = [(id, row) for id, row in waiting if risk_of(row["template"]) != "high"]
    if not unapproved:
        return None
    id, row = unapproved[0]
    return f"{len(unapproved)} proposals of low or medium risk wait for a human", f"{id}: {_why_not(row)}"


def _why_not(row: Row) -> str:
    """Return which rule of auto-approval refused, by the policy at the time of the proposal."""
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
async def leases_hold(context: DoctorContext) -> Found:
    steps = [
        (id, row)
        for state in ("queued", "running")
        for id, _, row in await context.stored(STEPS, is_oldest=True, state=state)
        if row and row["last_error"] == "Lease expired" and row["failure_count"] >= MANY_LAPSES
    ]
    if not steps:
        return None
    id, row = steps[0]
    detail = f"the leases of {len(steps)} steps expire repeatedly, that of {id} {row['failure_count']} times"
    return detail, "let the worker renew its lease, use longer leases, or set max_retries"


@check("OPS_005", "Stale Step Detection")
async def steps_progress(context: DoctorContext) -> Found:
    limit = context.now - context.ops.settings.stale_step_minutes * 60_000
    running = await context.stored(STEPS, is_oldest=True, state="running")
    stale = [id for id, _, row in running if row and row["renewed_at"] < limit]
    if not stale:
        return None
    detail = f"{len(stale)} running steps were not renewed for {context.ops.settings.stale_step_minutes} minutes"
    return detail, f"check the worker of {stale[0]}; the heartbeat will fail the step"


@check("OPS_006", "Proposal Cap Blocking")
async def caps_allow_proposals(context: DoctorContext) -> Found:
    sources = (None, "api", "trigger", "reaction", "manual")
    refused = [reason for source in sources if (reason := await context.ops.call(PROPOSALS, "gate", source))]
    return (refused[0], "raise the limit in proposal_caps, or wait for midnight UTC") if refused else None


@check("OPS_007", "Mission Finalization Stuck")
async def missions_end(context: DoctorContext) -> Found:
    for state in ("approved", "running"):
        for id, _, row in await context.stored(MISSIONS, is_oldest=True, state=state):
            if not row or "steps" not in row:
                continue
            steps = await context.ops.call(STEPS, "show", row["steps"])
            states = [step["status"] for step in steps.values()]
            if "failed" in states or (states and set(states) == {"succeeded"}):
                return f"mission {id} is {state}, and its steps have ended", "no process pokes: call the heartbeat"
    return None


@check("OPS_008", "Dedupe Key Collision")
async def keys_are_unique(context: DoctorContext) -> Found:
    times, last, after = 0, None, 0
    while page := await context.ops.ocean.read_events(
        session_id=context.ops.settings.project, types=["proposal.collided"], after=after, limit=MOST_CHECKED
    ):
        times, last, after = times + len(page), page[-1].payload, page[-1].seq
    if last is None:
        return None
    detail = f"{times} times a different proposal had a dedupe_key in use, last {last['dedupe_key']!r}"
    return detail, f"give each proposal its own dedupe_key, or none; this one belongs to {last['proposal_id']}"


@check("OPS_009", "Reaction Queue Buildup")
async def reactions_are_processed(context: DoctorContext) -> Found:
    late = [id for id, age, _ in await context.stored(REACTIONS, is_oldest=True, state="queued") if age > LATE_MS]
    return (
        (f"{len(late)} reactions have been queued for over 10 minutes", "no process pokes: call the heartbeat")
        if late
        else None
    )


@check("OPS_010", "Event Processing Backlog")
async def events_are_processed(context: DoctorContext) -> Found:
    late = [id for id, age, _ in await context.stored(EVENTS, is_oldest=True, processed=False) if age > LATE_MS]
    if late:
        return f"{len(late)} events have waited for over 10 minutes", "no process pokes: call the heartbeat"
    events = [row for _, _, row in await context.stored(EVENTS, processed=True) if row and not row["is_own"]]
    events = [row for row in events if not row["type"].startswith(OWN_TYPES)]
    if events and not patterns_of(context.policies):
        return "there are events, but no patterns that could match them", "put patterns into reaction_matrix"
    return None
