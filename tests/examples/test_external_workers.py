"""The two workers of the example as processes: killed, replaced by the other one, and refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from examples.external_worker.main import SHOUT, serving, shout
from ocean import Ocean, RetryPolicy, RunFailed, RunInfo

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("external workers")]

FOLDER = Path(__file__).parents[2] / "examples" / "external_worker"
PATIENCE_S = 30
LEASE_MS = 1_000


@dataclass(frozen=True, slots=True)
class Shop:
    ocean: Ocean
    url: str

    async def run(self, input: Any, **options: Any) -> str:
        return (await self.ocean.create_run(session_id="s", clog_id="shout", input=input, **options)).run_id

    async def look(self, run_id: str) -> RunInfo:
        info = await self.ocean.get_run(run_id)
        assert info is not None
        return info

    async def until_leased_to(self, worker_id: str, run_id: str) -> None:
        await self.until(run_id, lambda info: info.locked_by == worker_id, f"leased to {worker_id}")

    async def until(self, run_id: str, is_so: Callable[[RunInfo], bool], what: str) -> None:
        with anyio.move_on_after(PATIENCE_S):
            while not is_so(info := await self.look(run_id)):
                pass
            return
        raise AssertionError(f"not {what} after {PATIENCE_S} s: {info}")

    @contextmanager
    def worker(self, kind: str, *command: str, lease_ms: int = LEASE_MS) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that has ended, with all that it had started, when the test leaves it."""
        ask = {"clogId": "shout", "workerId": kind, "leaseMs": lease_ms, "waitMs": 20_000}
        start = [sys.executable, "-W", "error"] if kind == "worker.py" else ["sh"]
        with subprocess.Popen(
            [*start, str(FOLDER / kind), self.url, json.dumps(ask), *command],
            env=os.environ | {"RENEW_S": str(lease_ms / 3_000)},
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def python(self, **more: Any) -> Any:
        return self.worker("worker.py", **more)

    def shell(self, command: str = SHOUT, **more: Any) -> Any:
        return self.worker("worker.sh", "sh", "-c", command, **more)


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[Shop]:
    assert shutil.which("curl"), "worker.sh is tested with curl, which is not installed here"
    async with Ocean.open(f"sqlite:///{folder / 'ocean.db'}", clogs=[shout]) as ocean, serving(ocean) as url:
        yield Shop(ocean, url)


@pytest.mark.parametrize("name", ["worker.py", "worker.sh"])
async def test_a_worker_has_no_more_than_thirty_lines(name: str) -> None:
    lines = (FOLDER / name).read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 30
    assert max(map(len, lines)) <= 120


async def test_the_work_of_a_killed_python_worker_is_done_by_the_one_of_curl(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        run_id = await s.run({"text": "left behind", "takesMs": 600_000})
        with s.python() as process:
            await s.until_leased_to("worker.py", run_id)
            process.kill()
            await anyio.to_thread.run_sync(process.wait, PATIENCE_S)
            with s.shell():
                assert await s.ocean.result(run_id, timeout_ms=PATIENCE_S * 1_000) == "LEFT BEHIND"
        (tick,) = await s.ocean.list_ticks(run_id)
        assert (tick.instance_id, tick.calls) == ("worker.sh", 2)


async def test_the_work_of_a_killed_curl_worker_is_done_by_the_one_of_python(tmp_path: Path) -> None:
    """Only the worker is killed: its renewals must end although its command continues."""
    began = tmp_path / "began"
    async with shop(tmp_path) as s:
        run_id = await s.run({"text": "left behind"})
        with s.shell(f"touch {began}; exec sleep 600") as process:
            await s.until(run_id, lambda _: began.exists(), "begun")
            process.kill()
            await anyio.to_thread.run_sync(process.wait, PATIENCE_S)
            with s.python():
                assert await s.ocean.result(run_id, timeout_ms=PATIENCE_S * 1_000) == "LEFT BEHIND"
        (tick,) = await s.ocean.list_ticks(run_id)
        assert (tick.instance_id, tick.calls) == ("worker.py", 2)


async def test_a_worker_keeps_its_lease_for_as_long_as_it_works(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        for worker in (s.python(lease_ms=600), s.shell(f"sleep 1.5; {SHOUT}", lease_ms=600)):
            with worker:
                run_id = await s.run({"text": "slow", "takesMs": 1_500})
                assert await s.ocean.result(run_id, timeout_ms=PATIENCE_S * 1_000) == "SLOW"
            (tick,) = await s.ocean.list_ticks(run_id)
            assert tick.calls == 1


async def test_work_that_fails_is_tried_again_and_then_given_up(tmp_path: Path) -> None:
    once = RetryPolicy(max_attempts=2, backoff_ms=1)
    async with shop(tmp_path) as s:
        for worker, content in ((s.python(), "KeyError('text')"), (s.shell("exit 3"), "exit 3")):
            with worker:
                run_id = await s.run({}, retry=once)
                with pytest.raises(RunFailed, match="failed") as failed:
                    await s.ocean.result(run_id, timeout_ms=PATIENCE_S * 1_000)
            assert failed.value.error["message"] == content
            assert len(await s.ocean.read_events(run_id, types=["run.retrying"])) == 1


async def test_a_worker_drops_what_it_did_for_a_run_that_was_cancelled_and_goes_on(tmp_path: Path) -> None:
    began = tmp_path / "began"
    slow = f'if [ -e {began} ]; then {SHOUT}; else touch {began}; sleep 1.5; echo "1"; fi'
    async with shop(tmp_path) as s:
        for worker in (s.python(), s.shell(slow)):
            with worker as process:
                dropped = await s.run({"text": "dropped", "takesMs": 1_500})
                await s.until(dropped, lambda info: info.locked_by is not None, "leased")
                await s.ocean.cancel_run(dropped)
                kept = await s.run({"text": "kept"})
                assert await s.ocean.result(kept, timeout_ms=PATIENCE_S * 1_000) == "KEPT"
                assert process.poll() is None
            assert (await s.look(dropped)).error == {"code": "cancelled", "message": "cancelled", "details": None}
