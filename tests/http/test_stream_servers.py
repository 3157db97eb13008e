"""Servers that are killed or stopped while others watch. The log is in a file, and outlives them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ocean import Clog
from ocean.compose import Ocean
from tests.http.watchers import PATIENCE_S, Watcher
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@contextmanager
def server(listening: socket.socket, path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.http.stream_server", str(listening.fileno()), str(path)],
        pass_fds=[listening.fileno()],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


async def test_watchers_of_a_server_that_is_killed_and_started_again_miss_nothing(tmp_path: Path) -> None:
    """The log grows by another process all the while. Whoever watches comes back with the last id it has."""
    path, total, watchers = tmp_path / "ocean.db", 60, 10
    joined: list[list[int]] = [[] for _ in range(watchers)]

    async def watch(ids: list[int]) -> None:
        while len(ids) < total:
            try:
                watcher = await Watcher.open(port, last=ids[-1] if ids else 0)
                while len(ids) < total:
                    frame = await watcher.next()
                    assert frame.id is not None
                    ids.append(frame.id)
                await watcher.close()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass

    url = f"sqlite:///{path}"
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]
        async with Ocean.open(url, clogs=[Clog("c")]) as ocean, anyio.create_task_group() as tasks:

            async def grow(count: int) -> None:
                for _ in range(count):
                    await ocean.create_run(session_id="s", clog_id="c")

            with server(listening, path) as first:
                for ids in joined:
                    tasks.start_soon(watch, ids)
                await grow(20)
                await until(lambda: all(len(ids) >= 10 for ids in joined))
                tasks.start_soon(grow, 20)
                first.kill()
                await anyio.to_thread.run_sync(first.wait)
            with server(listening, path):
                await until(lambda: all(len(ids) >= 40 for ids in joined))
                await grow(20)
                await until(lambda: all(len(ids) >= total for ids in joined))
    assert all(ids == list(range(1, total + 1)) for ids in joined)


async def test_a_server_that_is_stopped_ends_its_streams_at_once_and_quietly(tmp_path: Path) -> None:
    path = tmp_path / "ocean.db"
    with socket.create_server(("127.0.0.1", 0)) as listening, server(listening, path) as process:
        port = listening.getsockname()[1]
        async with Ocean.open(f"sqlite:///{path}", clogs=[Clog("c")]) as ocean:
            run = await ocean.create_run(session_id="s", clog_id="c")
            watchers = [await Watcher.open(port, each) for each in ("/events", f"/runs/{run.run_id}/events") * 3]
            for watcher in watchers:
                await watcher.next()
            process.send_signal(signal.SIGTERM)
            assert [await watcher.rest() for watcher in watchers] == [[]] * 6
            _, said = await anyio.to_thread.run_sync(process.communicate)
            assert process.returncode in (0, -signal.SIGTERM)
            assert "Traceback" not in said
            assert "ERROR" not in said
            assert "Shutting down" in said
