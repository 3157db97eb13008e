"""`ocean serve` with the two orders of `examples/order`, forked from a process that has imported everything."""

import os
import sys
from pathlib import Path
from typing import Any

import uvicorn.protocols.http.h11_impl

import ocean.cli.commands.serve
import ocean.stores.postgres.store
import ocean.stores.sqlite.store
from ocean import Clog, RetryPolicy
from ocean.cli.main import app
from tests.crash.places import is_postgres

ORDER = Path(__file__).parents[2] / "examples" / "order"
sys.path.insert(0, str(ORDER))

from order_flow import order_flow  # noqa: E402
from order_handler import order_handler  # noqa: E402
from payment_client import HttpPayments  # noqa: E402

IMPORTED = (uvicorn.protocols.http.h11_impl, ocean.cli.commands.serve, ocean.stores.postgres.store, ocean.stores.sqlite)
"""What a server imports while it starts; it is imported once, before the fork."""
LOCK_MS = {"sqlite": 300, "postgres": 1_000}
PAUSE_S = 0.01


def clogs() -> list[Clog]:
    """The clogs with short locks and delays, so that a killed order goes on before the next kill."""
    payments = HttpPayments(os.environ["PAYMENTS_URL"])
    store = "postgres" if is_postgres(os.environ["OCEAN_DB"]) else "sqlite"
    # Kills are not the fault of a last tick: it is tried until the storm is over.
    end_retry = RetryPolicy(max_attempts=None, backoff_ms=20, backoff_max_ms=100)
    options: dict[str, Any] = {"lock_ms": LOCK_MS[store], "end_retry": end_retry}
    return [order_handler(payments, PAUSE_S, **options), order_flow(payments, PAUSE_S, **options)]


def live(args: list[str]) -> None:
    """Become `ocean serve`. It prints one line when it listens."""
    # Those of the fork server know whether their files could be seeked, and these are other files.
    sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, closefd=False) for fd, mode in enumerate("rww"))  # noqa: SIM115
    os.environ["OCEAN_DB"], port, os.environ["PAYMENTS_URL"] = args
    app(["serve", "--port", port, "--clogs", "tests.crash.order_server:clogs", "--log", "off", "--json"])
