"""Commands that clogs bring: `ocean CLOG_ID NAME`, with the clogs that the settings name."""

from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ocean import ClogError, CommandAnswer, InvalidValue, Ocean
from ocean.cli.options import Clogs, Db, Json
from ocean.cli.running import REFUSED, leave, settings_of
from ocean.cli.screen import Screen
from ocean.config import load_clogs
from ocean.kernel.calling import invoke
from ocean.kernel.names import near_name


def command_of(clog_id: str, unknown: Exception) -> Any:
    """The command of that clog; `unknown` is what to say if there is no such clog, and nothing was opened then."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command(clog_id)
    def call(
        name: Annotated[str, typer.Argument(metavar="NAME")], db: Db = None, clogs: Clogs = None, is_json: Json = False
    ) -> None:
        leave(lambda: _act(clog_id, unknown, name, db, clogs, Screen(is_json)), is_json)

    return typer.main.get_command(app)


def _act(clog_id: str, unknown: Exception, name: str, db: str | None, clogs: str | None, screen: Screen) -> int:
    settings = settings_of(db, clogs)
    loaded = load_clogs(settings, Path.cwd())
    commands = next((clog.commands for clog in loaded if clog.clog_id == clog_id and clog.commands), None)
    if commands is None:
        raise unknown
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
