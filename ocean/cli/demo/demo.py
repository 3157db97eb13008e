"""The sequence of `ocean demo`: start runs, kill -9 a worker in the middle of a tick, finish in another, check."""

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import typer
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ocean import Event, Ocean, OceanError, RunStatus
from ocean.cli.demo.checks import Check, HalfTick, Sent, check_all
from ocean.cli.demo.clog import CLOG_ID, courier_clog
from ocean.cli.demo.screen import DemoScreen
from ocean.cli.json_output import envelope, line
from ocean.cli.output import OutputClosed, discard_output

SESSION = "demo"
PARCELS = 3
LOCK_MS = 600
LIMIT_S = 60
NAMES = ("Ada", "Bo", "Cleo", "Dov", "Edda", "Finn", "Gus", "Hana", "Ivo", "Juno", "Kai", "Lou")


class DemoBroken(Exception):
    """The demo could not be finished: a worker failed, or did not reach the tick at which it is killed."""


class DemoRefused(OceanError):
    """The demo could not start, or could not be finished."""

    code = "demo_refused"


def run_demo(db: Path | None, runs: int, is_json: bool = False) -> int:
    """Run the demo. Returns 0 if every check passed, 1 if one failed, 2 if the demo could not start."""
    try:
        if db is not None:
            db.touch(exist_ok=False)  # an empty file is a new database; an existing one must not be touched
        with tempfile.TemporaryDirectory(prefix="ocean-demo-") as folder:
            return anyio.run(_run, (db or Path(folder, "ocean.db")).absolute(), db, runs, is_json)
    except BaseExceptionGroup as group:
        return _code_for(_first_of(group), is_json)
    except (OceanError, OSError, DemoBroken, OutputClosed) as error:
        return _code_for(error, is_json)


def _code_for(error: BaseException, is_json: bool) -> int:
    match error:
        case FileExistsError():
            return _refuse(f"--db must be a new file, but {error.filename} exists", is_json)
        case OSError() if error.filename is not None:
            return _refuse(f"cannot create {error.filename}: {error.strerror}", is_json)
        case OceanError() | OSError():
            return _refuse(str(error), is_json)
        case DemoBroken():
            return _refuse(str(error), is_json, code=1)
        case OutputClosed():
            discard_output()
            return 1
        case _:
            raise error


def _refuse(message: str, is_json: bool, code: int = 2) -> int:
    typer.echo(line(envelope(DemoRefused(message))) if is_json else f"ocean demo: {message}", err=True)
    return code


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def _run(path: Path, kept: Path | None, runs: int, is_json: bool) -> int:
    screen = DemoScreen(is_silent=is_json)
    url = f"sqlite:///{path}"
    async with Ocean.open(url, clogs=[courier_clog()]) as ocean, anyio.create_task_group() as tasks:
        couriers = "1 run, a courier" if runs == 1 else f"{runs} runs, each a courier"
        screen.title(f"Ocean demo: {couriers} with {PARCELS} parcels. One SQLite file, no server.")
        demo = Demo(ocean, screen, url, runs)
        tasks.start_soon(demo.show_live)
        with anyio.move_on_after(LIMIT_S):
            checks = await demo.run()
            tasks.cancel_scope.cancel()
            return _print_json(checks, kept) if is_json else _conclude(screen, checks, kept)
        raise DemoBroken(f"not finished after {LIMIT_S} s")
    raise AssertionError("unreachable")


def _conclude(screen: DemoScreen, checks: list[Check], kept: Path | None) -> int:
    for check in checks:
        screen.check(check)
    failed = sum(1 for check in checks if check.faults)
    text = f"{failed} of {len(checks)} checks failed." if failed else "Nothing lost, nothing done twice."
    screen.verdict(not failed, text)
    if kept:
        screen.path(f"The database is kept: {kept}")
    return 1 if failed else 0


def _print_json(checks: list[Check], kept: Path | None) -> int:
    is_ok = not any(check.faults for check in checks)
    typer.echo(line({"ok": is_ok, "checks": [asdict(check) for check in checks], "db": kept and str(kept)}))
    return 0 if is_ok else 1


