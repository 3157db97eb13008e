"""The clog of executions: one step of a loop, as a run. Its first tick looks and writes down what it is about to do;
the second does it. So an effect is on record before it happens, and its result with the step that it belongs to."""

from typing import Any, assert_never

from clogs.loop.issues import EXECUTIONS, INTENDED
from clogs.loop.plans import Blocked, Facts, LoopPlan, LoopStepFailed, PlanFinished, Sight, Step, looked, next_of
from clogs.loop.records import Result, StepOrder, blocked, done, failed, finished
from ocean import Abort, Clog, Continue, Done, Failed, Outcome, Tick


def execution_clog(plans: dict[str, LoopPlan]) -> Clog:
    # Whoever repeats or creates one past its issue would work without the lock.
    clog = Clog(EXECUTIONS, generic=["cancel"])

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "continue":
            row = (await tick.read(run=True)).run
            return await _act(tick, plans, StepOrder.model_validate(row["order"]), row["seen"])
        order = StepOrder.model_validate(tick.input)
        await tick.set_attributes(started_at=tick.now)
        sight = sight_of(order, tick.session_id, tick.now)
        found = await resolved(plans.get(order.plan), order, sight)
        if isinstance(found, Result):
            return _ended(found)
        step, seen = found
        if step.effect is None:
            return _ended(done(plans[order.plan], step, order, {**seen}))
        await tick.read(run=True)
        await tick.write(run={"order": order.model_dump(mode="json"), "seen": seen})
        await tick.emit(INTENDED, {"runId": tick.run_id, "step": step.number, "stateBefore": order.state})
        return Continue()

    return clog


async def _act(tick: Tick, plans: dict[str, LoopPlan], order: StepOrder, seen: Facts) -> Outcome:
    plan = plans.get(order.plan)
    step = plan.find(order.next or 0) if plan else None
    if plan is None or step is None or step.effect is None:
        # It was there when the effect was written down: another version of the plan runs here now.
        raise Abort(f"plan {order.plan!r} has no effect for step {order.next} any more", code="PLAN_CHANGED")
    effect, sight = step.effect, sight_of(order, tick.session_id, tick.now)

    async def act(key: str) -> dict[str, Any]:
        return {**(await effect(sight, order.key) or {})}

    try:
        facts = await tick.step("effect", act)
    except LoopStepFailed as failure:
        return _ended(failed(plan, step, order, failure.code, failure.message))
    return _ended(done(plan, step, order, {**seen, **facts}))


async def resolved(plan: LoopPlan | None, order: StepOrder, sight: Sight) -> Result | tuple[Step, Facts]:
    """The step that is to be done, with what its gate has seen; or what is answered without doing it."""
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
        seen = await looked(following, sight)
    except LoopStepFailed as failure:
        return failed(plan, following, order, failure.code, failure.message)
    if isinstance(seen, Blocked):
        return blocked(order, following, seen.code, seen.message)
    return following, seen


def sight_of(order: StepOrder, project: str, now: int) -> Sight:
    return Sight(order.issue_id, project, order.title, order.state, order.facts, order.actor, now, order.failed_step)


def _ended(result: Result) -> Outcome:
    said = result.model_dump(mode="json")
    if result.status != "failed":
        return Done(said)
    code, _, message = (result.message or "").partition(": ")
    return Failed({"code": code, "message": message, "details": said})
