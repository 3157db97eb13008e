"""A server with a webhook as a separate process, with a socket and a database file that outlive it.

With `dies` it exits between the commit of a delivery and its response.
"""

import asyncio
import os
import socket
import sys

import uvicorn

from ocean import Delivery, Ocean, Received
from ocean.http.app import make_app
from tests.http.shop_clog import make_shop, make_till


class CrashingOcean(Ocean):
    async def receive_webhook(self, clog_id: str, name: str, delivery: Delivery) -> Received:
        await super().receive_webhook(clog_id, name, delivery)
        os._exit(9)


async def serve(listening: socket.socket, path: str, kind: type[Ocean]) -> None:
    async with kind.open(f"sqlite:///{path}", clogs=[make_till(), make_shop()]) as ocean:
        config = uvicorn.Config(make_app(ocean), lifespan="off", timeout_graceful_shutdown=10, access_log=False)
        await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    kind = CrashingOcean if "dies" in sys.argv else Ocean
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], kind))
