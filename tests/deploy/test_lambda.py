"""The function for AWS Lambda, called with Lambda's events and context, on a database file."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from clogs.counter import counter
from ocean import Clog, Ocean, RunInfo, StoreUnusable
from ocean.config import BadSettings
from tests.deploy.kit import DEPLOY, PATIENCE_S, ROOT, document, environment, key_made_by, served, smoke

pytestmark = pytest.mark.xdist_group("processes")

HANDLER = DEPLOY / "lambda" / "handler.py"
SCHEDULED = {
    "version": "0",
    "id": "89d1a02d-5ec7-412e-82f5-13505f849b41",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2026-11-16T07:00:00Z",
    "region": "eu-central-1",
    "resources": ["arn:aws:events:eu-central-1:123456789012:rule/ocean-EveryMinute"],
    "detail": {},
}
QUEUED = {
    "Records": [
        {
            "messageId": message_id,
            "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
            "body": "poke",
            "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1794812400000"},
            "messageAttributes": {},
            "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:pokes",
            "awsRegion": "eu-central-1",
        }
        for message_id in ("m-1", "m-2")
    ]
}


class Context:
    """Lambda's context for a function with this much time left."""

    aws_request_id = "8476a536-e9f4-11e8-9739-2dfe598c3fcd"
    function_name = "ocean-Poke"

    def __init__(self, left_ms: int = 60_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


Cold = Callable[..., ModuleType]


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cold:
    """The handler's module, imported as at a cold start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def start(**settings: str) -> ModuleType:
        for name, value in {"OCEAN_DB": url(tmp_path), "OCEAN_CLOGS": "clogs.counter:counter", **settings}.items():
            monkeypatch.setenv(name, value)
        spec = importlib.util.spec_from_file_location("handler", HANDLER)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return start


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/ocean.db"


def created(folder: Path, clog: Clog = counter, runs: int = 1) -> list[str]:
    async def create() -> list[str]:
        async with Ocean.open(url(folder), clogs=[clog]) as ocean:
            made = [await ocean.create_run(session_id="s", clog_id=clog.clog_id, input={}) for _ in range(runs)]
            return [run.run_id for run in made]

    return anyio.run(create)


def found(folder: Path, run_id: str) -> RunInfo:
    async def get() -> RunInfo:
        async with Ocean.open(url(folder)) as ocean:
            info = await ocean.get_run(run_id)
            assert info is not None
            return info

    return anyio.run(get)


def test_a_scheduled_event_pokes_and_returns_what_was_done(cold: Cold, tmp_path: Path) -> None:
    run_ids = created(tmp_path, runs=2)
    answer = cold().poke(SCHEDULED, Context())
    assert json.loads(json.dumps(answer)) == {
        "advanced": 6,
        "outcomes": {"continue": 4, "done": 2},
        "dueNow": 0,
        "nextWakeAt": None,
        "oldestDueAgeMs": 0,
        "unclaimable": 0,
    }
    assert [found(tmp_path, run_id).output for run_id in run_ids] == [{"n": 3}, {"n": 3}]


@pytest.mark.parametrize("event", [{}, None, [], {"Records": []}, {"Records": [{"eventSource": "aws:s3"}]}, "poke"])
def test_any_event_is_a_poke(cold: Cold, tmp_path: Path, event: Any) -> None:
    created(tmp_path)
    answer = cold().poke(event, Context())
    assert (answer["advanced"], "batchItemFailures" in answer) == (3, False)


def test_messages_of_a_queue_are_one_poke_and_all_are_taken(cold: Cold, tmp_path: Path) -> None:
    created(tmp_path)
    answer = cold().poke(QUEUED, Context())
    assert (answer["advanced"], answer["batchItemFailures"]) == (3, [])


@pytest.mark.parametrize("left_ms", [0, 2_999, 3_000])
def test_with_too_little_time_left_nothing_is_begun(cold: Cold, tmp_path: Path, left_ms: int) -> None:
    (run_id,) = created(tmp_path)
    module = cold()
    assert module.poke(SCHEDULED, Context(left_ms)) == {"advanced": 0, "tooLittleTime": True}
    details = module.poke(QUEUED, Context(left_ms))
    assert details["batchItemFailures"] == [{"itemIdentifier": "m-1"}, {"itemIdentifier": "m-2"}]
    assert found(tmp_path, run_id).tick == 0
    assert module.poke(SCHEDULED, Context())["advanced"] == 3, "the environment is none the worse for it"


class ShortContext(Context):
    """Time that passes while the database is opened."""

    def get_remaining_time_in_millis(self) -> int:
        left, self.left_ms = self.left_ms, 0
        return left


def test_the_time_to_open_the_database_is_deducted(cold: Cold, tmp_path: Path) -> None:
    created(tmp_path)
    answer = cold().poke(SCHEDULED, ShortContext())
    assert (answer["advanced"], answer["dueNow"]) == (0, 1)


STUCK = """
import anyio
from ocean import Clog, Outcome, Tick

stuck = Clog("stuck", tick_ms=20_000)


@stuck.on_advance
async def advance(tick: Tick) -> Outcome:
    await anyio.sleep_forever()
    raise AssertionError
"""


def test_a_handler_that_is_still_at_work_is_stopped_in_time_and_its_run_given_back(cold: Cold, tmp_path: Path) -> None:
    (tmp_path / "stuck_clog.py").write_text(STUCK)
    (run_id,) = created(tmp_path, Clog("stuck"))
    module = cold(OCEAN_CLOGS="stuck_clog:stuck")
    answer = module.poke(SCHEDULED, Context(module.MARGIN_MS + 2_000))
    assert (answer["advanced"], answer["outcomes"]) == (0, {"given_back": 1})
    run = found(tmp_path, run_id)
    assert (run.status, run.attempt, run.locked_by) == ("pending", 0, None)


def test_nothing_is_open_between_two_events(cold: Cold, tmp_path: Path) -> None:
    """A frozen process then holds no lock, file or thread that other processes would wait for."""
    created(tmp_path)
    module = cold()
    before = set(threading.enumerate())
    assert module.poke(SCHEDULED, Context())["advanced"] == 3
    for thread in set(threading.enumerate()) - before:
        thread.join(60)  # The thread of the connection has been signalled to end.
        assert not thread.is_alive()
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)]
    assert [path for path in held if "ocean.db" in path] == []
    assert [path.name for path in tmp_path.iterdir()] == ["ocean.db"]


def _is_link(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


LAMBDA = f"""
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("handler", {str(HANDLER)!r})
handler = importlib.util.module_from_spec(spec)
spec.loader.exec_module(handler)

class Context:
    def get_remaining_time_in_millis(self):
        return 60_000

for line in sys.stdin:
    print(json.dumps(handler.poke(json.loads(line), Context())), flush=True)
"""


@contextmanager
def warm(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """An environment that handles many events: one line in, one line out."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", LAMBDA],
        cwd=folder,
        env=environment({"OCEAN_DB": url(folder), "OCEAN_CLOGS": "clogs.counter:counter"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def sent(process: "subprocess.Popen[str]", event: Any) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(event) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_an_environment_that_was_frozen_meanwhile_goes_on_with_what_others_did(tmp_path: Path) -> None:
    created(tmp_path)
    with warm(tmp_path) as process:
        assert sent(process, SCHEDULED)["advanced"] == 3
        process.send_signal(signal.SIGSTOP)
        # No process holds the file now: it can be replaced by a copy of itself.
        run_ids = created(tmp_path, runs=2)
        copy = tmp_path / "copy.db"
        copy.write_bytes((tmp_path / "ocean.db").read_bytes())
        copy.replace(tmp_path / "ocean.db")
        process.send_signal(signal.SIGCONT)
        assert sent(process, QUEUED)["advanced"] == 6
        assert sent(process, SCHEDULED)["advanced"] == 0
    assert {str(found(tmp_path, run_id).status) for run_id in run_ids} == {"done"}


def test_without_a_database_named_it_does_not_start(cold: Cold) -> None:
    with pytest.raises(BadSettings, match="OCEAN_DB is not set; name a file on a disk that outlives the function"):
        cold(OCEAN_DB="")


def test_a_database_that_cannot_be_opened_fails_the_event(cold: Cold, tmp_path: Path) -> None:
    module = cold(OCEAN_DB=f"sqlite:///{tmp_path}/nowhere/ocean.db")
    with pytest.raises(StoreUnusable):
        module.poke(QUEUED, Context())


def function(name: str) -> Any:
    return document("lambda/template.yaml")["Resources"][name]["Properties"]


def test_the_template_names_what_is_there_and_one_process_at_a_time() -> None:
    assert (function("Poke")["Handler"], function("Web")["Handler"]) == ("handler.poke", "run.sh")
    for name in ("Poke", "Web"):
        made = function(name)
        assert made["ReservedConcurrentExecutions"] == 1
        assert made["CodeUri"] == ".build/"
        (mounted,) = made["FileSystemConfigs"]
        assert made["Environment"]["Variables"]["OCEAN_DB"] == f"sqlite:///{mounted['LocalMountPath']}/ocean.db"
    build = (DEPLOY / "lambda" / "build.sh").read_text()
    assert 'cp "$here/handler.py" "$here/run.sh" "$here/.build/"' in build
    assert f"--python-version {function('Poke')['Runtime'].removeprefix('python')} " in build


def test_what_the_web_adapter_starts_passes_the_smoke_test(tmp_path: Path) -> None:
    """The adapter runs the handler's file with the template's variables and connects to it on loopback at PORT."""
    details = function("Web")["Environment"]["Variables"]
    assert (details["PORT"], details["AWS_LWA_READINESS_CHECK_PATH"]) == ("8080", "/healthz")
    script = DEPLOY / "lambda" / function("Web")["Handler"]
    assert os.access(script, os.X_OK)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"OCEAN_DB": url(tmp_path), "OCEAN_CLOGS": "clogs.counter:counter", "PATH": path}
    key = key_made_by("A plain VM", tmp_path, settings)
    with served((str(script),), ROOT, details | settings) as base:
        code, printed, complained = smoke(base, "counter", OCEAN_KEY=key)
    assert (code, complained, printed.splitlines()[-1]) == (0, "", "smoke: passed")
