"""`ocean new clog NAME`: a package with a clog that works, and its test."""

import importlib.util
import keyword
import sys
from pathlib import Path

from ocean import InvalidValue, OceanError

CLOG = '''"""The clog {name}: greets whoever a signal names, and ends when it has greeted three."""

from typing import Any

from ocean import Clog, Done, Ok, Outcome, Tick

{name} = Clog("{name}")

LAST = 3


@{name}.on_advance
async def advance(tick: Tick) -> Outcome:
    """One tick per input. What it emits, writes and answers is committed together, or not at all."""
    rows = await tick.read(run=True)
    greeted = [*(rows.run or {{"greeted": []}})["greeted"], (tick.input or {{}}).get("name", "stranger")]
    await tick.emit("greeted", {{"name": greeted[-1]}})
    await tick.write(run={{"greeted": greeted}})
    return Done(greeted) if len(greeted) == LAST else Ok()


@{name}.method
async def greeted(tick: Tick, payload: Any) -> list[str]:
    """Whom the run has greeted so far; answered at once, also while the run waits."""
    rows = await tick.read(run=True)
    return list((rows.run or {{"greeted": []}})["greeted"])
'''

TEST = '''"""The clog {name} in a world of its own: a private database, and time that moves when told to."""

import anyio

from ocean import RunStatus
from ocean.testing import world

from {name} import {name}


def test_it_greets_three_and_is_done() -> None:
    async def story() -> None:
        async with world(clogs=[{name}]) as w:
            run = await w.ocean.create_run(session_id="s", clog_id="{name}", input={{"name": "Ada"}})
            await w.drain()
            assert await w.ocean.call_clog(run_id=run.run_id, method="greeted") == ["Ada"]
            for name in ("Grace", "Barbara"):
                await w.ocean.signal(run.run_id, {{"name": name}})
            await w.drain()
            ended = await w.ocean.get_run(run.run_id)
            assert ended is not None
            assert (ended.status, ended.output) == (RunStatus.DONE, ["Ada", "Grace", "Barbara"])

    anyio.run(story)


def test_it_says_whom_it_greets() -> None:
    async def story() -> None:
        async with world(clogs=[{name}]) as w:
            run = await w.ocean.create_run(session_id="s", clog_id="{name}", input={{}})
            await w.drain()
            (event,) = await w.ocean.read_events(run.run_id, types=["greeted"])
            assert event.payload == {{"name": "stranger"}}

    anyio.run(story)
'''


class NameTaken(OceanError):
    code = "name_taken"
    http_status = 409


def write_clog(name: str, folder: Path) -> list[Path]:
    """The files written. Nothing is overwritten, and no module that can be imported is hidden."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or name != name.lower():
        raise InvalidValue(f"{name!r} cannot be a package's name; use lower-case letters, digits and _, as in mailer")
    package = folder / name
    if package.exists():
        raise NameTaken(f"{name} exists already in this folder; nothing was written")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise NameTaken(f"there is a module {name!r} already, which the new package would hide; take another name")
    files = {"__init__.py": CLOG, f"test_{name}.py": TEST}
    package.mkdir()
    for file, text in files.items():
        (package / file).write_text(text.format(name=name), encoding="utf-8")
    return [package / file for file in files]
