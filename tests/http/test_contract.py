"""The document against the server: generated requests, valid or nearly so, get a documented response, no 5xx."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ocean import Clog, Ocean
from ocean.http.app import make_app
from ocean.http.framework.responses import camel
from ocean.http.openapi import PARAMETER, document
from ocean.http.routes import TABLE
from tests.http.kit import scripted_clog

pytestmark = pytest.mark.xdist_group("contract")

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 6
SCHEMA = schemathesis.openapi.from_dict(document(TABLE))
KNOWN = {"runId": "r", "clogId": "c", "sessionId": "s", "key": "k", "method": "echo"}
"""The names that exist; half of the requests use them, the others use names that do not exist."""


async def serve(listening: socket.socket, started: threading.Event, stop: threading.Event) -> None:
    async with Ocean.open("sqlite://:memory:", clogs=[scripted_clog(), Clog("x", external=True)]) as ocean:
        await ocean.create_run(session_id="s", clog_id="c", run_id="r", attributes={"NAME": 1})
        server = uvicorn.Server(uvicorn.Config(make_app(ocean), log_config=None, lifespan="off"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            started.set()
            await anyio.to_thread.run_sync(stop.wait)
            server.should_exit = True


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    started, stop = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=anyio.run, args=(serve, listening, started, stop))
        thread.start()
        assert started.wait(30)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        stop.set()
        thread.join(30)


def shorten_waits(case: Any) -> None:
    """Replace long waits: they would only slow the test down."""
    for holder in (case.query, case.body):
        if isinstance(holder, dict):
            for name in ("waitMs", "budgetMs"):
                if str(holder.get(name)).isdigit():
                    holder[name] = 5


def use_known_names(case: Any) -> None:
    for holder in (case.path_parameters, case.body):
        if isinstance(holder, dict):
            holder |= {name: value for name, value in KNOWN.items() if isinstance(holder.get(name), str)}


@pytest.mark.parametrize("op", TABLE, ids=lambda op: f"{op.method} {op.path}")
@pytest.mark.filterwarnings("ignore")
def test_every_generated_request_gets_a_documented_response(url: str, op: Any) -> None:
    operation = SCHEMA[PARAMETER.sub(lambda match: f"{{{camel(match[1])}}}", op.path)][op.method.lower()]
    strategies = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]

    @seed(4)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=st.one_of(strategies), is_known=st.booleans())
    def send(case: Any, is_known: bool) -> None:
        shorten_waits(case)
        if is_known:
            use_known_names(case)
        case.call_and_validate(base_url=url, checks=CHECKS)

    send()
