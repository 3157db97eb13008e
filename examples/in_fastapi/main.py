"""Add a clog to an existing FastAPI or Starlette application: opened in its lifespan, used by its routes."""

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
    """Mail a new user at once and again a little later, even if the application was restarted in between."""
    if tick.reason == "created":
        await tick.emit("mailed", f"welcome, {tick.input['name']}")
        return Wait(for_ms=100)
    await tick.emit("mailed", "how do you like it?")
    return Done("welcomed")


@asynccontextmanager
async def with_ocean(app: Starlette) -> AsyncIterator[None]:
    """Open Ocean and its ticker for the application's lifetime. FastAPI applications are Starlette applications."""
    async with Ocean.open("sqlite://:memory:", clogs=[welcome]) as ocean, ticker(ocean):
        app.state.ocean = ocean
        app.mount("/ocean", make_app(ocean))
        yield


fastapi_app = FastAPI(lifespan=with_ocean)


class SignUp(BaseModel):
    name: str


@fastapi_app.post("/users", status_code=201)
async def sign_up(user: SignUp) -> dict[str, str]:
    ocean: Ocean = fastapi_app.state.ocean
    # With the dedupe key, a form that is sent twice creates one run.
    run = await ocean.create_run(session_id="users", clog_id="welcome", input=user.model_dump(), dedupe_key=user.name)
    return {"user": user.name, "welcome": run.run_id}


@fastapi_app.get("/users/{run_id}/welcome")
async def show_welcome(run_id: str) -> dict[str, str]:
    run = await fastapi_app.state.ocean.get_run(run_id)
    if run is None:
        raise HTTPException(404, "there is no such user")
    return {"status": run.status}


async def sign_up_in_starlette(request: Request) -> JSONResponse:
    user, ocean = await request.json(), request.app.state.ocean
    run = await ocean.create_run(session_id="users", clog_id="welcome", input=user, dedupe_key=user["name"])
    return JSONResponse({"user": user["name"], "welcome": run.run_id}, 201)


starlette_app = Starlette(routes=[Route("/users", sign_up_in_starlette, methods=["POST"])], lifespan=with_ocean)


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True


def send(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


async def demonstrate(name: str, app: Starlette) -> None:
    async with serving(app) as url:
        made = await anyio.to_thread.run_sync(send, f"{url}/users", {"name": "ada"})
        again = await anyio.to_thread.run_sync(send, f"{url}/users", {"name": "ada"})
        print(f"{name}: both requests return the same run:", made == again)
        print(f"{name}: result:", await app.state.ocean.result(made["welcome"], timeout_ms=10_000))
        # Ocean's own routes are mounted as well.
        events = await anyio.to_thread.run_sync(send, f"{url}/ocean/v1/runs/{made['welcome']}/events?types=mailed")
        print(f"{name}: mailed:", [event["payload"] for event in events["events"]])


async def main() -> None:
    await demonstrate("fastapi", fastapi_app)
    await demonstrate("starlette", starlette_app)


if __name__ == "__main__":
    anyio.run(main)
