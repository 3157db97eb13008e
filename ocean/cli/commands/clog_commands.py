"""Commands that clogs bring: `ocean CLOG_ID NAME`, with the clogs that the settings name."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ocean import ClogError, CommandAnswer, InvalidValue, Ocean, OceanError
from ocean.cli.options import Clogs, Db, Json
from ocean.cli.output import Screen, cell, table
from ocean.cli.runner import REFUSED, leave, settings_of
from ocean.config import load_clogs
from ocean.kernel.invoke import invoke
from ocean.state.errors import near_name


def command_of(clog_id: str, unknown: Exception) -> Any:
    """The command of that clog; `unknown` is what to say if there is no such clog, and nothing was opened then."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command(clog_id, add_help_option=False)
    def call(
        name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
        db: Db = None,
        clogs: Clogs = None,
        is_json: Json = False,
        is_help: Annotated[bool, typer.Option("--help")] = False,
    ) -> None:
        asked = None if is_help else name
        leave(lambda: _act(clog_id, unknown, asked, db, clogs, Screen(is_json)), is_json)

    return typer.main.get_command(app)


def _act(clog_id: str, unknown: Exception, name: str | None, db: str | None, clogs: str | None, screen: Screen) -> int:
    settings = settings_of(db, clogs)
    try:
        loaded = load_clogs(settings, Path.cwd())
    except OceanError:
        if name is None:
            # A mistyped command of Ocean's, perhaps, which is no reason to speak of clogs.
            raise unknown from None
        raise
    commands = next((clog.commands for clog in loaded if clog.clog_id == clog_id and clog.commands), None)
    if commands is None:
        raise unknown
    if name is None:
        _list(clog_id, {each: (inspect.getdoc(fn) or "").partition("\n")[0] for each, fn in commands.items()}, screen)
        return 0
    if name not in commands:
        raise InvalidValue(f"clog {clog_id!r} has no command {name!r}; {near_name(name, commands)}")

    async def in_the_ocean() -> Any:
        async with Ocean.open(settings.db, clogs=loaded) as ocean:
            return await invoke(commands[name], ocean)

    answer = anyio.run(in_the_ocean)
    if not isinstance(answer, CommandAnswer):
        raise ClogError(f"the command {name!r} of clog {clog_id!r} answers a CommandAnswer")
    if screen.is_json:
        screen.json(answer.value)
    else:
        for line in answer.text.splitlines():
            screen.say(line)
    return 0 if answer.ok else REFUSED


def _list(clog_id: str, commands: dict[str, str], screen: Screen) -> None:
    if screen.is_json:
        screen.json(commands)
        return
    shown = table("command", "does")
    for name, does in commands.items():
        shown.add_row(cell(f"ocean {clog_id} {name}"), cell(does))
    screen.show(shown)
