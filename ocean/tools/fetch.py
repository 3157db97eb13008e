"""The one outbound HTTP client, behind the tool `ocean.http.fetch`.

A URL may come from a run's input, so every hop is untrusted: the name is resolved once, all its addresses must
be public, and the socket is opened to one of these addresses, never to the name, so a second DNS response
changes nothing. The name stays in the Host header and in the TLS check. A redirect passes the same checks,
loses credentials when it leaves the origin, and never goes from https to http. Body size and total time are
bounded whatever the server claims. Bodies are not decompressed; proxy variables are ignored.

Not guarded: ports; public services that should not be called; headers like X-Api-Key and bodies of 307/308,
which follow a redirect to another host; NAT64 prefixes of the operator's own network. `private_hosts` is
trusted on every hop, also behind a redirect. A cancelled or timed out fetch is abandoned, not undone: its
request may have arrived.
"""

import http.client
import io
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
from anyio import to_thread

from ocean.state.errors import FetchRefused
from ocean.state.values import shown
from ocean.tools.addresses import blocked_because

Resolver = Callable[[str, int], list[str]]

CHUNK_BYTES = 65_536
RANGES = {"timeout_ms": (1, 600_000), "max_bytes": (1, 64 * 1024 * 1024), "max_redirects": (0, 20)}
PORTS = {"http": 80, "https": 443}
SET_BY_FETCH = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
PRINTABLE = re.compile(r"[\x20-\x7e]*")
HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


@dataclass(frozen=True, slots=True)
class FetchRequest:
    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout_ms: int = 10_000
    max_bytes: int = 1_048_576
    max_redirects: int = 5


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """`headers` has lower-case names, repeated ones joined by a comma; `url` is where the last hop went."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str

    @property
    def text(self) -> str:
        """The body as UTF-8; invalid bytes are replaced."""
        return self.body.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    @property
    def redirects_to(self) -> str | None:
        """The target of a redirect, if it is one."""
        return self.headers.get("location") if self.status in (301, 302, 303, 307, 308) else None


def resolve_by_system(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def fetch(
    request: FetchRequest, *, private_hosts: Collection[str] = (), resolve: Resolver = resolve_by_system
) -> FetchResponse:
    """Return the response, whatever its status, or raise `FetchRefused`; `private_hosts` are "host:port" of the URL."""
    request = _checked(request)
    allowed = {entry.lower() for entry in private_hosts}
    deadline = _Deadline(request.timeout_ms)
    try:
        # The thread checks the deadline itself; this timer is for a resolver that hangs and a full thread pool.
        with anyio.fail_after(deadline.left()):
            return await to_thread.run_sync(_follow, request, allowed, resolve, deadline, abandon_on_cancel=True)
    except TimeoutError as error:
        late = f"did not finish within {request.timeout_ms} ms: raise timeout_ms or try later"
        raise _refusal("timeout", request.url, late) from error
    finally:
        deadline.cut()


class _Deadline:
    """Uses the monotonic clock, not the kernel's: it bounds waits on real sockets and is never stored."""

    def __init__(self, timeout_ms: int) -> None:
        self._at = time.monotonic() + timeout_ms / 1000

    def left(self) -> float:
        if (seconds := self._at - time.monotonic()) <= 0:
            raise TimeoutError
        return seconds

    def cut(self) -> None:
        """End now, because the caller no longer waits: an abandoned thread stops at its next step."""
        self._at = 0.0


