"""Issues: created once, listed newest first, changed by version; and the checks of plans."""

from typing import Any

import pytest

from clogs.loop import HOLD, Blocked, Facts, Loop, LoopPlan, LoopStepFailed, OnPaper, Sight, Step, afu9
from clogs.loop.plans import PlanFinished, next_of
from ocean import CallRefused, InvalidValue
from ocean.testing import world
from tests.clogs.loop.kit import ANN, ISSUE, error_of, town


@pytest.mark.anyio
async def test_an_issue_is_made_over_http_and_its_key_makes_no_second_one() -> None:
    async with town() as t:
        body = {"issueId": "AFU9-7", "title": "a door", "project": "house", "facts": {"spec": "s"}}
        made = await t.ask("POST", "/api/loop/issues", body, idempotency_key="k")
        assert (made.status, made.headers["etag"], made.headers["location"]) == (201, '"1"', "/api/loop/issues/AFU9-7")
        assert made.json()["issue"] == {
            "issueId": "AFU9-7",
            "project": "house",
            "title": "a door",
            "plan": "afu9",
            "state": "CREATED",
            "version": 1,
            "nextStep": {"stepNumber": 1, "stepType": "S1_PICK"},
            "facts": {"spec": "s"},
            "createdAt": "2023-11-14T22:13:20.000Z",
            "createdBy": ANN,
        }
        again = await t.ask("POST", "/api/loop/issues", body, idempotency_key="k")
        assert (again.status, again.json()["issue"]) == (201, made.json()["issue"])
        error_of(await t.ask("POST", "/api/loop/issues", body), 409, "LOOP_CONFLICT")
        unnamed = [await t.ask("POST", "/api/loop/issues", {"title": "x"}, idempotency_key=key) for key in "aab"]
        ids = [answer.json()["issue"]["issueId"] for answer in unnamed]
        assert (ids[0] == ids[1], ids[0] == ids[2]) == (True, False)


@pytest.mark.anyio
async def test_an_invalid_issue_is_refused_with_the_wrong_field() -> None:
    async with town() as t:
        await t.w.ocean.create_run(session_id="default", clog_id="loop.run", run_id="taken")
        for body, code, words in (
            ({}, "INVALID_REQUEST", "title"),
            ({"title": ""}, "INVALID_REQUEST", "title"),
            ({"title": 5}, "INVALID_REQUEST", "title"),
            ({"title": "x", "state": "CLOSED"}, "INVALID_REQUEST", "state"),
            ({"title": "x", "plan": "b"}, "INVALID_REQUEST", "there is no plan 'b'; available: afu9"),
            ({"title": "x", "issueId": "taken"}, "LOOP_CONFLICT", "taken"),
            ({"title": "x", "facts": {"a": 10**400}}, "INVALID_REQUEST", ""),
        ):
            status = 409 if code == "LOOP_CONFLICT" else 400
            error = error_of(await t.ask("POST", "/api/loop/issues", body), status, code)
            assert words in error["message"]
        assert len((await t.seen("/api/loop/issues"))["issues"]) == 1
        for path in ("/api/loop/runs/taken", "/api/loop/runs/taken/steps", f"/api/loop/runs/{ISSUE}"):
            error_of(await t.ask("GET", path), 404, "ISSUE_NOT_FOUND")


@pytest.mark.anyio
async def test_issues_are_listed_newest_first_in_pages_by_project_and_state() -> None:
    async with town() as t:
        for number in range(5):
            t.w.clock.advance(1)
            await t.loop.create_issue(t.w.ocean, "x", actor=ANN, issue_id=f"i-{number}", project=f"p{number % 2}")
        listed: list[str] = []
        query = "?limit=2"
        while True:
            page = await t.seen(f"/api/loop/issues{query}")
            listed += [issue["issueId"] for issue in page["issues"]]
            if "nextCursor" not in page:
                break
            query = f"?limit=2&cursor={page['nextCursor']}"
        assert listed == ["i-4", "i-3", "i-2", "i-1", "i-0", ISSUE]
        await t.clicks(2)
        for query, wanted in (
            ("?project=p1", ["i-3", "i-1"]),
            ("?state=SPEC_READY", [ISSUE]),
            ("?state=CREATED&project=p0", ["i-4", "i-2", "i-0"]),
        ):
            found = (await t.seen(f"/api/loop/issues{query}"))["issues"]
            assert [issue["issueId"] for issue in found] == wanted, query
        for query in ("?limit=0", "?limit=201", "?limit=x", "?colour=red", "?cursor=x"):
            error_of(await t.ask("GET", f"/api/loop/issues{query}"), 400, "INVALID_REQUEST")


@pytest.mark.anyio
async def test_facts_are_changed_by_version_and_null_removes_one() -> None:
    async with town() as t:
        path = f"/api/loop/issues/{ISSUE}"
        changed = await t.ask("PATCH", path, {"facts": {"verdict": None, "spec": "b"}}, if_match="1")
        assert (changed.json()["issue"]["version"], changed.json()["issue"]["facts"].get("spec")) == (2, "b")
        assert "verdict" not in changed.json()["issue"]["facts"]
        error = error_of(await t.ask("PATCH", path, {"facts": {"spec": "c"}}, if_match="1"), 409, "LOOP_CONFLICT")
        assert error["details"] == {"version": 2}
        same = await t.ask("PATCH", path, {"facts": {"spec": "b"}})
        assert same.json()["issue"]["version"] == 2
        error_of(await t.ask("PATCH", path, {}), 400, "INVALID_REQUEST")


