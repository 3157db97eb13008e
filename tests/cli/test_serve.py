"""Signals that arrive before uvicorn handles them."""

import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean.cli.commands.serve import listen, serve
from ocean.cli.output import Screen
from ocean.cli.stopping import INTERRUPTED
from tests.cli.kit import Shell

pytestmark = pytest.mark.anyio


class Impatient(Screen):
    """Sends a signal as soon as the server announces its address, which is before uvicorn starts."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(is_json=True)
        self.number = number

    def json(self, value: Any) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 0)])
async def test_a_signal_that_comes_first_is_not_lost(
    number: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(number)
    with anyio.fail_after(20):
        served = await serve(Impatient(number), "sqlite:///ocean.db", None, "127.0.0.1", 0, False, 1_000)
    after = signal.signal(number, before)
    # A process that is ending gets no second signal.
    assert (served, after) == (code, signal.SIG_IGN if number is signal.SIGTERM else before)


def test_responses_do_not_wait_for_the_acknowledgement_of_earlier_ones() -> None:
    with listen("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_route_without_an_access_policy_stops_the_server(ocean: Shell) -> None:
    refused = ocean("serve", "--port", 0, OCEAN_CLOGS="tests.cli.unguarded:unguarded")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("ocean: GET /unguarded of clog 'unguarded' must have an access policy: access=")


def test_a_webhook_without_its_secret_stops_the_server(ocean: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAID_SECRET", raising=False)
    refused = ocean("serve", "--port", 0, OCEAN_CLOGS="tests.http.shop_clog:make_till")
    assert (refused.code, refused.out) == (2, "")
    assert "environment variable PAID_SECRET must be set" in refused.err