class _Wire(io.RawIOBase):
    """An open socket for http.client; every wait, even inside a header line, ends at the deadline."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            self._sock.settimeout(self._deadline.left())
            self._sock.sendall(data[start : start + CHUNK_BYTES])

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        """Do nothing: http.client closes before the body is read; `_exchange` closes the socket."""


@dataclass(frozen=True, slots=True)
class _Place:
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _follow(request: FetchRequest, allowed: set[str], resolve: Resolver, deadline: _Deadline) -> FetchResponse:
    for _ in range(request.max_redirects + 1):
        place = _place_of(request.url)
        ips = _checked_ips(request.url, place, allowed, resolve)
        response = _exchange(request, place, ips, deadline)
        if response.redirects_to is None:
            return response
        request = _redirected(request, response.status, response.redirects_to)
    allowance = f"is beyond the {request.max_redirects} redirects allowed: raise max_redirects"
    raise _refusal("redirects", request.url, allowance)


def _checked(request: FetchRequest) -> FetchRequest:
    for name, (low, high) in RANGES.items():
        if not low <= (given := getattr(request, name)) <= high:
            raise _refusal("request", request.url, f"must have {name} from {low} to {high}, got {given}")
    if not re.fullmatch("[A-Z]+", request.method):
        raise _refusal("request", request.url, f"must have a method in capital letters, got {shown(request.method)}")
    for name, value in request.headers.items():
        if name.lower() in SET_BY_FETCH:
            raise _refusal("request", request.url, f"must not set {name}: fetch sets it")
        if not TOKEN.fullmatch(name) or not PRINTABLE.fullmatch(value):
            raise _refusal("request", request.url, f"must have printable ASCII in the header {name!r}: encode it")
    return replace(request, headers={name.lower(): value for name, value in request.headers.items()})


def _place_of(url: str) -> _Place:
    if not PRINTABLE.fullmatch(url) or " " in url:
        raise _refusal("url", url, "must not have spaces, control or non-ASCII characters: percent-encode them")
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise _refusal("url", url, "must be a URL: check its host and port") from error
    if scheme not in PORTS:
        raise _refusal("url", url, "must be http or https")
    if "@" in parts.netloc:
        raise _refusal("url", url, "must not have a user name or password: send an Authorization header")
    if not HOST.fullmatch(host):
        raise _refusal("url", url, "must have an ASCII name or an IP address without a zone as its host")
    return _Place(scheme, host, PORTS[scheme] if port is None else port)


def _checked_ips(url: str, place: _Place, allowed: set[str], resolve: Resolver) -> list[str]:
    try:
        if not (ips := resolve(place.host, place.port)):
            raise OSError("an empty response")
    except (OSError, UnicodeError) as error:
        raise _refusal("dns", url, f"has no address ({error}): check the host name") from error
    for ip in ips if str(place) not in allowed else ():
        if reason := blocked_because(ip):
            raise _refusal("blocked", url, f"must be public, but is at {ip} ({reason}): the operator may allow {place}")
    return ips


def _exchange(request: FetchRequest, place: _Place, ips: list[str], deadline: _Deadline) -> FetchResponse:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    ours = {"host": str(place).removesuffix(f":{PORTS[place.scheme]}"), "accept-encoding": "identity"}
    headers = {"user-agent": "ocean", **request.headers, **ours, "connection": "close"}
    try:
        with _open(place, ips, deadline) as sock:
            connection = http.client.HTTPConnection(place.host, place.port)
            connection.auto_open = 0  # http.client gets an open socket and must never open one by name
            connection.sock = _Wire(sock, deadline)
            connection.request(request.method, target, request.body, headers)
            return _read(request, connection.getresponse())
    except TimeoutError:
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        text = f"failed ({type(error).__name__}: {error}): check that the server uses {place.scheme}"
        raise _refusal("connection", request.url, text) from error


def _open(place: _Place, ips: list[str], deadline: _Deadline) -> socket.socket:
    for remaining in range(len(ips), 0, -1):
        try:
            share = deadline.left() / remaining
            sock = socket.create_connection((ips[-remaining], place.port), timeout=share)
            break
        except OSError:
            if remaining == 1:
                raise
    if place.scheme == "http":
        return sock
    with sock:  # wrap_socket takes over the descriptor: this closes a detached socket, or the one that failed
        sock.settimeout(deadline.left())
        return ssl.create_default_context().wrap_socket(sock, server_hostname=place.host)


def _read(request: FetchRequest, response: http.client.HTTPResponse) -> FetchResponse:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        headers[name.lower()] = ", ".join(filter(None, [headers.get(name.lower()), value.strip()]))
    head = FetchResponse(response.status, headers, b"", request.url)
    if head.redirects_to is not None:
        return head
    body = bytearray()
    while chunk := response.read(CHUNK_BYTES):
        body += chunk
        if len(body) > request.max_bytes:
            raise _refusal("size", request.url, f"is larger than {request.max_bytes} bytes: raise max_bytes")
    if response.length:
        raise _refusal("connection", request.url, f"ended {response.length} bytes early: try again")
    return replace(head, body=bytes(body))


def _redirected(request: FetchRequest, status: int, location: str) -> FetchRequest:
    try:
        url = urljoin(request.url, location)
    except ValueError as error:
        raise _refusal("url", request.url, "redirects to an invalid URL: report it to the server's operator") from error
    before, after = _place_of(request.url), _place_of(url)
    if (before.scheme, after.scheme) == ("https", "http"):
        raise _refusal("redirects", url, "is a redirect from https to http: use the https address")
    dropped = CREDENTIALS if after != before else frozenset()
    method, body = request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        dropped |= {name for name in request.headers if name.startswith("content-")}
    headers = {name: value for name, value in request.headers.items() if name not in dropped}
    return replace(request, url=url, method=method, headers=headers, body=body)


def _refusal(reason: str, url: str, text: str) -> FetchRefused:
    """Return the error. The URL is shown without user, query and fragment, which may be secret: errors are stored."""
    shown = re.sub(r"//[^/]*@", "//", re.split(r"[?#]", url, maxsplit=1)[0])[:300]
    return FetchRefused(f"fetch: {shown!r} {text}", reason=reason, url=shown)
