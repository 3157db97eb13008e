"""The examples of the HTTP page, pasted into a shell, with a real server."""

import os
import re
from pathlib import Path

import anyio
import pytest

from ocean import Clog, Done, Ocean, Ok, Outcome, Tick
from ocean.http.app import make_app
from ocean.http.openapi import PARAMETER
from ocean.http.routes import TABLE
from tests.http.kit import listening

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]


def counter() -> Clog:
    clog = Clog("counter")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        n: int = ((await tick.read(run=True)).run or 0) + tick.input["by"]
        await tick.write(run=n)
        return Done(n) if n >= 10 else Ok()

    @clog.method
    async def value(tick: Tick, payload: None) -> int:
        return (await tick.read(run=True)).run or 0

    return clog


async def test_every_command_of_the_page_works_when_pasted() -> None:
    outputs = []
    async with Ocean.open("sqlite://:memory:", clogs=[counter()]) as ocean, listening(make_app(ocean)) as (_, port):
        environment = os.environ | {"OCEAN": f"http://127.0.0.1:{port}"}
        for command in COMMANDS:
            done = await anyio.run_process(["bash", "-c", command], env=environment, check=False)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            outputs.append(done.stdout.decode())
    assert len(outputs) > 12
    assert '"answer":2' in outputs[2]
    assert outputs[-1] == outputs[-2], "the last two are the same request, repeated"


def test_the_page_names_every_route() -> None:
    text = re.sub(r"\s+", " ", PAGE)
    templates = {PARAMETER.sub(lambda match: "{…}", op.path) for op in TABLE}
    page = re.sub(r"{\w+}", "{…}", text)
    tails = {path: f"/{path.rpartition('/')[2]}" for path in templates}
    assert [path for path in sorted(templates) if path not in page and tails[path] not in page] == []
