"""A real HTTP server on loopback that sends the responses of a test and records the requests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class SiteRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Site:
    host: str
    requests: list[SiteRequest] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    """Sent one after another; the last one is repeated."""
    answer: Callable[[SiteRequest], Reply] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    def reply(self, request: SiteRequest) -> Reply:
        self.requests.append(request)
        if self.answer is not None:
            return self.answer(request)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def a_site(*replies: Reply) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = site.reply(SiteRequest(self.command, self.path, headers, body))
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = respond

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"127.0.0.1:{server.server_address[1]}", replies=list(replies or [Reply()]))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
