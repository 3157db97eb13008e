"""The plan that ships: from a created issue to a closed one. External systems are behind the `Desk` protocol."""

from typing import Any, Literal, Protocol

from clogs.loop.plans import HOLD, Blocked, Facts, LoopPlan, LoopStepFailed, Sight, Step


class Desk(Protocol):
    """The external systems of the plan. The first four methods only read; the others act, and get a key.

    An action under a key that was used before does nothing and returns the first result. It raises `LoopStepFailed` if
    it is refused permanently, and any other exception if the result is unknown.
    """

    async def spec(self, sight: Sight) -> str | None:
        """Return the location of the specification, or None."""

    async def review(self, sight: Sight) -> Literal["approved", "pending", "changes_requested"]: ...

    async def deployment(self, sight: Sight) -> Literal["deployed", "pending", "failed"]: ...

    async def verdict(self, sight: Sight) -> Literal["green", "pending", "red"]: ...

    async def prepare(self, sight: Sight, key: str) -> Facts:
        """Open the pull request or branch for the implementation; return `prUrl`."""

    async def merge(self, sight: Sight, key: str) -> Facts: ...

    async def close(self, sight: Sight, key: str) -> Facts: ...

    async def remediate(self, sight: Sight, key: str) -> Facts:
        """Undo the change, or alert a person."""


class OnPaper:
    """A desk without external systems: it reads the issue's facts, and its actions only record facts."""

    async def spec(self, sight: Sight) -> str | None:
        return sight.facts.get("spec")

    async def review(self, sight: Sight) -> Any:
        return sight.facts.get("review", "pending")

    async def deployment(self, sight: Sight) -> Any:
        return sight.facts.get("deployment", "pending")

    async def verdict(self, sight: Sight) -> Any:
        return sight.facts.get("verdict", "pending")

    async def prepare(self, sight: Sight, key: str) -> Facts:
        return {"branch": f"issue/{sight.issue_id}"}

    async def merge(self, sight: Sight, key: str) -> Facts:
        return {"mergedUnder": key}

    async def close(self, sight: Sight, key: str) -> Facts:
        return {"closedUnder": key}

    async def remediate(self, sight: Sight, key: str) -> Facts:
        return {"remediatedUnder": key}


def afu9(desk: Desk) -> LoopPlan:
    """Return the plan: steps S1 to S8, and S9 as the remedy of a failure after the review."""

    async def pick(sight: Sight) -> Facts:
        return {"pickedBy": sight.actor}

    async def spec_gate(sight: Sight) -> Blocked | Facts:
        spec = await desk.spec(sight)
        return {"spec": spec} if spec else Blocked("SPEC_MISSING", "the issue has no specification yet")

    async def review_gate(sight: Sight) -> Blocked | None:
        match await desk.review(sight):
            case "approved":
                return None
            case "changes_requested":
                return Blocked("CHANGES_REQUESTED", "the reviewers have requested changes")
            case _:
                return Blocked("REVIEW_PENDING", "the review is not finished")

    async def observe(sight: Sight) -> Blocked | Facts:
        match await desk.deployment(sight):
            case "deployed":
                return {"observedAt": sight.now}
            case "failed":
                raise LoopStepFailed("DEPLOYMENT_FAILED", "the merged change could not be deployed")
            case _:
                return Blocked("DEPLOYMENT_PENDING", "the merged change is not deployed yet")

    async def verify_gate(sight: Sight) -> Blocked | None:
        match await desk.verdict(sight):
            case "green":
                return None
            case "red":
                raise LoopStepFailed("VERDICT_RED", "the deployed change does not work as specified")
            case _:
                return Blocked("VERDICT_PENDING", "there is no verdict yet")

    return LoopPlan(
        "afu9",
        [
            Step(number=1, type="S1_PICK", state="CREATED", to="CREATED", gate=pick),
            Step(number=2, type="S2_SPEC_GATE", state="CREATED", to="SPEC_READY", gate=spec_gate),
            Step(number=3, type="S3_IMPLEMENT_PREP", state="SPEC_READY", to="IMPLEMENTING_PREP", effect=desk.prepare),
            Step(number=4, type="S4_REVIEW_GATE", state="IMPLEMENTING_PREP", to="REVIEW_READY", gate=review_gate),
            Step(number=5, type="S5_MERGE", state="REVIEW_READY", to="DONE", effect=desk.merge, remedied=True),
            Step(number=6, type="S6_OBSERVE", state="DONE", to="DONE", gate=observe, remedied=True),
            Step(number=7, type="S7_VERIFY_GATE", state="DONE", to="VERIFIED", gate=verify_gate, remedied=True),
            Step(number=8, type="S8_CLOSE", state="VERIFIED", to="CLOSED", effect=desk.close),
        ],
        remedy=Step(number=9, type="S9_REMEDIATE", state="DONE", to=HOLD, effect=desk.remediate),
    )
