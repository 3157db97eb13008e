"""A worker that needs only the standard library: worker.py URL CLAIM, where CLAIM is the body of POST /v1/leases."""

import json
import sys
import threading
import time
from typing import Any
from urllib.request import Request, urlopen

url, claim = sys.argv[1], json.loads(sys.argv[2])


def post(path: str, body: Any) -> Any:
    request = Request(f"{url}/v1/leases{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    while True:
        try:
            return json.load(urlopen(request, timeout=90))
        except OSError as error:
            if getattr(error, "code", 503) < 500:
                return None  # Refused: 409 means that the lease is lost, and the result is dropped.
            time.sleep(1)  # The server is away. Every request may be repeated.


def renew(lease: Any) -> None:
    while post(f"/{lease['leaseId']}/renew", {}):
        time.sleep(claim["leaseMs"] / 3_000)


def work(lease: Any) -> Any:
    try:
        time.sleep(lease["input"].get("takesMs", 0) / 1_000)
        return {"type": "done", "output": lease["input"]["text"].upper()}
    except Exception as error:
        return {"type": "retry", "error": repr(error)}


while True:
    for lease in post("", claim)["leases"]:
        threading.Thread(target=renew, args=(lease,), daemon=True).start()
        post(f"/{lease['leaseId']}/complete", {"outcome": work(lease)})
