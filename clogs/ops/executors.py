"""Executors: what a worker does with a step. `noop`, `http` and `shell-allowlist` are here; others register by name.

An executor is a function of an Ocean and a `Task`. What it returns is the step's result; `OpsStepFailed` reports a
failure. It may be called again for the same step after a crash, always under the same `idempotency_key`.
"""

import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from clogs.ops.records import Row
from ocean import FetchRefused, FetchResponse, Ocean

MOST_OUTPUT_BYTES = 64 * 1024
MOST_ARGUMENT_BYTES = 32 * 1024
MOST_SECONDS = 3_600
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


class OpsStepFailed(Exception):
    """The step was done and did not succeed; `result` is what there is of one."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, slots=True)
class Task:
    """`idempotency_key` is the same in every attempt at the step: hand it to the outside world."""

    step: Row
    idempotency_key: str

    @property
    def params(self) -> Row:
        params: Row = self.step["params"]
        return params


Executor = Callable[[Ocean, Task], Awaitable[Any]]


async def noop(ocean: Ocean, task: Task) -> Any:
    return {}


async def http(ocean: Ocean, task: Task) -> Any:
    """One request: `url`, and perhaps `method`, `headers`, `json` or `body`, `timeout_seconds`. 400 and above fail."""
    params = _known(task.params, "url", "method", "headers", "json", "body", "timeout_seconds")
    headers = {"Idempotency-Key": task.idempotency_key, **_texts(params.get("headers", {}), "headers")}
    body = params.get("body")
    if "json" in params:
        body = json.dumps(params["json"])
        headers.setdefault("Content-Type", "application/json")
    if body is not None and not isinstance(body, str):
        raise OpsStepFailed("params.body is a text; send other JSON as params.json")
    try:
        answer = await ocean.fetch(
            str(params.get("url")),
            method=str(params.get("method", "GET" if body is None else "POST")),
            headers=headers,
            body=None if body is None else body.encode(),
            timeout_ms=_seconds(params.get("timeout_seconds", 30)) * 1_000,
        )
    except FetchRefused as error:
        raise OpsStepFailed(error.message) from None
    said = {"status": answer.status, "body": _said(answer)}
    if answer.status >= 400:
        raise OpsStepFailed(f"the server answered {answer.status}", said)
    return said


def _said(answer: FetchResponse) -> Any:
    if len(answer.body) <= MOST_OUTPUT_BYTES and "json" in answer.headers.get("content-type", ""):
        with suppress(ValueError):
            return answer.json()
    return _text(answer.body[:MOST_OUTPUT_BYTES])


def shell_allowlist(programs: Sequence[str]) -> Executor:
    """Runs listed programs only, by their whole path, never through a shell: `command`, `args`, `timeout_seconds`."""
    allowed = frozenset(programs)
    for program in allowed:
        if not os.path.isabs(program):
            raise ValueError(f"{program!r} is no whole path: a name alone could be found elsewhere")

    async def run(ocean: Ocean, task: Task) -> Any:
        params = _known(task.params, "command", "args", "timeout_seconds")
        command, args = params.get("command"), params.get("args", [])
        if command not in allowed:
            listed = ", ".join(sorted(allowed)) or "nothing"
            raise OpsStepFailed(f"{command!r} is not on the list of OPS_SHELL_ALLOWLIST, which has {listed}")
        if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
            raise OpsStepFailed("params.args is a list of texts")
        if sum(len(arg.encode()) for arg in args) > MOST_ARGUMENT_BYTES:
            raise OpsStepFailed(f"params.args is over {MOST_ARGUMENT_BYTES} bytes")
        seconds = _seconds(params.get("timeout_seconds", 300))
        return await _run(ocean, [command, *args], seconds, task.idempotency_key)

    return run


async def _run(ocean: Ocean, command: list[str], seconds: int, key: str) -> Any:
    """The program in a group of its own, with nothing of this process's environment; it dies with its lease."""
    environment = {"PATH": PLAIN_PATH, "OPS_IDEMPOTENCY_KEY": key}
    try:
        process = await anyio.open_process(command, env=environment, stdin=DEVNULL, start_new_session=True)
    except OSError as error:
        raise OpsStepFailed(f"{command[0]} cannot be started: {error.strerror}") from None
    out, err = bytearray(), bytearray()
    with anyio.CancelScope() as limit:
        cancel = ocean.clock.call_later(seconds * 1_000, limit.cancel)
        try:
            async with anyio.create_task_group() as readers:
                for stream, kept in ((process.stdout, out), (process.stderr, err)):
                    assert stream is not None
                    readers.start_soon(_read, stream, kept)
            await process.wait()
        finally:
            cancel()
            with anyio.CancelScope(shield=True):
                await _end(process)
    said = {"exit_code": process.returncode, "stdout": _text(out), "stderr": _text(err)}
    if limit.cancelled_caught:
        raise OpsStepFailed(f"{command[0]} took longer than {seconds} seconds and was stopped", said)
    if process.returncode:
        raise OpsStepFailed(f"{command[0]} ended with exit code {process.returncode}", said)
    return said


async def _read(stream: ByteReceiveStream, kept: bytearray) -> None:
    """All of it, or the program would wait for its reader; what is over the limit is not kept."""
    async for chunk in stream:
        kept += chunk[: max(MOST_OUTPUT_BYTES - len(kept), 0)]


async def _end(process: Process) -> None:
    """Its children too, which may have outlived it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


def _known(params: Row, *names: str) -> Row:
    for name in params:
        if name not in names:
            raise OpsStepFailed(f"params has no {name!r}; it has {', '.join(names)}")
    return params


def _texts(value: Any, name: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise OpsStepFailed(f"params.{name} is an object of texts")
    return value


def _seconds(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SECONDS:
        raise OpsStepFailed(f"params.timeout_seconds is a whole number from 1 to {MOST_SECONDS}")
    return value


def _text(said: bytes | bytearray) -> str:
    return bytes(said).decode("utf-8", "replace").replace("\0", "\ufffd")
