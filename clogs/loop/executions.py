"""The clog of executions: one step of a plan is a run. Its first tick asks the gate and commits the intended effect;
the second tick calls the effect. So an effect is recorded before it happens, and its result with its step."""

from typing import Any, assert_never

from clogs.loop.issues import EXECUTIONS, INTENDED
from clogs.loop.plans import Blocked, Facts, LoopPlan, LoopStepFailed, PlanFinished, Sight, Step, ask_gate, next_of
from clogs.loop.records import Result, StepOrder, blocked, done, failed, finished
from ocean import Abort, Clog, Continue, Done, Failed, Outcome, Tick


def execution_clog(plans: dict[str, LoopPlan]) -> Clog:
    # An execution that is created or repeated without its issue would run without the lock.
    clog = Clog(EXECUTIONS, generic=["cancel"])

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "continue":
            row = (await tick.read(run=True)).run
            return await _act(tick, plans, StepOrder.model_validate(row["order"]), row["seen"])
        order = StepOrder.model_validate(tick.input)
        await tick.set_attributes(started_at=tick.now)
        sight = sight_of(order, tick.session_id, tick.now)
        resolved = await resolve(plans.get(order.plan), order, sight)
        if isinstance(resolved, Result):
            return _outcome(resolved)
        step, facts_seen = resolved
        if step.effect is None:
            return _outcome(done(plans[order.plan], step, order, {**facts_seen}))
        await tick.read(run=True)
        await tick.write(run={"order": order.model_dump(mode="json"), "seen": facts_seen})
        await tick.emit(INTENDED, {"runId": tick.run_id, "step": step.number, "stateBefore": order.state})
        return Continue()

    return clog


async def _act(tick: Tick, plans: dict[str, LoopPlan], order: StepOrder, facts_seen: Facts) -> Outcome:
    plan = plans.get(order.plan)
    step = plan.find(order.next or 0) if plan else None
    if plan is None or step is None or step.effect is None:
        # The effect existed when it was recorded: this process has another version of the plan.
        raise Abort(
            f"plan {order.plan!r} no longer has an effect for step {order.next}; restore it", code="PLAN_CHANGED"
        )
    effect, sight = step.effect, sight_of(order, tick.session_id, tick.now)

    async def act(key: str) -> dict[str, Any]:
        return {**(await effect(sight, order.key) or {})}

    try:
        facts = await tick.step("effect", act)
    except LoopStepFailed as failure:
        return _outcome(failed(plan, step, order, failure.code, failure.message))
    return _outcome(done(plan, step, order, {**facts_seen, **facts}))


async def resolve(plan: LoopPlan | None, order: StepOrder, sight: Sight) -> Result | tuple[Step, Facts]:
    """Return the next step with the facts of its gate, or the result if there is no step to execute."""
    following = next_of(plan, order.state, order.next)
    match following:
        case PlanFinished():
            return finished(order)
        case Blocked(code, message):
            return blocked(order, None, code, message)
        case Step():
            assert plan is not None
        case _:
            assert_never(following)
    try:
        facts_seen = await ask_gate(following, sight)
    except LoopStepFailed as failure:
        return failed(plan, following, order, failure.code, failure.message)
    if isinstance(facts_seen, Blocked):
        return blocked(order, following, facts_seen.code, facts_seen.message)
    return following, facts_seen


def sight_of(order: StepOrder, project: str, now: int) -> Sight:
    return Sight(order.issue_id, project, order.title, order.state, order.facts, order.actor, now, order.failed_step)


def _outcome(result: Result) -> Outcome:
    output = result.model_dump(mode="json")
    if result.status != "failed":
        return Done(output)
    code, _, message = (result.message or "").partition(": ")
    return Failed({"code": code, "message": message, "details": output})
