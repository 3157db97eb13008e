"""Record which files of Ocean one signal passes, from the HTTP request to the event in a stream.

    python -m tests.project.walk

prints them in the order in which they are entered first.
"""

import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import anyio
import httpx2

from ocean import Clog, Ocean, Ok, Outcome, Tick
from ocean.http.app import make_app
from ocean.http.streaming.frames import DirectWriteProtocol
from tests.http.kit import listening
from tests.http.stream_client import Watcher

ROOT = Path(__file__).parents[2]
SIGNALS = 5


class Recorder:
    """A profile function for all threads: while it is on, it notes the files of Ocean whose functions are called."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: dict[str, None] = {}

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        if self.is_on and event == "call":
            name = frame.f_code.co_filename
            if name.startswith(f"{ROOT}/ocean/"):
                self.files.setdefault(str(Path(name).relative_to(ROOT)))

    def start(self) -> None:
        """Profile this thread, and those that begin from now on."""
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)


def greeter() -> Clog:
    clog = Clog("greeter")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        await tick.write(run=[*(rows.run or []), tick.input])
        await tick.emit("greeted", tick.input)
        return Ok()

    return clog


async def walk(database: Path) -> list[str]:
    """Send signals to a run of a server on SQLite that is being streamed, and return the files that they pass."""
    recorder = Recorder()
    recorder.start()
    try:
        async with Ocean.open(f"sqlite:///{database}", clogs=[greeter()]) as ocean:
            run = await ocean.create_run(session_id="s", clog_id="greeter")
            async with listening(make_app(ocean), http=DirectWriteProtocol) as (_, port), httpx2.AsyncClient() as http:
                watcher = await Watcher.open(port, f"/v1/runs/{run.run_id}/events")
                try:
                    for number in range(SIGNALS + 1):
                        # The first signal also passes what is imported or cached once.
                        recorder.is_on = number > 0
                        path = f"http://127.0.0.1:{port}/v1/runs/{run.run_id}/signal"
                        assert (await http.post(path, json={"input": number})).status_code == 202
                        while (await watcher.next()).event != "tick.committed":
                            pass
                        recorder.is_on = False
                finally:
                    await watcher.close()
    finally:
        recorder.stop()
    return list(recorder.files)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        found = anyio.run(walk, Path(folder, "ocean.db"))
    sys.stdout.write("".join(f"{name}\n" for name in [*found, f"{len(found)} files"]))
