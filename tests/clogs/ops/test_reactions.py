"""Agent events and the reaction matrix: matching, chance, cooldowns, templates, and that no event blocks another."""

from typing import Any

import anyio
import pytest

from clogs.ops import OpsSettings
from clogs.ops.events import even_chance
from clogs.ops.patterns import Pattern, matches, render, unfilled
from tests.clogs.ops.kit import HOUR_MS, MINUTE_MS, Loop, loop

pytestmark = pytest.mark.anyio

TEMPLATE = {"title": "Deploy {{event.data.service}}", "steps": [{"kind": "wreckit"}]}


def pattern(**more: Any) -> dict[str, Any]:
    return {"id": "p", "event_type": "deploy:requested", "template": TEMPLATE, **more}


def matrix(*patterns: dict[str, Any]) -> dict[str, Any]:
    return {"key": "reaction_matrix", "value": {"patterns": list(patterns)}}


async def tell(ops: Loop, type: str = "deploy:requested", **data: Any) -> Any:
    (made,) = await ops.answer("POST", "ops_agent_events", {"type": type, "data": data})
    return made


@pytest.mark.parametrize(
    ("wanted", "type", "is_like"),
    [
        ("step:failed", "step:failed", True),
        ("step:failed", "step:failed:late", False),
        (["step:failed", "step:succeeded"], "step:succeeded", True),
        (["step:failed"], "step:succeeded", False),
        ("*", "anything", True),
        ("step:*", "step:failed", True),
        ("step:*", "steps", False),
        ("*:failed", "step:failed", True),
        ("step:*:failed", "step:noop:failed", True),
        ("step:*:failed", "step:failed", False),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("st?p", "step", False),
        ("st[e]p", "step", False),
    ],
)
def test_types_match_exactly_by_list_or_by_wildcard(wanted: Any, type: str, is_like: bool) -> None:
    assert matches(Pattern.model_validate(pattern(event_type=wanted)), type, {}) is is_like


@pytest.mark.parametrize(
    ("given", "data", "is_meant"),
    [
        ({"tags": ["a", "b"]}, {"tags": ["b", "c", "a"]}, True),
        ({"tags": ["a", "b"]}, {"tags": ["a"]}, False),
        ({"tags": ["a"]}, {}, False),
        ({"tags": ["a"]}, {"tags": "a"}, False),
        ({"source": "manual"}, {"source": "manual"}, True),
        ({"source": "manual"}, {"source": "cron"}, False),
        ({"source": "manual"}, {}, False),
        ({"enabled": False}, {}, False),
    ],
)
def test_tags_are_all_of_and_source_is_exact(given: Any, data: Any, is_meant: bool) -> None:
    assert matches(Pattern.model_validate(pattern(**given)), "deploy:requested", data) is is_meant


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Deploy {{event.data.service}}", "Deploy api"),
        ("{{ event.data.service }}/{{type}}", "api/t"),
        ("{{event.data.hosts.1.name}}", "two"),
        ("{{event.data.hosts.9.name}}", "{{event.data.hosts.9.name}}"),
        ("{{event.data.missing}} {{nothing}}", "{{event.data.missing}} {{nothing}}"),
        ("{{event.data.count}} {{event.data.is_on}}", "3 true"),
        ("{{event.data.hosts.0}}", '{"name": "one"}'),
        ("{{event.data.sly}}", "{{event.data.service}}"),
        ("{{__class__}} {{event.__dict__}} {{1+1}} ${x} {{", "{{__class__}} {{event.__dict__}} {{1+1}} ${x} {{"),
    ],
)
def test_templates_are_filled_in_and_never_evaluated(text: str, made: str) -> None:
    data = {"service": "api", "hosts": [{"name": "one"}, {"name": "two"}], "count": 3, "is_on": True}
    event = {"type": "t", "data": {**data, "sly": "{{event.data.service}}"}}
    assert render({"a": [text]}, event) == {"a": [made]}
    assert render({"{{type}}": 7}, event) == {"{{type}}": 7}


def test_unfilled_variables_are_reported() -> None:
    assert unfilled({"title": "{{a.b}}", "steps": [{"params": {"x": "{{c}} and {{d}}"}}]}) == ["a.b", "c", "d"]


