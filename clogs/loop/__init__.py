"""The Loop API: an issue goes through the steps of a plan, one step per request, and each step is an execution.

An issue is an idle run, an execution is its child. A request locks the issue and creates the execution in one commit.
The end of the execution, for any reason, is an input of the issue, which stores the result and removes the lock: no
lock outlives its holder. `docs/loop-api.md` has the contract, `docs/decisions/0032-loop-api.md` the choices.

Read `plans` first (steps, gates, effects), then `records` (what is stored), `issues` and `executions` (the two clogs),
`queries` and `api` (the verbs in Python), `views` and `schemas` (what is sent), `errors` and `routes`. `afu9` is the
plan that ships.
"""

from clogs.loop.afu9 import Desk, OnPaper, afu9
from clogs.loop.api import Loop
from clogs.loop.plans import HOLD, Blocked, Facts, LoopPlan, LoopStepFailed, Sight, Step
from clogs.loop.schemas import EventShown, IssueShown, NextStep, RunNextStepAnswer, RunShown, StepExecuted

__all__ = [
    "HOLD",
    "Blocked",
    "Desk",
    "EventShown",
    "Facts",
    "IssueShown",
    "Loop",
    "LoopPlan",
    "LoopStepFailed",
    "NextStep",
    "OnPaper",
    "RunNextStepAnswer",
    "RunShown",
    "Sight",
    "Step",
    "StepExecuted",
    "afu9",
    "clogs",
    "loop",
]

loop = Loop(afu9(OnPaper()))
clogs = loop.clogs
"""The plan that ships, without external systems: `ocean serve --clogs clogs.loop:clogs`."""
