"""The payment service of `examples/order`, as a process, and its client."""

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from ocean import Abort

ORDER = Path(__file__).parents[2] / "examples" / "order"
sys.path.insert(0, str(ORDER))

from payment_client import HttpPayments  # noqa: E402


class Service:
    def __init__(self, db: Path) -> None:
        self._db = db
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-W", "error", str(ORDER / "payments.py"), "--db", str(self._db)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.client = HttpPayments(self.url)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def make_slow(self, ms: int) -> None:
        with urlopen(Request(f"{self.url}/latency", json.dumps({"ms": ms}).encode(), method="PUT"), timeout=30):
            pass

    def ledger(self) -> list[tuple[str, str, int]]:
        with urlopen(f"{self.url}/ledger", timeout=30) as answer:
            entries: list[dict[str, Any]] = json.load(answer)
        return [(entry["kind"], entry["key"], entry["repeats"]) for entry in entries]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "ledger.db")
    yield service
    service.kill()


def test_a_key_is_charged_and_refunded_once(service: Service) -> None:
    for _ in range(3):
        assert service.client.charge("k", "order-1", 40) == {"kind": "charge", "key": "k"}
    with pytest.raises(Abort) as refused:
        service.client.charge("k", "order-1", 41)
    assert refused.value.code == "key_reused"
    for _ in range(2):
        assert service.client.refund("k") == {"kind": "refund", "key": "k"}
    assert service.client.charge("k", "order-1", 40) == {"kind": "charge", "key": "k"}
    assert service.ledger() == [("charge", "k", 3), ("refund", "k", 1)]


def test_a_charge_that_arrives_after_its_refund_is_refused(service: Service) -> None:
    assert service.client.refund("k") == {"kind": "void", "key": "k"}
    for _ in range(2):
        with pytest.raises(Abort) as refused:
            service.client.charge("k", "order-1", 40)
        assert refused.value.code == "voided"
    assert service.client.refund("k") == {"kind": "void", "key": "k"}
    assert service.ledger() == [("void", "k", 1)]


def test_a_charge_and_its_refund_at_the_same_time_leave_nothing_charged(service: Service) -> None:
    service.make_slow(10)
    keys = [f"k{number}" for number in range(20)]

    def charge(key: str) -> None:
        with suppress(Abort):
            service.client.charge(key, "order-1", 40)

    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(act, key) for key in keys for act in (charge, service.client.refund)]
    for each in done:
        each.result()
    kinds = [[kind for kind, name, _ in service.ledger() if name == key] for key in keys]
    assert all(each in (["void"], ["charge", "refund"]) for each in kinds)


def test_the_ledger_survives_the_service(service: Service, tmp_path: Path) -> None:
    service.client.charge("k", "order-1", 40)
    service.kill()
    with pytest.raises(URLError):
        service.client.refund("k")
    service.start()
    assert service.client.refund("k") == {"kind": "refund", "key": "k"}
    with sqlite3.connect(tmp_path / "ledger.db") as ledger:
        assert ledger.execute("SELECT order_id, amount FROM ledger").fetchall() == [("order-1", 40)] * 2
    ledger.close()


def test_it_can_be_told_to_be_slow(service: Service) -> None:
    service.make_slow(200)
    began_at = time.monotonic()
    service.client.charge("k", "order-1", 40)
    assert time.monotonic() - began_at >= 0.2
