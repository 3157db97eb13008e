"""The Loop API: issues that go through a plan, one step a click, each step an execution of its own.

An issue is an idle run, an execution its child. A click locks the issue and creates the execution in one commit. The
end of the execution, whoever makes it, is an input of the issue, which takes over the result and is free again: no lock
outlives its holder. `docs/loop-api.md` has the contract, `docs/decisions/0032-loop-api.md` the choices.
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
"""The plan that ships, without an outside: `ocean serve --clogs clogs.loop:clogs`."""
