#!/usr/bin/env python3
"""Is an Ocean server alive, and does it do what it should? Needs Python 3.9 and nothing else.

    smoke.py http://127.0.0.1:8080 counter

Creates one run of the clog, waits until it is done, reads its events, and streams them: whole, then resumed from the
middle. Sends OCEAN_KEY, if set, as `Authorization: Bearer`. Exit code 0 if all went well; 1 if not, with the reason.
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


class Trouble(Exception):
    """What is told before the exit."""


class Unreachable(Trouble):
    """Perhaps it is only starting."""


class Server:
    def __init__(self, base: str, key: str | None, patience_s: float) -> None:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Trouble(f"{base!r} is no base URL like http://127.0.0.1:8080")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.connection = kind(parts.hostname, parts.port, timeout=patience_s + WAIT_MS / 1_000)
        self.base, self.path, self.key, self.patience_s = base, parts.path.rstrip("/"), key, patience_s

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """An answer that is no refusal, still to be read."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key:
            named["Authorization"] = f"Bearer {self.key}"
        if body is not None:
            named["Content-Type"] = "application/json"
        what = f"{method} {path}"
        self.connection.close()
        try:
            self.connection.request(method, self.path + path, json.dumps(body) if body is not None else None, named)
            answer = self.connection.getresponse()
            if answer.status >= 300:
                raise _refusal(what, answer)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{what} at {self.base} got no answer: {_said(error)}") from error
        return answer

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
        answer = self.open(method, path, body, **headers)
        try:
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"{method} {path}: the answer broke off: {_said(error)}") from error
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Trouble(f"{method} {path} is answered by something else than Ocean: {text[:80]!r}")
        return answer.status, value


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _refusal(what: str, answer: http.client.HTTPResponse) -> Trouble:
    text = answer.read(2_000).decode(errors="replace")
    try:
        told = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        told = text[:200]
    hint = "; set OCEAN_KEY to a key with the scopes read and signal" if answer.status in (401, 403) else ""
    kind = Unreachable if answer.status in (502, 503, 504) else Trouble
    return kind(f"{what} is refused with {answer.status}: {told}{hint}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_until_alive(server: Server) -> None:
    until = time.monotonic() + server.patience_s
    while True:
        try:
            _, health = server.ask("GET", "/healthz")
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_S)
            continue
        if health.get("status") != "ok":
            raise Trouble(f"GET /healthz does not say that it is well: {health}")
        return


def create_and_wait(server: Server, clog_id: str, given: Any) -> str:
    """The same request under the same key is the same run; each one waits anew."""
    run_id = f"smoke-{uuid.uuid4()}"
    body = {"runId": run_id, "sessionId": "smoke", "clogId": clog_id, "input": given}
    until = time.monotonic() + server.patience_s
    while True:
        status, run = server.ask("POST", f"/v1/runs?waitMs={WAIT_MS}", body, Idempotency_Key=run_id)
        if run.get("status") == "done":
            return run_id
        if run.get("status") == "failed":
            raise Trouble(f"run {run_id} of {clog_id} failed: {run.get('error')}")
        if status == 200:
            raise Trouble(f"run {run_id} is {run.get('status')}, not done: name a clog that ends by itself")
        if time.monotonic() > until:
            raise Trouble(f"run {run_id} is still {run.get('status')} after {server.patience_s:g} s")


def read_events(server: Server, path: str) -> list[tuple[int, str]]:
    _, page = server.ask("GET", f"{path}?limit={STREAMED}")
    events = [(event["seq"], event["type"]) for event in page.get("events", [])]
    types = [kind for _, kind in events]
    if types[:1] != ["run.created"] or (len(types) < STREAMED and types[-1] != "run.done"):
        raise Trouble(f"GET {path} should tell of the run from run.created to run.done, got {types}")
    return events


def stream(server: Server, path: str, wanted: int, last_seen: int | None = None) -> list[tuple[int, str]]:
    resumed = {} if last_seen is None else {"Last_Event_ID": str(last_seen)}
    answer = server.open("GET", path, Accept="text/event-stream", **resumed)
    kind = answer.headers.get_content_type()
    if kind != "text/event-stream":
        raise Trouble(f"GET {path} answers {kind} to those who accept text/event-stream")
    heard: list[tuple[int, str]] = []
    fields: dict[str, str] = {}
    try:
        while len(heard) < wanted and (line := answer.readline().decode()):
            name, _, value = line.rstrip("\r\n").partition(":")
            if name:
                fields[name] = value.strip()
            elif line.strip() == "" and "data" in fields:
                heard.append((int(fields["id"]), fields["event"]))
                fields = {}
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(f"the stream of {path} broke off after {len(heard)} events: {_said(error)}") from error
    finally:
        server.connection.close()
    return heard


def check(server: Server, clog_id: str, given: Any) -> None:
    wait_until_alive(server)
    say(f"alive: {server.base}")
    run_id = create_and_wait(server, clog_id, given)
    say(f"done: run {run_id} of {clog_id}")
    path = f"/v1/runs/{quote(run_id)}/events"
    events = read_events(server, path)
    say(f"read: {len(events)} events")
    middle = len(events) // 2
    for last_seen, expected in ((None, events), (events[middle - 1][0], events[middle:])):
        heard = stream(server, path, len(expected), last_seen)
        if heard != expected:
            raise Trouble(f"the stream of {path} after {last_seen} should be {expected}, got {heard}")
    say(f"streamed: {len(events)} events, and the last {len(events) - middle} again, resumed")


def main() -> NoReturn:
    options = argparse.ArgumentParser(description="Check an Ocean server from outside. OCEAN_KEY is sent if set.")
    options.add_argument("base", metavar="URL", help="where the server is, as in http://127.0.0.1:8080")
    options.add_argument("clog", metavar="CLOG", help="a clog whose runs end by themselves, as in counter")
    options.add_argument("--input", default="{}", help="the run's input as JSON ({})")
    options.add_argument("--patience", type=float, default=30, metavar="SECONDS", help="for each wait (30)")
    asked = options.parse_args()
    try:
        given = json.loads(asked.input)
    except ValueError as error:
        options.error(f"--input is no JSON: {error}")
    try:
        server = Server(asked.base, os.environ.get("OCEAN_KEY"), asked.patience)
        with closing(server.connection):
            check(server, asked.clog, given)
    except Trouble as trouble:
        sys.exit(f"smoke: {trouble}")
    except (LookupError, TypeError, ValueError) as error:
        sys.exit(f"smoke: {asked.base} is no base URL, or answers something else than Ocean: {_said(error)}")
    say("smoke: all well")
    sys.exit(0)


if __name__ == "__main__":
    main()
