"""`ocean ops doctor`: each of the ten application error codes, arranged and then found by its code."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from clogs.ops import Ops, OpsSettings, clogs
from clogs.ops.doctor import CHECKS, examine
from ocean import Clog, CommandAnswer, Done, Ocean
from ocean.cli.main import app
from tests.clogs.ops.kit import EVERYTHING, HOUR_MS, MINUTE_MS, Loop, loop

NOOP = {"kind": "noop"}
NEVER = {"id": "never", "event_type": "deploy:*", "template": {"steps": [NOOP]}}
EVENT = {"type": "build:done", "data": {}}


def matrix(*patterns: Any) -> dict[str, Any]:
    return {"key": "reaction_matrix", "value": list(patterns)}


async def pattern_matching_failed(ops: Loop) -> None:
    await ops.put(matrix(NEVER))
    await ops.answer("POST", "ops_agent_events", EVENT)


async def template_rendering_failed(ops: Loop) -> None:
    await ops.put(
        matrix({**NEVER, "event_type": "build:*", "template": {"title": "{{event.data.no}}", "steps": [NOOP]}})
    )
    await ops.answer("POST", "ops_agent_events", EVENT)
    await ops.w.drain()
    (made,) = await ops.rows("ops_mission_proposals?status=eq.pending")
    await ops.answer("POST", f"ops_mission_proposals/{made['id']}/reject")


async def auto_approval_rejected(ops: Loop) -> None:
    await ops.put({"key": "auto_approve", "value": {"enabled": True, "allowed_step_kinds": ["radar"]}})
    await ops.propose(risk_level="low")


async def lease_expiration_loop(ops: Loop) -> None:
    await ops.mission(NOOP)
    for _ in range(3):
        await ops.claim(minutes=1)
        ops.w.clock.advance(MINUTE_MS)
    await ops.w.drain()


async def stale_step(ops: Loop) -> None:
    await ops.mission(NOOP)
    await ops.claim(minutes=90)
    ops.w.clock.advance(HOUR_MS)


async def cap_blocking(ops: Loop) -> None:
    await ops.put({"key": "proposal_caps", "value": {"per_source_limits": {"trigger": 0}}})


async def finalization_stuck(ops: Loop) -> None:
    await ops.mission(NOOP)
    step = await ops.claim()
    (run,) = await ops.rows("ops_action_runs")
    # The report was stored and the step has taken it; the process that would move the mission died.
    await ops.w.ocean.complete_work(step["lease_id"], Done())
    await ops.w.ocean.advance(run_id=step["id"])
    assert run["step_id"] == step["id"]


async def key_collision(ops: Loop) -> None:
    await ops.propose(NOOP, key="k")
    await ops.propose(NOOP, key="k")
    assert (await found(ops)) == [], "a replay is none"
    await ops.propose({"kind": "other"}, key="k")


async def reactions_pile_up(ops: Loop) -> None:
    await ops.put(matrix({**NEVER, "event_type": "build:*"}))
    await ops.answer("POST", "ops_agent_events", EVENT)
    ops.w.clock.advance(11 * MINUTE_MS)


async def events_pile_up(ops: Loop) -> None:
    given = {**EVENT, "mission_id": None, "dedupe_key": None}
    await ops.w.ocean.call_clog(clog_id="ops-events", session_id="ops", method="insert", payload=[given])
    ops.w.clock.advance(11 * MINUTE_MS)


async def no_pattern_at_all(ops: Loop) -> None:
    await ops.answer("POST", "ops_agent_events", EVENT)


CASES: list[tuple[str, Callable[[Loop], Awaitable[None]]]] = [
    ("OPS_001", pattern_matching_failed),
    ("OPS_002", template_rendering_failed),
    ("OPS_003", auto_approval_rejected),
    ("OPS_004", lease_expiration_loop),
    ("OPS_005", stale_step),
    ("OPS_006", cap_blocking),
    ("OPS_007", finalization_stuck),
    ("OPS_008", key_collision),
    ("OPS_009", reactions_pile_up),
    ("OPS_010", events_pile_up),
    ("OPS_010", no_pattern_at_all),
]


async def found(ops: Loop) -> list[str]:
    return [finding.code for finding in await examine(ops.ops) if not finding.is_ok]


@pytest.mark.anyio
@pytest.mark.parametrize(("code", "arrange"), CASES, ids=[arrange.__name__ for _, arrange in CASES])
async def test_application_error_codes(code: str, arrange: Callable[[Loop], Awaitable[None]]) -> None:
    async with loop() as ops:
        assert await found(ops) == []
        await arrange(ops)
        assert await found(ops) == [code]


def test_there_is_a_check_for_each_of_the_ten_codes() -> None:
    assert [code for code, _, _ in CHECKS] == [f"OPS_{number:03}" for number in range(1, 11)]
    assert {code for code, _ in CASES} == {code for code, _, _ in CHECKS}


@pytest.mark.anyio
async def test_a_busy_project_has_no_findings() -> None:
    async with loop() as ops:
        await ops.put(matrix({**NEVER, "event_type": "build:*"}), EVERYTHING)
        await ops.answer("POST", "ops_agent_events", EVENT)
        await ops.w.drain()
        while (step := await ops.claim()) is not None:
            await ops.complete(step)
            await ops.w.drain()
        assert [finding.detail for finding in await examine(ops.ops)] == ["nothing found"] * 10


def typed(*words: str, **environ: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words), env={"OCEAN_CLOGS": "clogs.ops:clogs", "COLUMNS": "200", **environ})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_the_doctor_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, content, _ = typed("ops", "doctor", "--json")
    assert (code, [check["code"] for check in json.loads(content)["checks"]]) == (0, [code for code, _, _ in CHECKS])
    assert typed("ops", "doctor")[1].splitlines()[0] == "ok  OPS_001 Reaction Pattern Matching Failed: nothing found"

    async def block() -> None:
        async with Ocean.open("sqlite:///ocean.db", clogs=clogs(OpsSettings())) as ocean:
            ops = Ops(ocean)
            await ops.put_policy([{"key": "proposal_caps", "value": {"daily_limit": 0}}, EVERYTHING])
            assert (await ops.ops_gate_proposal())[0]["ok"] is False

    anyio.run(block)
    code, content, _ = typed("ops", "doctor")
    assert code == 1
    assert "NO  OPS_006 Proposal Cap Blocking: Daily proposal cap reached" in content
    assert "    -> raise the limit in proposal_caps, or wait for midnight UTC" in content
    code, content, _ = typed("ops", "heartbeat", "--json")
    assert (code, json.loads(content)["ok"]) == (0, True)
    assert typed("ops", "work", "--json")[:2] == (0, '{"done": 0}\n')


def test_an_unknown_command_opens_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, content = typed("shw", "run-1")
    assert (code, "No such command 'shw'" in content) == (2, True)
    code, _, content = typed("ops-heart", "doctor", "--json")
    assert (code, json.loads(content)["error"]["code"]) == (2, "wrong_usage")
    code, _, content = typed("ops", "docto")
    assert (code, "did you mean 'doctor'" in content) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["ops"], ["ops", "--help"]])
def test_a_clog_alone_lists_its_commands(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, content, _ = typed(*words)
    assert (code, [line.split("  ")[0] for line in content.splitlines()[1:]]) == (
        0,
        ["ocean ops doctor", "ocean ops heartbeat", "ocean ops work"],
    )
    assert list(json.loads(typed("ops", "--json")[1])) == ["doctor", "heartbeat", "work"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typo", [["advnce"], ["advnce", "--until-idle"]])
def test_a_typo_of_a_core_command_does_not_mention_clogs(
    typo: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, content = typed(*typo, OCEAN_CLOGS="not_there:clog")
    assert (code, "Did you mean 'advance'" in content) == (2, True)


def test_a_command_is_registered_once_and_returns_a_command_answer() -> None:
    clog = Clog("c")

    @clog.command
    async def look(ocean: Ocean) -> CommandAnswer:
        return CommandAnswer("fine")

    assert clog.commands == {"look": look}
    with pytest.raises(Exception, match="got 'look' twice"):
        clog.command(look)
