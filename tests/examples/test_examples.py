"""The examples, run as a user runs them: as programs."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, get_args

import pytest

from clogs.counter import counter
from ocean import RunStatus
from ocean.state.eligibility import HoldCode
from ocean.testing import World, crash_everywhere, world
from tests.browser.chat_server import running
from tests.invariants import check

ROOT = Path(__file__).parents[2]
SERVERS = ["chat_page"]
"""They run until they are stopped; the page is used in tests/browser."""
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/main.py") if path.parent.name not in SERVERS)
ESSENTIAL = {
    "counter": [
        "reopened, the counter is at 1",
        "result: {'n': 3}",
        "  tick 3: counted 3",
    ],
    "approval": [
        "the agent proposes a letter to Ada",
        "why is the letter not moving? waiting: waiting for its wake time, its next timer or a signal",
        "kim: approved",
        "lee is too late: already rejected (already_decided)",
        "result: {'decision': 'approved', 'by': 'kim', 'receipt': \"sent 'a letter to Ada'\"}",
        "result: {'decision': 'rejected', 'by': 'kim'}",
        "result: {'decision': 'expired', 'by': None}",
        "sent: ['a letter to Ada']",
    ],
    "agent_approval": [
        "the agent wants disk.delete {'path': '/var/cache', 'key': 'storage'}; deleted so far: []",
        "lee: the caller must have the role 'operator' to decide (not_an_approver)",
        "kim: approved",
        "kim: request '2.1' is already approved by kim (already_decided)",
        "the agent wants disk.delete {'path': '/home', 'key': 'storage'}; deleted so far: ['/var/cache']",
        "kim: rejected",
        "  called disk.delete {'path': '/var/cache', 'key': 'storage'} ok approved by kim",
        "deleted: ['/var/cache']",
        "is the credential stored in the database? no",
    ],
    "research": [
        "lane 0: What about its water? Too hot for green tea, boiling for black.",
        "lane 1: What about its price? failed: no data on prices",
        "keys still held: []",
    ],
    "hello": ["Hello, Ada!"],
    "in_fastapi": [
        f"{name}: {line}"
        for name in ("fastapi", "starlette")
        for line in (
            "both requests return the same run: True",
            "result: welcomed",
            "mailed: ['welcome, ada', 'how do you like it?']",
        )
    ],
    "explain": [
        "  no hold: the next advance here claims it",
        "  locked, for 30 s, held by web-1",
        "  key_full, held by holder",
        "  locked, for 30 s, held by gpu-box-3",
    ],
    "webhook_in": [
        'paid: 200 {"answer":"thank you for order-17","replayed":false}',
        'repeated: 200 {"answer":"thank you for order-17","replayed":true}',
        "another body: 409 delivery 'msg_1' was received before, with another body",
        "wrong secret: 401 there is no such webhook, or none of its secrets made this signature",
        "an hour late: 401 webhook-timestamp must be within 300 s of the server's time",
        "unknown: 404 there is no order 'order-18'",
        "result: {'paid': 40}",
        "payments: ['msg_1']",
    ],
    "charged_twice": [
        "hasty: an ordinary test sees 1 charge",
        "hasty: a crash changes the result at 5 of 8 points",
        '    response: FetchResponse = await tick.fetch(CHARGES, method="POST", headers=headers, body=body)',
        '    without a crash: [{"card": "ada\'s", "amount": 40}]',
        '    with it:         [{"card": "ada\'s", "amount": 40}, {"card": "ada\'s", "amount": 40}]',
        "careful: an ordinary test sees 1 charge",
        "careful: the result is the same after a crash at each of 11 points",
    ],
    "loop": [
        "dry run: 200 active: would execute step 1, S1_PICK",
        "first: 200 active: S1_PICK completed",
        "the same click repeated: 200 active: S1_PICK completed",
        "next: 200 paused: REVIEW_PENDING: the review is not finished",
        "reviewed: 200 active: S4_REVIEW_GATE completed",
        "merged: 200 active: S5_MERGE completed",
        "next: 200 completed: S8_CLOSE completed",
        "after the last step: 200 completed: the loop is completed; there are no more steps",
        "unknown: 404 ISSUE_NOT_FOUND: there is no issue 'AFU9-124'; create one with POST /api/loop/issues",
        "the issue is CLOSED; merge requests: 2, merges: ['commit-1']",
    ],
    "ops": [
        "heartbeat: {'processed': 1, 'created': 1}",
        "proposed: Deploy api",
        "kim: approved",
        "w-2: ship succeeded after 1 failure",
        "mission: succeeded",
        "shipped: 1",
    ],
    "saga": [
        "ada pays -> ada travels, paid with 1234",
        "bob finds no car -> failed: sold_out",
        "  trip: undo_retrying hotel",
        "  trip: undone flight",
        "cay cancels -> failed: cancelled",
        "  another run: undone flight",
        "bob's trip with a crash at every await: same result, nothing booked or cancelled twice",
    ],
    "digest": [
        "next: 2026-10-24T08:00:00+01:00",
        "next: 2026-10-25T08:00:00+00:00",
        "Saturday 08:00 WEST: Since yesterday",
        "- a customer called: where is the poster?",
        "- orders order-lost: exception",
        "Sunday 08:00 WET: Since yesterday",
        "Thursday 08:00 WET: Since yesterday",
        "fired: 4",
    ],
    "order": [
        line
        for clog, refunded in (("order", ", refunded"), ("order-flow", ""))
        for line in (
            f"{clog}, approved by kim: {{'state': 'shipped', 'approved_by': 'kim'}}",
            "  events: charged, packing, packing, shipped; ledger: charge",
            f"{clog}, small, no decision: {{'state': 'shipped', 'approved_by': None}}",
            "  events: charged, reminded, packing, packing, shipped; ledger: charge",
            f"{clog}, large, no decision: not_approved",
            f"  events: charged, reminded{refunded}; ledger: charge, refund",
            f"{clog}, cancelled during the charge: cancelled",
            f"{clog}, cancelled while it waits: cancelled",
            f"  events: charged{refunded}; ledger: charge, refund",
        )
    ],
    "external_worker": [
        "one -> ONE from the queue snakes, by worker.py",
        "two -> TWO from the queue shells, by worker.sh",
        "three -> THREE from the queue snakes, by worker.py",
        "four -> FOUR from the queue shells, by worker.sh",
    ],
}


def run(script: Path, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OCEAN_")}
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT)} | settings,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_every_example_has_a_readme_and_is_tested_here() -> None:
    folders = sorted(path.name for path in (ROOT / "examples").iterdir() if (path / "main.py").exists())
    assert folders == sorted([*EXAMPLES, *SERVERS]) == sorted([*ESSENTIAL, *SERVERS])
    assert [name for name in folders if not (ROOT / "examples" / name / "README.md").exists()] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_by_itself_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    done = run(ROOT / "examples" / name / "main.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in ESSENTIAL[name] if line not in lines] == []
    assert list(tmp_path.iterdir()) == []


def test_the_chat_page_is_served_with_a_policy_that_knows_its_script_and_style(tmp_path: Path) -> None:
    with running(tmp_path / "chat.db") as server, urllib.request.urlopen(f"{server.url}/chat", timeout=30) as answer:
        page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        [inline] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        known = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{known}'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"(?:src|href)=\"(?!data:)", page) == []


def test_the_page_on_explain_is_what_its_program_prints_and_misses_no_hold(tmp_path: Path) -> None:
    printed = run(ROOT / "examples" / "explain" / "main.py", tmp_path).stdout
    page = (ROOT / "docs" / "explain.md").read_text()
    assert f"```text\n{printed}```" in page
    for code in get_args(HoldCode):
        assert re.search(rf"^  (.*\b)?{code}\b", printed, re.MULTILINE), code
        assert f"`{code}`" in page


async def a_count(w: World) -> Any:
    made = await w.ocean.create_run(session_id="s", clog_id="counter", input={})
    await w.drain()
    return await w.ocean.result(made.run_id)


@pytest.mark.anyio
async def test_the_counter_counts_the_same_after_a_crash_at_any_place() -> None:
    report = await crash_everywhere([counter], a_count)
    assert {point.tick for point in report.killed} == {1, 2, 3}


@pytest.mark.anyio
async def test_the_counter_counts_one_number_a_tick() -> None:
    async with world(clogs=[counter]) as w:
        made = await w.ocean.create_run(session_id="s", clog_id="counter", input={})
        for n in (1, 2, 3):
            await w.ocean.advance(max_ticks=1)
            assert await w.ocean.call_clog(run_id=made.run_id, method="value") == n
        info = await w.ocean.get_run(made.run_id)
        assert info is not None
        assert (info.status, info.output, info.tick) == (RunStatus.DONE, {"n": 3}, 3)
        counted = await w.ocean.read_events(made.run_id, types=["counted"])
        assert [(event.tick, event.payload) for event in counted] == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})]
        await check(w)
