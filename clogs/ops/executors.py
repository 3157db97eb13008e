"""Executors do the steps of missions. `noop`, `http` and `shell-allowlist` are here; others register by name.

An executor is a function of an Ocean and a `Task`. It returns the step's result, or raises `OpsStepFailed`. After a
crash it may be called again for the same step, always with the same `idempotency_key`.
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
    """The step was executed and did not succeed; `result` is its partial result."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, slots=True)
class Task:
    """A step to execute. `idempotency_key` is the same in every attempt: pass it to external systems."""

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
    """Send a request: `url`, optionally `method`, `headers`, `json` or `body`, `timeout_seconds`. Fail from 400 on."""
    params = _check_names(task.params, "url", "method", "headers", "json", "body", "timeout_seconds")
    headers = {"Idempotency-Key": task.idempotency_key, **_texts(params.get("headers", {}), "headers")}
    body = params.get("body")
    if "json" in params:
        body = json.dumps(params["json"])
        headers.setdefault("Content-Type", "application/json")
    if body is not None and not isinstance(body, str):
        raise OpsStepFailed("params.body must be a text; send other JSON as params.json")
    try:
        response = await ocean.fetch(
            str(params.get("url")),
            method=str(params.get("method", "GET" if body is None else "POST")),
            headers=headers,
            body=None if body is None else body.encode(),
            timeout_ms=_seconds(params.get("timeout_seconds", 30)) * 1_000,
        )
    except FetchRefused as error:
        raise OpsStepFailed(error.message) from None
    result = {"status": response.status, "body": _body(response)}
    if response.status >= 400:
        raise OpsStepFailed(f"the server responded with {response.status}", result)
    return result


def _body(response: FetchResponse) -> Any:
    if len(response.body) <= MOST_OUTPUT_BYTES and "json" in response.headers.get("content-type", ""):
        with suppress(ValueError):
            return response.json()
    return _text(response.body[:MOST_OUTPUT_BYTES])


def shell_allowlist(programs: Sequence[str]) -> Executor:
    """Run listed programs only, by absolute path, never through a shell: `command`, `args`, `timeout_seconds`."""
    allowed = frozenset(programs)
    for program in allowed:
        if not os.path.isabs(program):
            raise ValueError(f"{program!r} must be an absolute path: a name alone could match another program")

    async def run(ocean: Ocean, task: Task) -> Any:
        params = _check_names(task.params, "command", "args", "timeout_seconds")
        command, args = params.get("command"), params.get("args", [])
        if command not in allowed:
            listed = ", ".join(sorted(allowed)) or "nothing"
            raise OpsStepFailed(f"{command!r} must be in OPS_SHELL_ALLOWLIST, which has {listed}")
        if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
            raise OpsStepFailed("params.args must be a list of texts")
        if sum(len(arg.encode()) for arg in args) > MOST_ARGUMENT_BYTES:
            raise OpsStepFailed(f"params.args must have at most {MOST_ARGUMENT_BYTES} bytes in total")
        seconds = _seconds(params.get("timeout_seconds", 300))
        return await _run(ocean, [command, *args], seconds, task.idempotency_key)

    return run


async def _run(ocean: Ocean, command: list[str], seconds: int, key: str) -> Any:
    """Run the program in its own process group and without this process's environment; it is killed with its lease."""
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
                await _kill(process)
    result = {"exit_code": process.returncode, "stdout": _text(out), "stderr": _text(err)}
    if limit.cancelled_caught:
        raise OpsStepFailed(f"{command[0]} took longer than {seconds} seconds and was stopped", result)
    if process.returncode:
        raise OpsStepFailed(f"{command[0]} ended with exit code {process.returncode}", result)
    return result


async def _read(stream: ByteReceiveStream, kept: bytearray) -> None:
    """Read to the end, or the program would block on a full pipe; keep output up to the limit."""
    async for chunk in stream:
        kept += chunk[: max(MOST_OUTPUT_BYTES - len(kept), 0)]


async def _kill(process: Process) -> None:
    """Kill the process group, which includes children that outlived the program."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


def _check_names(params: Row, *names: str) -> Row:
    for name in params:
        if name not in names:
            raise OpsStepFailed(f"params must not have {name!r}; allowed: {', '.join(names)}")
    return params


def _texts(value: Any, name: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise OpsStepFailed(f"params.{name} must be an object of texts")
    return value


def _seconds(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SECONDS:
        raise OpsStepFailed(f"params.timeout_seconds must be a whole number from 1 to {MOST_SECONDS}, got {value!r}")
    return value


def _text(output: bytes | bytearray) -> str:
    return bytes(output).decode("utf-8", "replace").replace("\0", "\ufffd")
