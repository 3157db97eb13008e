"""Orders that are approved, rejected, cancelled and left alone while `ocean serve` is killed again and again.

python -m tests.crash.order_storm --db storm.db --clog order --kills 400
python -m tests.crash.order_storm --db postgresql://user@host/an_empty_database --clog order-flow --kills 400

The payment service is a process of its own and stays up. Everything that is drawn comes from the seed, which is
printed; the moments of the kills are those of a real clock.
"""

import argparse
import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio import to_thread

from ocean import Ocean
from tests.crash.order_check import Plan, Report, Summary, check
from tests.crash.order_server import ORDER
from tests.crash.places import Place, is_postgres, url_of
from tests.crash.processes import ForkServer

ClogId = Literal["order", "order-flow"]
CUSTOMERS = 4
LATENCY_MS = 40
SECONDS_ALIVE = (0.05, 0.4)
"""How long a server lives once it listens."""
PAUSES_S = (0.0, 0.0, 0.02, 0.05, 0.1, 0.2)
"""Between the requests of a customer: in the middle of the charge, while the order waits, while it is packed."""
SOON_MS, LATE_MS = 150, 600_000
LIMIT_S = 60
"""The limit of every wait."""
STEPS: dict[str, tuple[str, ...]] = {
    "approved": ("approve",),
    "cancelled": ("cancel",),
    "approved and cancelled": ("approve", "cancel"),
    "rejected": ("reject",),
    "left alone, small": (),
    "left alone, large": (),
}
WEIGHTS = {True: (6, 6, 4, 2, 1, 1), False: (6, 0, 0, 2, 1, 1)}
"""How often each of `STEPS` is drawn, with and without cancellations."""


def plan_of(seed: int, number: int, clog_id: ClogId, has_cancels: bool) -> Plan:
    """What happens to one order, drawn from the seed."""
    chance = random.Random(f"{seed}/{number}")
    [kind] = chance.choices(list(STEPS), WEIGHTS[has_cancels])
    pauses = tuple(chance.choice(PAUSES_S) for _ in range(3))
    return Plan(f"{clog_id}-{number}", kind, STEPS[kind], pauses, amount=50 if kind == "left alone, small" else 500)


@dataclass(frozen=True)
class Server:
    """One life of `ocean serve`, on a port that stays the same."""

    fork_server: ForkServer
    pid: int
    out: int

    @classmethod
    def start(cls, fork_server: ForkServer, db: Place, port: int, payments_url: str, log: int) -> "Server":
        out, stdout = os.pipe()
        stdin = os.open(os.devnull, os.O_RDONLY)
        pid = fork_server.fork([url_of(db), str(port), payments_url], [stdin, stdout, log])
        os.close(stdin)
        os.close(stdout)
        server = cls(fork_server, pid, out)
        ready, _, _ = select.select([out], [], [], LIMIT_S)
        assert ready, f"the server has not listened for {LIMIT_S} s"
        assert os.read(out, 4_096), "the server has ended before it listened; its log has the reason"
        return server

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.fork_server.wait(self.pid) == signal.SIGKILL
        os.close(self.out)


