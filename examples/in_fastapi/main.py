"""A clog in an application that is there already, FastAPI's or Starlette's: opened with it, and asked by its routes."""

import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ocean import Clog, Done, Ocean, Outcome, Tick, Wait
from ocean.http.app import make_app
from ocean.ticker import ticker

welcome = Clog("welcome")


@welcome.on_advance
async def advance(tick: Tick) -> Outcome:
    """Writes to a new user at once, and again a little later: also if the application was restarted in between."""
    if tick.reason == "created":
        await tick.emit("mailed", f"welcome, {tick.input['name']}")
        return Wait(for_ms=100)
    await tick.emit("mailed", "how do you like it?")
    return Done("welcomed")


@asynccontextmanager
async def with_ocean(app: Starlette) -> AsyncIterator[None]:
    """The application's lifespan: all that Ocean needs. A FastAPI application is a Starlette one, too."""
    async with Ocean.open("sqlite://:memory:", clogs=[welcome]) as ocean, ticker(ocean):
        app.state.ocean = ocean
        app.mount("/ocean", make_app(ocean))
        yield


fast = FastAPI(lifespan=with_ocean)


class SignUp(BaseModel):
    name: str


@fast.post("/users", status_code=201)
async def sign_up(user: SignUp) -> dict[str, str]:
    ocean: Ocean = fast.state.ocean
    # The dedupe key lets a form that is sent twice welcome nobody twice.
    run = await ocean.create_run(session_id="users", clog_id="welcome", input=user.model_dump(), dedupe_key=user.name)
    return {"user": user.name, "welcome": run.run_id}


@fast.get("/users/{run_id}/welcome")
async def look(run_id: str) -> dict[str, str]:
    run = await fast.state.ocean.get_run(run_id)
    if run is None:
        raise HTTPException(404, "there is no such user")
    return {"status": run.status}


async def sign_up_plainly(request: Request) -> JSONResponse:
    user, ocean = await request.json(), request.app.state.ocean
    run = await ocean.create_run(session_id="users", clog_id="welcome", input=user, dedupe_key=user["name"])
    return JSONResponse({"user": user["name"], "welcome": run.run_id}, 201)


plain = Starlette(routes=[Route("/users", sign_up_plainly, methods=["POST"])], lifespan=with_ocean)


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True


def asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


async def tell(name: str, app: Starlette) -> None:
    async with serving(app) as url:
        made = await anyio.to_thread.run_sync(asked, f"{url}/users", {"name": "ada"})
        again = await anyio.to_thread.run_sync(asked, f"{url}/users", {"name": "ada"})
        print(f"{name}: ada is welcomed by one run:", made == again)
        print(f"{name}: result:", await app.state.ocean.result(made["welcome"], timeout_ms=10_000))
        # Ocean's own routes are there as well: for the command line, for a page, for whoever asks why.
        events = await anyio.to_thread.run_sync(asked, f"{url}/ocean/v1/runs/{made['welcome']}/events?types=mailed")
        print(f"{name}: mailed:", [event["payload"] for event in events["events"]])


async def main() -> None:
    await tell("fastapi", fast)
    await tell("starlette", plain)


if __name__ == "__main__":
    anyio.run(main)