async def test_an_event_that_matches_becomes_a_reaction_and_a_proposal() -> None:
    async with loop() as ops:
        await ops.put(matrix(pattern()))
        event = await tell(ops, service="api")
        assert event["processed_at"] is not None
        (reaction,) = await ops.rows("ops_agent_reactions?status=eq.queued")
        assert (reaction["event_id"], reaction["payload"]["pattern_id"]) == (event["id"], "p")
        await ops.w.drain()
        (reaction,) = await ops.rows("ops_agent_reactions?payload->>pattern_id=eq.p")
        (proposal,) = await ops.rows("ops_mission_proposals")
        assert (reaction["status"], reaction["payload"]["result"]["proposal_id"]) == ("done", proposal["id"])
        assert (proposal["source"], proposal["template"]["title"]) == ("reaction", "Deploy api")


async def test_ten_thousand_unmatched_events_do_not_delay_the_next(ground: str) -> None:
    parts = 4 if ground == "postgres" else 20  # there two thousand, which take as long to write
    async with loop() as ops:
        await ops.put(matrix(pattern()))
        noise: list[Any] = [{"type": "noise", "data": {}, "mission_id": None, "dedupe_key": None}] * 500
        for _ in range(parts):
            await ops.w.ocean.call_clog(clog_id="ops-events", session_id="ops", method="insert", payload=noise)
        waiting = await ops.w.ocean.count_runs(clog_id="ops-events", status="pending", cap=20_000)
        assert waiting.count == 500 * parts
        event = await tell(ops, service="api")
        assert event["processed_at"] is not None
        assert len(await ops.rows("ops_agent_reactions")) == 1


async def test_heartbeats_get_past_any_number_of_unmatched_events() -> None:
    async with loop(OpsSettings(event_batch_size=10)) as ops:
        await ops.put(matrix(pattern()))
        noise: list[Any] = [{"type": "noise", "data": {}, "mission_id": None, "dedupe_key": None}] * 35
        await ops.w.ocean.call_clog(clog_id="ops-events", session_id="ops", method="insert", payload=noise)
        beats = [(await ops.answer("POST", "heartbeat"))["triggerResult"]["events"] for _ in range(5)]
        assert beats == [10, 10, 10, 5, 0], "each is examined once, a limited number per heartbeat"
        assert await ops.rows("ops_agent_events?processed_at=is.null") == []


async def test_a_heartbeat_reports_the_work_of_all_processes_since_the_last_one() -> None:
    async with loop() as ops:
        await ops.put(matrix(pattern(template={"steps": [{"kind": "noop"}]}), pattern(id="q", dedupe_key="once")))
        for _ in range(3):
            await tell(ops, service="api")
        await ops.w.drain()
        beat = await ops.answer("POST", "heartbeat")
        assert beat["triggerResult"] == {"events": 3, "queued": 6}
        assert beat["reactionResult"] == {"processed": 6, "created": 4}
        (thought,) = await ops.rows("ops_agent_events?type=eq.agent:thought")
        assert thought["processed_at"] is not None
        assert thought["data"]["agent"] == "heartbeat"
        idle = await ops.answer("POST", "heartbeat")
        assert (idle["triggerResult"], idle["reactionResult"]) == (
            {"events": 0, "queued": 0},
            {"processed": 0, "created": 0},
        )
        assert len(await ops.rows("ops_agent_events?type=eq.agent:thought")) == 1, "an idle heartbeat finds no work"


async def test_concurrent_heartbeats_count_no_work_twice() -> None:
    async with loop() as ops:
        for _ in range(7):
            await tell(ops)
        details: list[int] = []

        async def beat() -> None:
            details.append((await ops.ops.heartbeat())["triggerResult"]["events"])

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(beat)
        assert sum(details) == 7


async def test_the_heartbeats_own_events_trigger_nothing_and_those_of_agents_do() -> None:
    async with loop() as ops:
        await ops.put(matrix(pattern(event_type="*")))
        await tell(ops, "agent:thought", agent="Sage", thought="hm")
        for _ in range(5):
            await ops.answer("POST", "heartbeat")
        assert len(await ops.rows("ops_agent_reactions")) == 1