class Demo:
    """The five parts of the demo. It keeps what was sent and the events of the live feed, for the checks."""

    def __init__(self, ocean: Ocean, screen: DemoScreen, url: str, runs: int) -> None:
        self._ocean = ocean
        self._screen = screen
        self._url = url
        self._runs = runs
        self._sent = Sent()
        self._live: list[Event] = []
        self._has_more = anyio.Event()

    async def show_live(self) -> None:
        """Print the log as it grows. Other processes make the commits."""
        async for event in self._ocean.follow():
            self._live.append(event)
            if event.run_id in self._sent.names:
                self._screen.event(self._sent.names[event.run_id], event)
            self._has_more.set()
            self._has_more = anyio.Event()

    async def run(self) -> list[Check]:
        """Run all parts and return the checks."""
        await self._create_runs()
        half = await self._kill_a_worker()
        await self._signal_without_a_worker()
        await self._finish_in_another_worker()
        self._screen.part(5, "Checks of the event log")
        log = await self._whole_log()
        runs = [run for run_id in self._sent.names if (run := await self._ocean.get_run(run_id))]
        return check_all(self._sent, half, runs, log, self._live)

    async def _create_runs(self) -> None:
        for i in range(self._runs):
            run = await self._ocean.create_run(session_id=SESSION, clog_id=CLOG_ID)
            self._sent.names[run.run_id] = NAMES[i] if i < len(NAMES) else f"No. {i + 1}"
        for number in range(1, PARCELS):
            await self._send(number)

    async def _send(self, number: int) -> None:
        """Signal each run with its parcel of this number. A repeat is recognised by its signal id."""
        for i, run_id in enumerate(self._sent.names):
            parcel = {"number": number, "kilos": 1 + (4 * i + 3 * number) % 9, "of": PARCELS}
            receipt = await self._ocean.signal(run_id, parcel, signal_id=f"parcel-{number}")
            if (run_id, receipt.number) not in self._sent.signals:
                self._sent.signals.add((run_id, receipt.number))
                self._sent.kilos[run_id] = self._sent.kilos.get(run_id, 0) + parcel["kilos"]

    async def _kill_a_worker(self) -> HalfTick:
        halt_at = max(1, self._runs * (PARCELS - 1) * 2 // 3)
        async with self._worker(halt_at) as worker:
            self._screen.part(1, f"A worker process (pid {worker.pid}) starts. Live events of the runs:")
            self._screen.legend()
            halted = await _first_line(worker)
            worker.kill()
            await worker.wait()
        await self._caught_up()
        run_id, name = halted["run_id"], self._sent.names[halted["run_id"]]
        half_done = await self._ocean.count_runs(session_id=SESSION, status=RunStatus.ACTIVE)
        row = await self._ocean.call_clog(run_id=run_id, method="bag")
        run = await self._ocean.get_run(run_id)
        assert run is not None
        self._screen.part(2, f"kill -9 {worker.pid}, in the middle of tick {halted['tick']} of {name}")
        self._screen.note(
            f"The handler of {name} had finished, but its tick was not committed. Unfinished ticks: {half_done.count}."
        )
        self._screen.note(
            f"{name}'s row still has {row['kilos']} kg, and the parcel of that tick is still in the inbox."
        )
        return HalfTick(run_id, halted["tick"], row, run.pending_count)

    async def _signal_without_a_worker(self) -> None:
        self._screen.part(3, "No worker is running; signals are accepted all the same")
        await self._send(PARCELS)
        self._screen.note("Each courier gets one more parcel, stored before the sender gets a response.")
        await self._send(1)
        self._screen.note(
            "The first parcels are sent again, as a client does after a timeout. Their signal ids are the same, so "
            "they are not stored twice."
        )

    async def _finish_in_another_worker(self) -> None:
        async with self._worker() as worker:
            self._screen.part(4, f"Another worker process (pid {worker.pid}) takes over")
            self._screen.note(f"The locks of the killed worker expire {LOCK_MS} ms after their last renewal.")
            await worker.wait()
            if worker.returncode:
                raise DemoBroken(await _last_error(worker))
        await self._caught_up()

    @asynccontextmanager
    async def _worker(self, halt_at: int = 0) -> AsyncIterator[Process]:
        concurrency = max(2, self._runs // 2)
        numbers = map(str, (LOCK_MS, concurrency, halt_at))
        command = [sys.executable, "-m", "ocean.cli.demo.worker", self._url, *numbers]
        pipe = subprocess.PIPE
        async with await anyio.open_process(command, stdin=pipe, stdout=pipe, stderr=pipe) as worker:
            try:
                yield worker
            finally:
                if worker.returncode is None:
                    worker.kill()
                    with anyio.CancelScope(shield=True):
                        await worker.wait()

    async def _caught_up(self) -> None:
        """Wait until the live feed has shown everything that is committed now."""
        last = (await self._whole_log())[-1].seq
        while not self._live or self._live[-1].seq < last:
            await self._has_more.wait()

    async def _whole_log(self) -> list[Event]:
        log: list[Event] = []
        while page := await self._ocean.read_events(after=log[-1].seq if log else 0, limit=1_000):
            log += page
        return log


async def _first_line(worker: Process) -> Any:
    assert worker.stdout is not None
    try:
        return json.loads(await BufferedByteReceiveStream(worker.stdout).receive_until(b"\n", 10_000))
    except (anyio.IncompleteRead, anyio.EndOfStream):
        raise DemoBroken(await _last_error(worker)) from None


async def _last_error(worker: Process) -> str:
    assert worker.stderr is not None
    text = b"".join([part async for part in worker.stderr]).decode(errors="replace").strip()
    return f"the worker process {worker.pid} failed: {text.splitlines()[-1] if text else 'it printed no error'}"
