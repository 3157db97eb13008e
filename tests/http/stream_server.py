"""A server of streams as a process of its own, on a socket and a file that outlive it."""

import asyncio
import socket
import sys

import uvicorn

from ocean import Clog
from ocean.compose import Ocean
from tests.http.watchers import stream_app


async def serve(listening: socket.socket, path: str) -> None:
    async with Ocean.open(f"sqlite:///{path}", clogs=[Clog("c")]) as ocean:
        config = uvicorn.Config(stream_app(ocean), lifespan="off", timeout_graceful_shutdown=10, access_log=False)
        await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))
