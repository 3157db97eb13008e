#!/usr/bin/env python3
"""Check that an Ocean server is alive and works. Needs Python 3.9 and no packages.

    smoke.py http://127.0.0.1:8080 counter

Creates one run of the clog, waits until it is done, reads its events, and streams them: whole, then resumed from the
middle. Sends OCEAN_KEY, if set, as `Authorization: Bearer`. Exits with 0 on success, otherwise with 1 and the reason.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import uuid
from contextlib import closing
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

WAIT_MS = 5_000
STREAMED = 50
PAUSE_S = 0.2


class SmokeError(Exception):
    """A failed check; its text is printed before the exit."""


class Unreachable(SmokeError):
    """The server does not respond; it may still be starting."""


class Server:
    def __init__(self, base: str, key: str | None, patience_s: float) -> None:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SmokeError(f"{base!r} must be a base URL such as http://127.0.0.1:8080")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.connection = kind(parts.hostname, parts.port, timeout=patience_s + WAIT_MS / 1_000)
        self.base, self.path, self.key, self.patience_s = base, parts.path.rstrip("/"), key, patience_s

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """Send a request and return the unread response, which is not an error."""
        sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key:
            sent_headers["Authorization"] = f"Bearer {self.key}"
        if body is not None:
            sent_headers["Content-Type"] = "application/json"
        what = f"{method} {path}"
        self.connection.close()
        try:
            content = json.dumps(body) if body is not None else None
            self.connection.request(method, self.path + path, content, sent_headers)
            response = self.connection.getresponse()
            if response.status >= 300:
                raise _refusal(what, response)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{what} at {self.base} got no response: {_described(error)}") from error
        return response

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
        response = self.open(method, path, body, **headers)
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise SmokeError(f"{method} {path}: the response was cut off: {_described(error)}") from error
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise SmokeError(f"{method} {path}: the response is not from Ocean: {text[:80]!r}")
        return response.status, value


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _refusal(what: str, response: http.client.HTTPResponse) -> SmokeError:
    text = response.read(2_000).decode(errors="replace")
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = text[:200]
    hint = "; set OCEAN_KEY to a key with the scopes read and signal" if response.status in (401, 403) else ""
    kind = Unreachable if response.status in (502, 503, 504) else SmokeError
    return kind(f"{what} is refused with {response.status}: {message}{hint}")


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_until_alive(server: Server) -> None:
    until = time.monotonic() + server.patience_s
    while True:
        try:
            _, health = server.request("GET", "/healthz")
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_S)
            continue
        if health.get("status") != "ok":
            raise SmokeError(f"GET /healthz must report the status ok, got {health}")
        return


def create_and_wait(server: Server, clog_id: str, given: Any) -> str:
    """Create a run and return its id when it is done. Repeating the request with the same key only waits again."""
    run_id = f"smoke-{uuid.uuid4()}"
    body = {"runId": run_id, "sessionId": "smoke", "clogId": clog_id, "input": given}
    until = time.monotonic() + server.patience_s
    while True:
        status, run = server.request("POST", f"/v1/runs?waitMs={WAIT_MS}", body, Idempotency_Key=run_id)
        if run.get("status") == "done":
            return run_id
        if run.get("status") == "failed":
            raise SmokeError(f"run {run_id} of {clog_id} failed: {run.get('error')}")
        if status == 200:
            raise SmokeError(f"run {run_id} is {run.get('status')}, not done: name a clog whose runs end by themselves")
        if time.monotonic() > until:
            raise SmokeError(f"run {run_id} is still {run.get('status')} after {server.patience_s:g} s")


def read_events(server: Server, path: str) -> list[tuple[int, str]]:
    _, page = server.request("GET", f"{path}?limit={STREAMED}")
    events = [(event["seq"], event["type"]) for event in page.get("events", [])]
    types = [kind for _, kind in events]
    if types[:1] != ["run.created"] or (len(types) < STREAMED and types[-1] != "run.done"):
        raise SmokeError(f"GET {path} must return events from run.created to run.done, got {types}")
    return events


def stream(server: Server, path: str, wanted: int, last_seen: int | None = None) -> list[tuple[int, str]]:
    resumed = {} if last_seen is None else {"Last_Event_ID": str(last_seen)}
    response = server.open("GET", path, Accept="text/event-stream", **resumed)
    kind = response.headers.get_content_type()
    if kind != "text/event-stream":
        raise SmokeError(f"GET {path} must return text/event-stream when the request accepts it, got {kind}")
    received: list[tuple[int, str]] = []
    fields: dict[str, str] = {}
    try:
        while len(received) < wanted and (line := response.readline().decode()):
            name, _, value = line.rstrip("\r\n").partition(":")
            if name:
                fields[name] = value.strip()
            elif line.strip() == "" and "data" in fields:
                received.append((int(fields["id"]), fields["event"]))
                fields = {}
    except (OSError, http.client.HTTPException) as error:
        raise SmokeError(f"the stream of {path} ended after {len(received)} events: {_described(error)}") from error
    finally:
        server.connection.close()
    return received


def check(server: Server, clog_id: str, given: Any) -> None:
    wait_until_alive(server)
    report(f"alive: {server.base}")
    run_id = create_and_wait(server, clog_id, given)
    report(f"done: run {run_id} of {clog_id}")
    path = f"/v1/runs/{quote(run_id)}/events"
    events = read_events(server, path)
    report(f"read: {len(events)} events")
    middle = len(events) // 2
    for last_seen, expected in ((None, events), (events[middle - 1][0], events[middle:])):
        received = stream(server, path, len(expected), last_seen)
        if received != expected:
            raise SmokeError(f"the stream of {path} after {last_seen} must be {expected}, got {received}")
    report(f"streamed: {len(events)} events, and the last {len(events) - middle} again, resumed")


def main() -> NoReturn:
    options = argparse.ArgumentParser(description="Check an Ocean server from outside. OCEAN_KEY is sent if set.")
    options.add_argument("base", metavar="URL", help="base URL of the server, such as http://127.0.0.1:8080")
    options.add_argument("clog", metavar="CLOG", help="a clog whose runs end by themselves, such as counter")
    options.add_argument("--input", default="{}", help="the run's input as JSON (default {})")
    options.add_argument("--patience", type=float, default=30, metavar="SECONDS", help="limit of each wait (30)")
    arguments = options.parse_args()
    try:
        given = json.loads(arguments.input)
    except ValueError as error:
        options.error(f"--input must be JSON: {error}")
    try:
        server = Server(arguments.base, os.environ.get("OCEAN_KEY"), arguments.patience)
        with closing(server.connection):
            check(server, arguments.clog, given)
    except SmokeError as failure:
        sys.exit(f"smoke: {failure}")
    except (LookupError, TypeError, ValueError) as error:
        sys.exit(f"smoke: {arguments.base} is not a base URL, or the response is not from Ocean: {_described(error)}")
    report("smoke: passed")
    sys.exit(0)


if __name__ == "__main__":
    main()
