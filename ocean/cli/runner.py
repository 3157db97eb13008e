"""How a command runs: read the settings, load clogs, open an Ocean, do the work, exit with a code for every error."""

import logging
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
from ocean.cli.output import OutputClosed, Screen, discard_output, printable
from ocean.cli.server_errors import ServerAway, ServerRefused
from ocean.cli.stopping import INTERRUPTED, leave, until_stopped
from ocean.config import BadSettings, Settings, load_clogs, read_settings

REFUSED, USAGE, MISSING, UNAVAILABLE, OUTPUT_CLOSED = 1, 2, 3, 4, 141


class SystemRefused(OceanError):
    """The output cannot be written, or the working directory does not exist any more."""

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

    Loading a clog runs its author's code, so clogs are imported only for commands that call or inspect them
    (`needs_clogs`), or if the flag names them. `shipped` are clogs of Ocean's own that the command needs as well.
    """

    def act() -> int | None:
        settings = settings_of(db, clogs)
        settings = replace(settings, clogs=(*settings.clogs, *shipped))
        loaded = load_clogs(settings, Path.cwd()) if needs_clogs or clogs else []

        async def open_and_work() -> int | None:
            async with Ocean.open(settings.db, clogs=loaded) as ocean:
                if not loaded:
                    return await work(ocean, Screen(is_json))
                code = await until_stopped(ocean, work(ocean, Screen(is_json)))
            leave(ocean, code or 0)
            return code

        try:
            return anyio.run(open_and_work)
        except UnknownClog as error:
            if needs_clogs and not loaded:
                error.message += "; no clogs are loaded: name them with --clogs or OCEAN_CLOGS"
            raise

    run_and_exit(act, is_json)


def settings_of(db: str | None, clogs: str | None) -> Settings:
    """Return the settings: flags, then the environment, then pyproject.toml in the working directory."""
    return read_settings(db, clogs, environ=os.environ, folder=Path.cwd())


def run_and_exit(act: Callable[[], int | None], is_json: bool) -> NoReturn:
    """Call `act` and exit with its code. An error is printed in one line, or as the error envelope."""
    for name in ("stdout", "stderr"):
        # Closed, as under some crons. The command must still do its work.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    # Characters that the terminal's encoding lacks are escaped.
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # With --json standard error has at most one line, the error's; a failed attempt is in what the command prints.
    silence = logging.NullHandler()
    if is_json:
        logging.getLogger("ocean").addHandler(silence)
    try:
        code = act() or 0
    except OceanError as error:
        print_error(error, is_json)
        code = exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (OutputClosed, BrokenPipeError):
        discard_output()
        code = OUTPUT_CLOSED
    except OSError as error:
        discard_output()
        message = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        print_error(SystemRefused(message), is_json)
        code = REFUSED
    finally:
        logging.getLogger("ocean").removeHandler(silence)
    raise typer.Exit(code)


def print_error(error: OceanError, is_json: bool) -> None:
    """Print an error to standard error."""
    text = line(envelope(error)) if is_json else f"ocean: {printable(error.message)}"
    with suppress(BrokenPipeError):
        typer.echo(text, err=True)


def exit_code(error: OceanError) -> int:
    """Return the exit code for an error."""
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
