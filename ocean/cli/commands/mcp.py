"""`ocean mcp`: serves agents over the Model Context Protocol."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ocean.cli.options import Clogs, Db, Json


def mcp(
    poke: Annotated[
        str, typer.Option("--poke", metavar="TIME", help="How long to do due work after a response; 0s: never.")
    ] = "500ms",
    log: Annotated[
        str | None, typer.Option("--log", metavar="KIND", help="text, json or off. Default: OCEAN_LOG, text.")
    ] = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Serve agents over MCP, on standard input and output.

    If the database has API keys, it uses the one in OCEAN_KEY. `ocean serve --mcp` serves agents over HTTP.
    """
    from ocean.cli.parsing import duration_ms
    from ocean.cli.runner import run_and_exit
    from ocean.process import run_process

    run_and_exit(lambda: run_process(_serve(db, clogs, duration_ms(poke, "--poke") or 0, log)), is_json)


async def _serve(db: str | None, clogs: str | None, poke_ms: int, log: str | None) -> None:
    import os
    import sys
    from contextlib import ExitStack, redirect_stdout
    from pathlib import Path

    import anyio

    from ocean import Ocean
    from ocean.cli.runner import settings_of
    from ocean.cli.stopping import STOP_GRACE_MS, StopSignals
    from ocean.config import load_clogs
    from ocean.http.app import make_app
    from ocean.logs import log_kind, log_to

    with needs_mcp_sdk():
        from ocean.mcp.transport import serve_pipes

    settings = settings_of(db, clogs)
    # Standard output carries the protocol: what a module prints when it is imported must not get there.
    with redirect_stdout(sys.stderr):
        loaded = load_clogs(settings, Path.cwd())
    stop = anyio.Event()
    with ExitStack() as stack:
        stack.callback(log_to(sys.stderr, log_kind(log, os.environ)))
        async with Ocean.open(settings.db, clogs=loaded) as ocean:
            app = make_app(ocean, poke_ms=poke_ms)
            signals = StopSignals(ocean, STOP_GRACE_MS, stop.set)
            with signals.installed():
                is_stopped = await serve_pipes(
                    ocean, app, os.environ.get("OCEAN_KEY") or None, stop, grace_ms=STOP_GRACE_MS
                )
    if is_stopped or ocean.still_executing:
        # Ticks are committed or given back, and the database is closed. The thread that reads standard input, and those
        # of handlers, cannot be ended.
        os._exit(signals.code)


@contextmanager
def needs_mcp_sdk() -> Iterator[None]:
    """Turn an import error of the MCP SDK into advice: the SDK is an optional dependency."""
    from ocean.config import BadSettings

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise BadSettings("MCP needs its SDK: pip install 'ocean-runtime[mcp]'") from error
