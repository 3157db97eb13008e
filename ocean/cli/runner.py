"""How a command runs: settings, clogs, an Ocean, the work; and an exit code for everything that can go wrong."""

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import anyio
import typer

from ocean import (
    BadCursor,
    BulkStopped,
    InvalidValue,
    Ocean,
    OceanError,
    StoreBusy,
    StoreFailed,
    StoreUnusable,
    UnknownClog,
)
from ocean.cli.json_output import envelope, line
from ocean.cli.output import Screen, Unheard, printable
from ocean.cli.server_errors import ServerAway, ServerRefused
from ocean.config import BadSettings, Settings, load_clogs, read_settings

REFUSED, USAGE, MISSING, UNAVAILABLE, INTERRUPTED, UNREAD = 1, 2, 3, 4, 130, 141


class SystemRefused(OceanError):
    """The output cannot be written, or the working directory is gone."""

    code = "system_refused"


Work = Callable[[Ocean, Screen], Awaitable[int | None]]


def run(
    work: Work,
    db: str | None,
    clogs: str | None,
    is_json: bool,
    *,
    needs_clogs: bool = False,
    shipped: tuple[str, ...] = (),
) -> NoReturn:
    """Open the Ocean that the settings name, do the work, and exit.

    Clogs are somebody's code: they are imported only for commands that call or judge them, or if named by the flag.
    `shipped` are the places of clogs that come with Ocean and that this command needs, whatever else is named.
    """

    def act() -> int | None:
        settings = settings_of(db, clogs)
        settings = replace(settings, clogs=(*settings.clogs, *shipped))
        loaded = load_clogs(settings, Path.cwd()) if needs_clogs or clogs else []

        async def in_the_ocean() -> int | None:
            async with Ocean.open(settings.db, clogs=loaded) as ocean:
                return await work(ocean, Screen(is_json))

        try:
            return anyio.run(in_the_ocean)
        except UnknownClog as error:
            if needs_clogs and not loaded:
                error.message += "; none is loaded here: name some with --clogs or OCEAN_CLOGS"
            raise

    leave(act, is_json)


def settings_of(db: str | None, clogs: str | None) -> Settings:
    return read_settings(db, clogs, environ=os.environ, folder=Path.cwd())


def leave(act: Callable[[], int | None], is_json: bool) -> NoReturn:
    """Do it and exit: refusals are told in one line, or as the error envelope."""
    for name in ("stdout", "stderr"):
        # Closed, as cron may have it. What is done matters more than what is said of it.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    # A name that the terminal's encoding lacks is shown by its escapes.
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = act() or 0
    except OceanError as error:
        tell(error, is_json)
        code = exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (Unheard, BrokenPipeError):
        _say_no_more()
        code = UNREAD
    except OSError as error:
        _say_no_more()
        tell(SystemRefused(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"), is_json)
        code = REFUSED
    raise typer.Exit(code)


def _say_no_more() -> None:
    """What is still to be written goes nowhere, or Python would meet the same error when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(error: OceanError, is_json: bool) -> None:
    text = line(envelope(error)) if is_json else f"ocean: {printable(error.message)}"
    with suppress(BrokenPipeError):
        typer.echo(text, err=True)


def exit_code(error: OceanError) -> int:
    match error:
        case InvalidValue() | BadSettings() | BadCursor():
            return USAGE
        case ServerRefused() if error.http_status == 400:
            return USAGE
        case StoreBusy() | StoreFailed() | StoreUnusable() | ServerAway():
            return UNAVAILABLE
        case BulkStopped(__cause__=OceanError() as cause):
            return exit_code(cause)
        case _:
            return MISSING if error.http_status == 404 else REFUSED
