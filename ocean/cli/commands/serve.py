"""`ocean serve`: the HTTP application on uvicorn, and a ticker beside it."""

import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ocean import InvalidValue, Ocean, OceanError
from ocean.cli.commands.mcp import installed
from ocean.cli.commands.systemd import tell_systemd
from ocean.cli.output import Screen
from ocean.cli.runner import INTERRUPTED, settings_of
from ocean.config import BadSettings, load_clogs
from ocean.http.app import POKE_MS, make_app
from ocean.http.framework.authorization import is_loopback
from ocean.http.framework.call import Stopping
from ocean.http.streaming.direct_write import DirectWriteProtocol
from ocean.logs import log_kind, log_to
from ocean.state.values import shown
from ocean.ticker import ticker

GRACE_S = 10


class CannotListen(OceanError):
    code = "cannot_listen"
    http_status = 409


class Server(uvicorn.Server):
    """Waits for its requests when it stops, so those that wait themselves are told first."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


async def refuse_unless_guarded(ocean: Ocean, host: str) -> None:
    if not is_loopback(host) and not await ocean.has_api_keys():
        raise InvalidValue(
            f"--host {host} can be reached by others, and there is no key to tell them apart: make one with "
            "`ocean keys create`, or use 127.0.0.1, ::1 or localhost"
        )


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host} port {port}: {error.strerror}; try another --port") from error
    # Connections inherit it. asyncio would set it, but not on what was accepted from a socket that was made elsewhere;
    # and without it every answer but a connection's first waits 40 ms for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def traced_if_asked(ocean: Ocean, app: ASGIApp) -> ASGIApp:
    """By OCEAN_OTEL=1: a server that was not asked loads no OpenTelemetry."""
    asked = os.environ.get("OCEAN_OTEL") or "0"
    if asked not in ("0", "1"):
        raise BadSettings(f"OCEAN_OTEL is 1 or 0, got {shown(asked)}")
    if asked == "0":
        return app
    try:
        from ocean.tracing import traced
    except ImportError as error:
        raise BadSettings("OCEAN_OTEL needs OpenTelemetry: pip install 'ocean-runtime[otel]'") from error
    return traced(ocean, app)


async def serve(
    screen: Screen,
    db: str | None,
    clogs: str | None,
    host: str,
    port: int,
    has_ticker: bool,
    budget_ms: int,
    poke_ms: int = POKE_MS,
    log: str | None = None,
    has_mcp: bool = False,
) -> int:
    """Until SIGTERM (exit 0) or Ctrl-C (130): open requests are answered, ticks at work are committed."""
    settings = settings_of(db, clogs)
    loaded = load_clogs(settings, Path.cwd())
    caught: list[int] = []
    kind = log_kind(log, os.environ)

    async with AsyncExitStack() as stack:
        stack.callback(log_to(sys.stderr, kind))
        ocean = await stack.enter_async_context(Ocean.open(settings.db, clogs=loaded))
        await refuse_unless_guarded(ocean, host)
        app = make_app(ocean, poke_ms=poke_ms)
        if has_mcp:
            with installed():
                from ocean.mcp.transport import mounted
            await stack.enter_async_context(mounted(ocean, app))
        with listen(host, port) as listening:
            config = uvicorn.Config(
                traced_if_asked(ocean, app),
                # Paths hold lease ids, which are secrets: our own lines have templates instead.
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                # h11, whatever else is installed: it limits headers, and what it takes is what the tests try.
                http=DirectWriteProtocol,
                lifespan="off",
                timeout_graceful_shutdown=GRACE_S,
            )
            server = Server(config, app.state.stopping)

            def stop(number: int, frame: object) -> None:
                # Before uvicorn listens to signals, and again when it raises those it heard.
                caught.append(number)
                server.should_exit = True

            # uvicorn raises its signals again when it has stopped; by then the Ocean is still to be closed. A second
            # SIGTERM changes nothing, a second Ctrl-C gives back what the ticker has at work.
            before = signal.signal(signal.SIGTERM, stop)
            stack.callback(
                lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN if signal.SIGTERM in caught else before)
            )
            if has_ticker:
                await stack.enter_async_context(ticker(ocean, budget_ms=budget_ms, grace_ms=GRACE_S * 1_000))
            stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, stop))
            _announce(screen, listening, has_ticker, [clog.clog_id for clog in loaded])
            tell_systemd(os.environ)
            await server.serve(sockets=[listening])
    return INTERRUPTED if signal.SIGINT in caught else 0


def _announce(screen: Screen, listening: socket.socket, has_ticker: bool, clog_ids: list[str]) -> None:
    host, port, *_ = listening.getsockname()
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if screen.is_json:
        screen.json({"url": url, "pid": os.getpid(), "ticker": has_ticker, "clogs": clog_ids})
        return
    ticking = "with a ticker" if has_ticker else "without a ticker: requests poke"
    screen.say(f"Ocean listens on {url}, {ticking}; clogs: {', '.join(clog_ids) or 'none'}")
