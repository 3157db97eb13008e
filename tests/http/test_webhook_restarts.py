"""Webhooks and routes of clogs with a real server that may die between a commit and its response."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from ocean import Ocean, RunStatus, sign_webhook
from tests.http.shop_clog import SECRET, make_till

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("processes")]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30


@contextmanager
def server(listening: socket.socket, path: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    number = listening.fileno()
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.http.webhook_server", str(number), str(path), *arguments],
        cwd=ROOT,
        env=os.environ | {"PAID_SECRET": SECRET, "PYTHONPATH": str(ROOT)},
        pass_fds=[number],
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)


async def test_a_delivery_whose_server_died_before_responding_has_one_effect(tmp_path: Path) -> None:
    path = tmp_path / "ocean.db"
    async with Ocean.open(f"sqlite:///{path}", clogs=[make_till()]) as ocean:
        order = (await ocean.create_run(session_id="s", clog_id="till")).run_id
    body = json.dumps({"order": order, "sum": 5}).encode()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        async def deliver(http: httpx2.AsyncClient) -> httpx2.Response:
            headers = sign_webhook(SECRET, "msg_1", body, sent_at=int(time.time() * 1_000))
            return await http.post(f"{url}/hooks/till/paid", content=body, headers=headers)

        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
            with server(listening, path, "dies") as process:
                with pytest.raises(httpx2.TransportError):
                    await deliver(http)
                assert process.wait(TIMEOUT_S) == 9
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
            with server(listening, path):
                responses: list[httpx2.Response] = []

                async def deliver_again() -> None:
                    responses.append(await deliver(http))

                async with anyio.create_task_group() as tasks:
                    for _ in range(5):
                        tasks.start_soon(deliver_again)
                expected = {"answer": {"counted": 1, "by": "webhook:till/paid"}, "replayed": True}
                assert [(response.status_code, response.json()) for response in responses] == [(200, expected)] * 5
                paid = await http.post(f"{url}/shop/orders/gone:pay")
                assert (paid.status_code, paid.json()["error"]["code"]) == (404, "SHOP_RUN_NOT_FOUND")
    async with Ocean.open(f"sqlite:///{path}") as ocean:
        run = await ocean.get_run(order)
        assert run is not None
        assert (run.status, len(await ocean.list_inputs(order))) == (RunStatus.DONE, 1)
