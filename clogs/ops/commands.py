"""The Ops-Loop on the command line: `ocean ops doctor`, `ocean ops heartbeat`, `ocean ops work`."""

from dataclasses import asdict

from clogs.ops.doctor import Finding, examine
from clogs.ops.operations import Ops
from clogs.ops.settings import OpsSettings
from clogs.ops.working import Worker
from ocean import Clog, CommandAnswer, Ocean


def add_commands(front: Clog, settings: OpsSettings) -> None:
    @front.command
    async def doctor(ocean: Ocean) -> CommandAnswer:
        """Look for the ten OPS_ codes."""
        findings = await examine(Ops(ocean, settings))
        is_good = all(found.is_good for found in findings)
        told = [{**asdict(found), "ok": found.is_good, "advice": found.advice or None} for found in findings]
        return CommandAnswer("\n".join(map(_line, findings)), {"ok": is_good, "checks": told}, is_good)

    @front.command
    async def heartbeat(ocean: Ocean) -> CommandAnswer:
        """What `POST /api/ops/heartbeat` does, for cron where there is no server."""
        beat = await Ops(ocean, settings).heartbeat()
        return CommandAnswer("\n".join(f"{name} {value}" for name, value in beat.items()), beat)

    @front.command
    async def work(ocean: Ocean) -> CommandAnswer:
        """Do the steps of the shipped executors until there is none left to claim."""
        worker, done = Worker(Ops(ocean, settings), worker_id=ocean.instance_id), 0
        while await worker.work_once():
            done += 1
        return CommandAnswer(f"{done} steps done", {"done": done})


def _line(found: Finding) -> str:
    mark = "ok" if found.is_good else "NO"
    line = f"{mark}  {found.code} {found.name}: {found.said}"
    return line if found.is_good else f"{line}\n    -> {found.advice}"
