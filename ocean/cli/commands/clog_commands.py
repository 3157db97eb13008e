"""Commands of clogs: `ocean CLOG_ID NAME`, for the clogs that the settings name."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ocean import ClogError, CommandAnswer, InvalidValue, Ocean, OceanError
from ocean.cli.options import Clogs, Db, Json
from ocean.cli.output import Screen, cell, table
from ocean.cli.runner import REFUSED, run_and_exit, settings_of
from ocean.config import load_clogs
from ocean.kernel.invoke import invoke
from ocean.state.errors import near_name


def command_of(clog_id: str, unknown: Exception) -> Any:
    """Return the command of that clog. It raises `unknown`, without opening a database, if there is no such clog."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command(clog_id, add_help_option=False)
    def call(
        name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
        db: Db = None,
        clogs: Clogs = None,
        is_json: Json = False,
        is_help: Annotated[bool, typer.Option("--help")] = False,
    ) -> None:
        wanted = None if is_help else name
        run_and_exit(lambda: _act(clog_id, unknown, wanted, db, clogs, Screen(is_json)), is_json)

    return typer.main.get_command(app)


def _act(clog_id: str, unknown: Exception, name: str | None, db: str | None, clogs: str | None, screen: Screen) -> int:
    settings = settings_of(db, clogs)
    try:
        loaded = load_clogs(settings, Path.cwd())
    except OceanError:
        if name is None:
            # Probably a mistyped command of Ocean's: an error about clogs would mislead.
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

    async def open_and_call() -> Any:
        async with Ocean.open(settings.db, clogs=loaded) as ocean:
            return await invoke(commands[name], ocean)

    result = anyio.run(open_and_call)
    if not isinstance(result, CommandAnswer):
        raise ClogError(f"the command {name!r} of clog {clog_id!r} must return a CommandAnswer")
    if screen.is_json:
        screen.json(result.value)
    else:
        for line in result.text.splitlines():
            screen.print(line)
    return 0 if result.ok else REFUSED


def _list(clog_id: str, commands: dict[str, str], screen: Screen) -> None:
    if screen.is_json:
        screen.json(commands)
        return
    shown = table("command", "does")
    for name, does in commands.items():
        shown.add_row(cell(f"ocean {clog_id} {name}"), cell(does))
    screen.show(shown)
