"""`ocean mcp` as a separate process, called over its pipes; and `ocean serve --mcp` over a socket."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from ocean import Ocean
from tests.cli.kit import ROOT, Shell
from tests.mcp.kit import error_of, result_of

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("processes")]

CLOGS = "tests.mcp.noisy_clog:noisy"
TIMEOUT_S = 60


@asynccontextmanager
async def connect(folder: Path, key: str | None = None) -> AsyncIterator[Client]:
    environ = {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": CLOGS} | ({} if key is None else {"OCEAN_KEY": key})
    process = StdioServerParameters(
        command=sys.executable, args=["-W", "error", "-m", "ocean", "mcp"], env=environ, cwd=str(folder)
    )
    with (folder / "errors").open("w") as errors:
        async with Client(stdio_client(process, errlog=errors), message_handler=raise_errors) as client:
            yield client


async def raise_errors(message: Any) -> None:
    assert not isinstance(message, Exception), message


async def test_standard_output_has_only_the_protocol(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with connect(tmp_path) as client:
        assert "noisy__shout" in {tool.name for tool in (await client.list_tools()).tools}
        create = {"sessionId": "s", "clogId": "noisy", "runId": "r", "input": {"n": 1}, "waitMs": 20_000}
        assert result_of(await client.call_tool("create_run", create))["output"] == {"n": 1}
        assert result_of(await client.call_tool("noisy__shout", {"payload": "hey"})) == {"answer": "hey"}
        assert error_of(await client.call_tool("get_run", {"runId": "x"}))["code"] == "run_not_found"
    noise = (tmp_path / "errors").read_text()
    assert [word in noise for word in ("imported", "a tick", "past Python", "a method")] == [True] * 4
    assert [record.message for record in caplog.records if "parse" in record.message.lower()] == []
    async with Ocean.open(f"sqlite:///{tmp_path / 'ocean.db'}") as ocean:
        run = await ocean.get_run("r")
        assert run is not None
        assert run.status == "done"


async def test_with_keys_the_process_uses_its_own_key(tmp_path: Path) -> None:
    async with Ocean.open(f"sqlite:///{tmp_path / 'ocean.db'}") as ocean:
        created = await ocean.create_api_key("agent", ["read", "signal"], sessions=["mine"])
        async with connect(tmp_path, created.key) as client:
            assert "advance" not in {tool.name for tool in (await client.list_tools()).tools}
            assert error_of(await client.call_tool("advance", {}))["code"] == "wrong_scope"
            create = {"sessionId": "mine", "clogId": "noisy", "runId": "r", "input": "wait", "waitMs": 20_000}
            assert result_of(await client.call_tool("create_run", create))["status"] == "waiting"
            assert (await ocean.read_events("r"))[0].actor == "agent"
            foreign = create | {"sessionId": "theirs", "runId": "r2"}
            assert error_of(await client.call_tool("create_run", foreign))["code"] == "session_not_found"
            await ocean.revoke_api_key(created.info.key_id)
            assert error_of(await client.call_tool("get_run", {"runId": "r"}))["code"] == "not_authenticated"
            with pytest.raises(MCPError, match="not valid, or no longer"):
                await client.list_tools()


@pytest.mark.parametrize("key", ["", "ocean_000000000000_" + "x" * 43])
def test_with_keys_the_process_does_not_start_without_a_valid_one(ocean: Shell, key: str) -> None:
    ocean("keys", "create", "--actor", "ann", "--scope", "read")
    result = ocean("mcp", "--json", OCEAN_KEY=key)
    assert (result.code, result.out) == (1, "")
    assert result.error["code"] == "not_authenticated"
    assert "this database has keys" in result.error["message"]
    assert "OCEAN_KEY" in result.error["message"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_process_while_its_input_is_open(tmp_path: Path, number: int, code: int) -> None:
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": CLOGS}
    command = [sys.executable, "-W", "error", "-m", "ocean", "mcp", "--log", "off"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "ocean"
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == code
        assert process.stdout.read() == b""


async def test_serve_with_mcp_serves_agents_too(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    async with Ocean.open(f"sqlite:///{tmp_path / 'ocean.db'}") as ocean:
        key = (await ocean.create_api_key("agent", ["signal", "read"])).key
    with shell.start("serve", "--mcp", "--port", 0, "--json", OCEAN_CLOGS=CLOGS) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            url = json.loads(line if line.startswith("{") else server.stdout.readline())["url"]
            async with (
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
                Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
            ):
                create = {"sessionId": "s", "clogId": "noisy", "input": 7, "waitMs": 20_000}
                assert result_of(await client.call_tool("create_run", create))["output"] == 7
        finally:
            server.terminate()
        assert server.wait(TIMEOUT_S) == 0


def test_without_the_sdk_the_error_names_the_package(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["mcp"] = None
from typer.testing import CliRunner
from ocean.cli.main import app
for words in (["mcp"], ["serve", "--port", "0", "--mcp"]):
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (2, ""), done
    assert "pip install 'ocean-runtime[mcp]'" in done.stderr, done.stderr
"""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, timeout=TIMEOUT_S, check=True)
