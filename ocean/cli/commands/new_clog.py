"""`ocean new clog NAME`: writes a package with a working clog and its test."""

import importlib.util
import keyword
import sys
from pathlib import Path

from ocean import InvalidValue, OceanError

CLOG = '''"""The clog {name}: a run greets the name in each signal, and is done after three greetings."""

from typing import Any

from ocean import Clog, Done, Ok, Outcome, Tick

{name} = Clog("{name}")

LAST = 3


@{name}.on_advance
async def advance(tick: Tick) -> Outcome:
    """Handle one input. Events, rows and the outcome of a tick are committed together, or not at all."""
    rows = await tick.read(run=True)
    greeted = [*(rows.run or {{"greeted": []}})["greeted"], (tick.input or {{}}).get("name", "stranger")]
    await tick.emit("greeted", {{"name": greeted[-1]}})
    await tick.write(run={{"greeted": greeted}})
    return Done(greeted) if len(greeted) == LAST else Ok()


@{name}.method
async def greeted(tick: Tick, payload: Any) -> list[str]:
    """Return the names that the run has greeted. Callers get it at once, also while the run waits."""
    rows = await tick.read(run=True)
    return list((rows.run or {{"greeted": []}})["greeted"])
'''

TEST = '''"""The clog {name} on a private database, with a clock that only the test moves."""

import anyio

from ocean import RunStatus
from ocean.testing import world

from {name} import {name}


def test_a_run_is_done_after_three_greetings() -> None:
    async def scenario() -> None:
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

    anyio.run(scenario)


def test_each_greeting_is_an_event() -> None:
    async def scenario() -> None:
        async with world(clogs=[{name}]) as w:
            run = await w.ocean.create_run(session_id="s", clog_id="{name}", input={{}})
            await w.drain()
            (event,) = await w.ocean.read_events(run.run_id, types=["greeted"])
            assert event.payload == {{"name": "stranger"}}

    anyio.run(scenario)
'''


class NameTaken(OceanError):
    """The folder or an importable module already has that name."""

    code = "name_taken"
    http_status = 409


def write_clog(name: str, folder: Path) -> list[Path]:
    """Write the package and return its files. Refuses to overwrite a folder or to shadow an importable module."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or name != name.lower():
        raise InvalidValue(f"the name of a clog must be lower-case letters, digits and _, such as mailer, got {name!r}")
    package = folder / name
    if package.exists():
        raise NameTaken(f"{name} already exists in this folder; nothing was written")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise NameTaken(f"the new package would shadow the module {name!r}; choose another name")
    files = {"__init__.py": CLOG, f"test_{name}.py": TEST}
    package.mkdir()
    for file, text in files.items():
        (package / file).write_text(text.format(name=name), encoding="utf-8")
    return [package / file for file in files]