@pytest.mark.anyio
async def test_an_issue_that_was_deleted_and_made_again_acts_under_other_keys() -> None:
    async with town() as t:
        await t.until_merge()
        await t.click()
        info = await t.w.ocean.get_run(ISSUE)
        assert (info and info.max_attempts) is None, "no number of crashes may end an issue"
        await t.w.ocean.delete_run(ISSUE)
        error_of(await t.click(), 404, "ISSUE_NOT_FOUND")
        t.w.clock.advance(1)
        await t.issue()
        await t.until_merge()
        await t.click()
        assert len({key for _, key in t.desk.merge_calls}) == len(t.desk.merged) == 2


def a_step(number: int = 1, state: str = "A", to: str = "B", **more: Any) -> Step:
    return Step(number=number, type="DO", state=state, to=to, **more)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LoopPlan("x", []), "must have at least one step"),
        (lambda: LoopPlan("X", [a_step()]), "the name of a plan must be like"),
        (lambda: LoopPlan("x", [a_step(), a_step(state="B")]), "must have different numbers"),
        (lambda: LoopPlan("x", [a_step(), a_step(2)]), "step 2 must start in B, where step 1 leads, not in A"),
        (lambda: LoopPlan("x", [a_step(remedied=True)]), "must have a remedy"),
        (lambda: LoopPlan("x", [a_step()], remedy=a_step(9)), "must lead to HOLD"),
        (lambda: a_step(0), "the number of a step must be a whole number, got 0"),
        (lambda: a_step(True), "got True"),
        (lambda: a_step(estimated_ms=-1), "the estimated_ms of a step"),
        (lambda: Step(number=1, type="do it", state="A", to="B"), "the type of step 1 must be a word in capitals"),
        (lambda: LoopStepFailed("oh no", "x"), "the code of a failed step must be a word"),
        (lambda: Loop(), "a Loop must have at least one plan"),
        (lambda: Loop(afu9(OnPaper()), afu9(OnPaper())), "their names must differ"),
    ],
)
def test_an_invalid_plan_is_refused_when_it_is_created(make: Any, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        make()
    assert words in str(refused.value)


def test_what_is_next_is_a_pure_function_of_plan_state_and_number() -> None:
    plan = afu9(OnPaper())
    for step in plan.steps:
        assert next_of(plan, step.state, step.number) is step
    assert next_of(plan, "DONE", 9) is plan.remedy
    assert next_of(plan, "CLOSED", None) == PlanFinished()
    codes = [next_of(*arguments) for arguments in ((plan, HOLD, None), (None, "CREATED", 1), (plan, "CREATED", 44))]
    assert [found.code for found in codes if isinstance(found, Blocked)] == [
        "ISSUE_ON_HOLD", "PLAN_UNKNOWN", "STEP_UNKNOWN",
    ]  # fmt: skip
    assert [plan.after(step) for step in plan.steps] == [*plan.steps[1:], None]


@pytest.mark.anyio
async def test_a_custom_plan_with_an_estimate_and_an_effect() -> None:
    rung: list[str] = []

    async def ring(sight: Sight, key: str) -> Facts:
        rung.append(f"{sight.title} in {sight.project} for {sight.actor}")
        return {"rung": True}

    bell = LoopPlan("bell", [Step(number=1, type="RING", state="SILENT", to="RUNG", effect=ring, estimated_ms=50)])
    loop = Loop(afu9(OnPaper()), bell)
    async with world(clogs=loop.clogs) as w:
        issue = await loop.create_issue(w.ocean, "the door", actor=ANN, plan="bell", project="house")
        dry = await loop.run_next_step(w.ocean, issue.issue_id, actor=ANN, mode="dryRun")
        assert dry.next_step is not None
        assert (dry.next_step.estimated_duration_ms, rung) == (50, [])
        without = Loop(afu9(OnPaper()))
        elsewhere = await w.instance(without.clogs)
        paused = await without.run_next_step(elsewhere, issue.issue_id, actor=ANN)
        assert (paused.loop_status, (paused.message or "").split(":")[0], rung) == ("paused", "PLAN_UNKNOWN", [])
        done = await loop.run_next_step(w.ocean, issue.issue_id, actor=ANN)
        assert (done.loop_status, rung) == ("completed", [f"the door in house for {ANN}"])
        shown = await without.get_issue(w.ocean, issue.issue_id)
        assert (shown.state, shown.facts, shown.plan) == ("RUNG", {"rung": True}, "bell")
        with pytest.raises(CallRefused, match="must be on hold"):
            await loop.resume(w.ocean, issue.issue_id, actor=ANN)


@pytest.mark.anyio
async def test_a_permanent_failure_without_a_remedy_is_retried_under_a_new_key() -> None:
    keys: list[str] = []

    async def ring(sight: Sight, key: str) -> Facts:
        keys.append(key)
        if len(keys) < 3:
            raise LoopStepFailed("STUCK", "the bell is stuck")
        return {}

    loop = Loop(LoopPlan("bell", [Step(number=1, type="RING", state="SILENT", to="RUNG", effect=ring)]))
    async with world(clogs=loop.clogs) as w:
        await loop.create_issue(w.ocean, "the door", actor=ANN, issue_id=ISSUE)
        responses = [await loop.run_next_step(w.ocean, ISSUE, actor=ANN) for _ in range(3)]
        assert [answer.loop_status for answer in responses] == ["failed", "failed", "completed"]
        assert len({*keys}) == 3
        assert (await loop.get_issue(w.ocean, ISSUE)).version == 2
