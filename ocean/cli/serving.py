"""`ocean serve`: the HTTP application on uvicorn, and a ticker beside it."""

import os
import signal
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import uvicorn

from ocean import InvalidValue, Ocean, OceanError
from ocean.cli.running import INTERRUPTED, settings_of
from ocean.cli.screen import Screen
from ocean.config import load_clogs
from ocean.http.access import is_loopback
from ocean.http.app import make_app
from ocean.http.stopping import Stopping
from ocean.ticking import ticker

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
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host} port {port}: {error.strerror}; try another --port") from error


async def serve(
    screen: Screen, db: str | None, clogs: str | None, host: str, port: int, has_ticker: bool, budget_ms: int
) -> int:
    """Until SIGTERM (exit 0) or Ctrl-C (130): open requests are answered, ticks at work are committed."""
    settings = settings_of(db, clogs)
    loaded = load_clogs(settings, Path.cwd())
    caught: list[int] = []

    async with AsyncExitStack() as stack:
        ocean = await stack.enter_async_context(Ocean.open(settings.db, clogs=loaded))
        await refuse_unless_guarded(ocean, host)
        app = make_app(ocean)
        with listen(host, port) as listening:
            config = uvicorn.Config(
                app,
                # Paths hold lease ids, which are secrets: no line per request.
                access_log=False,
                log_level="warning",
                server_header=False,
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
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
            if has_ticker:
                await stack.enter_async_context(ticker(ocean, budget_ms=budget_ms, grace_ms=GRACE_S * 1_000))
            stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, stop))
            _announce(screen, listening, has_ticker, [clog.clog_id for clog in loaded])
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
