"""A real worker process is killed while no other runs: the next poke of any process ends its mission."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clogs.ops import Ops, OpsSettings, clogs
from ocean import Ocean, SystemClock

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]

ROOT = Path(__file__).parents[3]


class Ahead(SystemClock):
    """The time two minutes from now: what a poke sees that comes after the lease has lapsed."""

    def now(self) -> int:
        return super().now() + 120_000


async def test_the_step_of_a_killed_worker_is_recovered_without_another_worker(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    settings = OpsSettings()
    async with Ocean.open(url, clogs=clogs(settings)) as ocean:
        ops = Ops(ocean)
        await ops.put_policy([{"key": "auto_approve", "value": {"enabled": True}}])
        template = {"steps": [{"kind": "noop", "max_retries": 1}, {"kind": "noop"}]}
        (made,) = await ops.ops_create_proposal_and_maybe_autoapprove(None, "api", template)
    step_id = _claimed_and_killed(url)
    async with Ocean.open(url, clogs=clogs(settings), clock=Ahead()) as ocean:
        await ocean.advance()
        (mission,), _ = await Ops(ocean).rows("ops_missions", [("id", made["mission_id"])])
        steps, _ = await Ops(ocean).rows("ops_mission_steps", [("order", "created_at.asc")])
        letters, _ = await Ops(ocean).rows("ops_step_dead_letters")
    assert mission["status"] == "failed"
    assert [(step["status"], step["last_error"]) for step in steps] == [
        ("failed", "Lease expired"),
        ("failed", "Mission failed"),
    ]
    assert [letter["step_id"] for letter in letters] == [step_id]


def _claimed_and_killed(url: str) -> str:
    script = str(Path(__file__).with_name("victim.py"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OCEAN_", "OPS_"))}
    worker = subprocess.Popen(
        [sys.executable, "-W", "error", script, url],
        env=kept | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    step_id = worker.stdout.readline().strip()
    worker.kill()
    worker.stdout.close()
    assert worker.wait() == -9
    return step_id
