"""`ocean serve`: the HTTP application on uvicorn, and a ticker in the same process."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import uvicorn
from starlette.types import ASGIApp

from ocean import InvalidValue, Ocean, OceanError
from ocean.cli.commands.mcp import needs_mcp_sdk
from ocean.cli.output import Screen
from ocean.cli.runner import settings_of
from ocean.cli.stopping import STOP_GRACE_MS, StopSignals, leave, to_stderr
from ocean.config import BadSettings, load_clogs
from ocean.http.app import POKE_MS, make_app
from ocean.http.framework.authorization import is_loopback
from ocean.http.framework.call import Stopping
from ocean.http.streaming.frames import DirectWriteProtocol
from ocean.logs import log_kind, log_to
from ocean.state.values import shown
from ocean.ticker import ticker

CLOSE_MS = 1_500
"""After the grace: how long an open request may take to end before its connection is closed."""
LAST_MS = 2_000
"""After that: how long a request may still execute before its task is cancelled."""

log = logging.getLogger("ocean.serving")


class CannotListen(OceanError):
    """The host and port cannot be bound."""

    code = "cannot_listen"
    http_status = 409


class OceanServer(uvicorn.Server):
    """Ends requests that wait for a run or a lease, and the pokes of all others, while it waits for open requests."""

    signals: StopSignals

    def __init__(self, config: uvicorn.Config, ocean: Ocean, stopping: Stopping, grace_ms: int) -> None:
        super().__init__(config)
        self._ocean = ocean
        self._stopping = stopping
        self._grace_ms = grace_ms

    def handle_exit(self, sig: int, frame: object) -> None:
        """Handle a signal. uvicorn would drop open requests at the second Ctrl-C, and raise all signals again."""
        self.signals.catch(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop within the grace and a few seconds, whatever handlers and clients do."""
        self._stopping.set()
        until = asyncio.get_running_loop().time() + self._grace_ms / 1_000
        closing = asyncio.create_task(self._close_connections(until))
        try:
            await super().shutdown(sockets)
            await self._ocean.stop(max(0, round((until - asyncio.get_running_loop().time()) * 1_000)))
        finally:
            closing.cancel()

    async def _close_connections(self, until: float) -> None:
        """Close what is still open after the grace; for its request this looks like a client that disconnects."""
        await self._ocean.stop(self._grace_ms)
        with anyio.move_on_after(max(0.0, until - asyncio.get_running_loop().time())):
            await self._ocean.shutdown.hurried()
        await asyncio.sleep(CLOSE_MS / 1_000)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


async def check_host(ocean: Ocean, host: str) -> None:
    """Refuse a host that others can reach while there are no API keys."""
    if not is_loopback(host) and not await ocean.has_api_keys():
        raise InvalidValue(
            f"--host must be 127.0.0.1, ::1 or localhost while there are no API keys, got {host}; create a key with "
            "`ocean keys create`"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host} port {port}: {error.strerror}; try another --port") from error
    # Connections inherit it. asyncio sets it only on sockets that it makes itself. Without it every response but the
    # first of a connection waits 40 ms for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def with_tracing(ocean: Ocean, app: ASGIApp) -> ASGIApp:
    """Return the application with tracing if OCEAN_OTEL is 1. OpenTelemetry is imported only then."""
    setting = os.environ.get("OCEAN_OTEL") or "0"
    if setting not in ("0", "1"):
        raise BadSettings(f"OCEAN_OTEL must be 1 or 0, got {shown(setting)}")
    if setting == "0":
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
    log_option: str | None = None,
    has_mcp: bool = False,
    grace_ms: int = STOP_GRACE_MS,
) -> int:
    """Serve until SIGTERM (exit 0) or Ctrl-C (130). Open requests and ticks have `grace_ms` to finish."""
    settings = settings_of(db, clogs)
    loaded = load_clogs(settings, Path.cwd())
    kind = log_kind(log_option, os.environ)

    async with AsyncExitStack() as stack:
        stack.callback(log_to(sys.stderr, kind))
        ocean = await stack.enter_async_context(Ocean.open(settings.db, clogs=loaded))
        await check_host(ocean, host)
        app = make_app(ocean, poke_ms=poke_ms)
        if has_mcp:
            with needs_mcp_sdk():
                from ocean.mcp.transport import mounted
            await stack.enter_async_context(mounted(ocean, app))
        with listen(host, port) as listening:
            config = uvicorn.Config(
                with_tracing(ocean, app),
                # Paths contain lease ids, which are secrets: Ocean logs the route templates instead.
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                # h11, whatever else is installed: it limits headers, and the tests cover it.
                http=DirectWriteProtocol,
                lifespan="off",
                timeout_graceful_shutdown=-(-(grace_ms + CLOSE_MS + LAST_MS) // 1_000),
            )
            server = OceanServer(config, ocean, app.state.stopping, grace_ms)

            def begin() -> None:
                server.should_exit = True

            signals = server.signals = StopSignals(ocean, grace_ms, begin, log.info if kind == "json" else to_stderr)
            stack.enter_context(signals.installed())
            if has_ticker:
                await stack.enter_async_context(ticker(ocean, budget_ms=budget_ms, grace_ms=grace_ms))
            _announce(screen, listening, has_ticker, [clog.clog_id for clog in loaded])
            notify_systemd(os.environ)
            await server.serve(sockets=[listening])
    leave(ocean, signals.code)
    return signals.code


def _announce(screen: Screen, listening: socket.socket, has_ticker: bool, clog_ids: list[str]) -> None:
    host, port, *_ = listening.getsockname()
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if screen.is_json:
        screen.json({"url": url, "pid": os.getpid(), "ticker": has_ticker, "clogs": clog_ids})
        return
    ticking = "with a ticker" if has_ticker else "without a ticker: requests poke"
    screen.print(f"Ocean listens on {url}, {ticking}; clogs: {', '.join(clog_ids) or 'none'}")


def notify_systemd(environ: Mapping[str, str]) -> None:
    """Notify systemd that the server is ready, if the unit has `Type=notify`: units that depend on it start then."""
    address = environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # An abstract socket address: systemd writes @ for its leading zero byte.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.connect(address)
            sending.sendall(b"READY=1")
    except OSError as error:
        log.warning("cannot notify systemd that the server is ready: %s", error)