@contextmanager
def payment_service(ledger: Path) -> Iterator[str]:
    command = [sys.executable, str(ORDER / "payments.py"), "--db", str(ledger), "--latency-ms", str(LATENCY_MS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def request(url: str, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        connection.request(method, path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def unused_port() -> int:
    """A port below those that the system gives to connections: while no server has it, none of them takes it."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Storm:
    def __init__(self, db: Place, clog_id: ClogId, seed: int, has_cancels: bool) -> None:
        self.db, self.clog_id, self.seed, self.has_cancels = db, clog_id, seed, has_cancels
        self.reports: list[Report] = []
        self.is_over = False
        self.port = unused_port()

    async def run(self, kills: int, folder: Path) -> Summary:
        chance = random.Random(self.seed)
        fork_server = ForkServer("tests.crash.order_server")
        log_path = folder / "server.log"
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            with payment_service(folder / "ledger.db") as payments_url:

                def start() -> Server:
                    return Server.start(fork_server, self.db, self.port, payments_url, log)

                server = await to_thread.run_sync(start)
                async with anyio.create_task_group() as tasks:
                    for customer in range(CUSTOMERS):
                        tasks.start_soon(self._buy, customer)
                    for _ in range(kills):
                        await anyio.sleep(chance.uniform(*SECONDS_ALIVE))
                        server.kill()
                        server = await to_thread.run_sync(start)
                    self.is_over = True
                try:
                    return await self._checked(payments_url, kills)
                finally:
                    server.kill()
        except BaseException:
            print(f"seed {self.seed}; the servers' log:\n{log_path.read_text()[-4_000:]}")  # noqa: T201
            raise
        finally:
            os.close(log)
            fork_server.close()

    async def _buy(self, customer: int) -> None:
        """Order, decide and cancel until the last kill, one order after the other. Every request is repeated."""
        number = customer
        while not self.is_over:
            plan = plan_of(self.seed, number, self.clog_id, self.has_cancels)
            report = Report(plan)
            self.reports.append(report)
            run_id, pauses = plan.run_id, iter(plan.pauses)
            body = {
                "amount": plan.amount,
                "items": ["a book", "a lamp"],
                "remind_ms": LATE_MS if plan.requests else SOON_MS,
            }
            run = {"runId": run_id, "sessionId": "shop", "clogId": self.clog_id, "input": body}
            retry = {"maxAttempts": None, "backoffMs": 20, "backoffMaxMs": 100}
            status, answer = await self._ask("", run | {"retry": retry}, f"create-{run_id}")
            assert status in (200, 201), answer
            for each in plan.requests:
                await anyio.sleep(next(pauses))
                if each == "cancel":
                    report.cancel_status, _ = await self._ask(f"/{run_id}/cancel", {}, f"cancel-{run_id}")
                else:
                    signal = {"input": {"type": each}, "signalId": f"{each}-{run_id}"}
                    report.decision_status, _ = await self._ask(f"/{run_id}/signal", signal, None)
            await anyio.sleep(next(pauses))
            number += CUSTOMERS

    async def _ask(self, path: str, body: Any, key: str | None) -> tuple[int, Any]:
        """Repeat a request until there is a response: the server may die before, during and after it."""
        url, ends_at = f"http://127.0.0.1:{self.port}", time.monotonic() + LIMIT_S
        while True:
            try:
                status, answer = await to_thread.run_sync(request, url, "POST", f"/v1/runs{path}", body, key)
            except (OSError, http.client.HTTPException) as error:
                status, answer = 0, error
            if 0 < status < 500:
                return status, answer
            assert time.monotonic() < ends_at, f"{path} had no response within {LIMIT_S} s: {answer!r}"
            await anyio.sleep(0.02)

    async def _checked(self, payments_url: str, kills: int) -> Summary:
        async with Ocean.open(url_of(self.db)) as ocean:
            await self._all_ended(ocean)
            status, ledger = await to_thread.run_sync(request, payments_url, "GET", "/ledger")
            assert status == 200
            return await check(ocean, self.reports, ledger, self.seed, kills)

    async def _all_ended(self, ocean: Ocean) -> None:
        """Wait for the server to end all orders; after the limit, show what each of the others waits for."""
        is_open: Any = ["pending", "active", "waiting", "idle"]
        ends_at = time.monotonic() + LIMIT_S
        while (found := await ocean.count_runs(session_id="shop", status=is_open)).count:
            if time.monotonic() > ends_at:
                page = await ocean.list_runs(session_id="shop", status=is_open)
                why = [f"{run.run_id}: {(await ocean.explain(run.run_id)).holds}" for run in page.runs]
                raise AssertionError(f"{found.count} runs have not ended in {LIMIT_S} s:\n" + "\n".join(why))
            # By a real clock: the server works by its own.
            await anyio.sleep(0.05)


async def order_storm(db: Place, clog_id: ClogId, kills: int, seed: int, has_cancels: bool = True) -> Summary:
    """Kill the server so many times while orders are made, and check what has become of each."""
    with tempfile.TemporaryDirectory() as folder:
        return await Storm(db, clog_id, seed, has_cancels).run(kills, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True)
    parser.add_argument("--clog", choices=["order", "order-flow"], required=True)
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    db: Place = arguments.db if is_postgres(arguments.db) else Path(arguments.db).absolute()
    found = anyio.run(order_storm, db, arguments.clog, arguments.kills, arguments.seed)
    print(", ".join(f"{name} {value}" for name, value in asdict(found).items()))  # noqa: T201


if __name__ == "__main__":
    main()