async def test_a_cooldown_lets_one_through_in_its_time() -> None:
    async with loop() as ops:
        await ops.put(matrix(pattern(cooldown_minutes=60), pattern(id="q")))
        counts = []
        for wait in (0, 59 * MINUTE_MS, MINUTE_MS, HOUR_MS - 1, 1):
            ops.w.clock.advance(wait)
            await tell(ops)
            counts.append(len(await ops.rows("ops_agent_reactions?payload->>pattern_id=eq.p")))
        assert counts == [1, 1, 2, 2, 3]
        assert len(await ops.rows("ops_agent_reactions?payload->>pattern_id=eq.q")) == 5


async def test_twenty_events_at_once_start_one_cooldown() -> None:
    async with loop() as ops:
        await ops.put(matrix(pattern(cooldown_minutes=5)))
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(tell, ops)
        assert len(await ops.rows("ops_agent_reactions")) == 1


async def test_probability_uses_the_given_chance_and_a_lost_draw_starts_no_cooldown() -> None:
    rolls = iter([0.3, 0.29, 0.0])
    async with loop(chance=lambda text: next(rolls)) as ops:
        await ops.put(matrix(pattern(probability=0.3, cooldown_minutes=60)))
        counts = []
        for _ in range(3):
            await tell(ops)
            counts.append(len(await ops.rows("ops_agent_reactions")))
        assert counts == [0, 1, 1], "0.3 is not below it; 0.29 is, and cools down; 0.0 comes too early"


def test_chance_is_uniform_and_the_same_for_the_same_event() -> None:
    rolls = [even_chance(f"event-{n}:p") for n in range(2_000)]
    assert 0.45 < sum(rolls) / len(rolls) < 0.55
    assert 0 <= min(rolls) <= max(rolls) < 1
    assert even_chance("event-1:p") == rolls[1]


async def test_a_reaction_with_an_invalid_template_fails_with_the_reason() -> None:
    async with loop() as ops:
        broken = {"title": "x", "risk_level": "{{event.data.risk}}", "steps": [{"kind": "noop"}]}
        await ops.put(matrix(pattern(template=broken)))
        await tell(ops, risk="enormous")
        await tell(ops, risk="low")
        await ops.w.drain()
        (failed,) = await ops.rows("ops_agent_reactions?status=eq.failed")
        assert failed["payload"]["code"] == "OPS_002"
        assert "risk_level" in failed["payload"]["error"]
        assert [row["template"]["risk_level"] for row in await ops.rows("ops_mission_proposals")] == ["low"]


async def test_an_event_that_would_make_a_template_enormous_fails_its_reaction_and_nothing_else() -> None:
    async with loop() as ops:
        greedy = {"steps": [{"kind": "noop", "params": {"all": "{{event.data.text}}" * 100}}]}
        await ops.put(matrix(pattern(template=greedy), pattern(id="q", dedupe_key="{{event.data.text}}")))
        event = await tell(ops, text="x" * 100_000, service="api")
        assert event["processed_at"] is not None
        await ops.w.drain()
        payloads = [row["payload"] for row in await ops.rows("ops_agent_reactions")]
        errors = {payload["pattern_id"]: payload["error"] for payload in payloads}
        assert "at most" in errors["p"]
        assert "dedupe_key must have at most" in errors["q"]


async def test_the_same_event_under_its_key_is_one_event_and_another_is_a_duplicate() -> None:
    async with loop() as ops:
        event = {"type": "t", "data": {"n": 1}, "dedupe_key": "e-1"}
        first = await ops.answer("POST", "ops_agent_events", event)
        ops.w.clock.advance(HOUR_MS)
        assert await ops.answer("POST", "ops_agent_events", event) == first
        assert await ops.refusal("POST", "ops_agent_events", {**event, "data": {"n": 2}}) == (409, "23505")
        both = [{"type": "other", "data": {}}, {**event, "data": {"n": 2}}]
        assert await ops.refusal("POST", "ops_agent_events", both) == (409, "23505")
        assert await ops.rows("ops_agent_events") == first, "of several, all or none"


async def test_rounds_of_events_and_missions_end_at_the_cap() -> None:
    async with loop() as ops:
        await ops.put(
            matrix(pattern(event_type="step:*", template={"steps": [{"kind": "noop"}]})),
            {"key": "auto_approve", "value": {"enabled": True}},
            {"key": "proposal_caps", "value": {"per_source_limits": {"reaction": 3}}},
        )
        await ops.propose()
        done = 0
        while (step := await ops.claim()) is not None:
            await ops.complete(step)
            await ops.w.drain()
            done += 1
        assert done == 4, "the first, and what three reactions made"
