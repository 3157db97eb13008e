"""`fetch` against real servers on loopback. Names end in `.test` and are resolved by the tests themselves."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from anyio import to_thread

from ocean.state.errors import FetchRefused
from ocean.tools.addresses import blocked_because
from ocean.tools.fetch import FetchRequest, FetchResponse, fetch

pytestmark = pytest.mark.anyio

Route = Callable[[BaseHTTPRequestHandler], None]
LONG_MS = 60_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Seen:
    method: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Site:
    port: int
    scheme: str
    routes: dict[str, Route] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    def at(self, host: str) -> str:
        return f"{host}:{self.port}"

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{self.at(host)}{path}"


class Server(ThreadingHTTPServer):
    daemon_threads = False
    site: Site

    def process_request(self, request: Any, client_address: Any) -> None:
        self.site.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up: many of these tests do."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def respond(self) -> None:
        length = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.site.seen.append(Seen(self.command, headers, self.rfile.read(length)))
        self.server.site.routes[self.path](self)

    do_GET = do_HEAD = do_POST = do_PUT = respond

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def a_site(ip: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    with Server((ip, port), Handler) as server:
        server.site = Site(server.server_address[1], "http" if tls is None else "https")
        server.site.routes["/"] = responds(b"hello")
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as running:
        yield running


@pytest.fixture
def other_site() -> Iterator[Site]:
    with a_site() as running:
        yield running


def responds(body: bytes, status: int = 200, *headers: tuple[str, str]) -> Route:
    def route(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return route


def redirects(location: str, status: int = 302) -> Route:
    return responds(b"moved", status, ("Location", location))


def sends_raw(*pieces: bytes) -> Route:
    def route(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            for piece in pieces:
                handler.wfile.write(piece)

    return route


@dataclass
class Drip:
    """A byte every few milliseconds until the client hangs up or the test ends."""

    opening: bytes
    started: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)
    test_ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.wfile.write(self.opening)
            self.started.set()
            while not self.test_ended.wait(0.01):
                handler.wfile.write(b"x")
        except OSError:
            self.hung_up.set()


def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def get(site: Site, path: str = "/", **more: Any) -> FetchResponse:
    return await fetch(FetchRequest(site.url(path), **more), private_hosts=[site.at("127.0.0.1")])


def refused(reason: str) -> Any:
    return pytest.raises(FetchRefused, check=lambda error: error.details["reason"] == reason)


async def test_a_get_returns_status_headers_body_and_final_url(site: Site) -> None:
    site.routes["/a?b=c"] = responds(b'{"n": 1}', 201, ("X-Two", "1"), ("x-two", "2"))
    response = await get(site, "/a?b=c#part", headers={"X-Note": "hi"})
    assert (response.status, response.text, response.json()) == (201, '{"n": 1}', {"n": 1})
    assert response.headers["x-two"] == "1, 2"
    assert response.url == site.url("/a?b=c#part")
    sent = site.seen[0].headers
    assert (sent["x-note"], sent["accept-encoding"], sent["connection"]) == ("hi", "identity", "close")
    assert sent["host"] == site.at("127.0.0.1")


async def test_a_post_sends_its_body_and_length(site: Site) -> None:
    body = b"\x00" * 300_000
    await get(site, method="POST", body=body, headers={"content-type": "text/plain"})
    assert (site.seen[0].method, site.seen[0].body) == ("POST", body)
    assert site.seen[0].headers["content-type"] == "text/plain"


async def test_an_error_status_is_a_response_and_bytes_that_are_not_utf8_are_replaced(site: Site) -> None:
    site.routes["/"] = responds(b"no\xff", 503)
    response = await get(site)
    assert (response.status, response.text) == (503, "no�")


async def test_a_head_request_has_no_body_whatever_length_is_announced(site: Site) -> None:
    response = await get(site, method="HEAD")
    assert (response.body, response.headers["content-length"]) == (b"", "5")


async def test_a_host_with_one_dead_address_is_reached_at_the_next(site: Site) -> None:
    response = await fetch(
        FetchRequest(site.url(host="twice.test")),
        private_hosts=[site.at("twice.test")],
        resolve=lambda host, port: ["127.0.0.9", "127.0.0.1"],
    )
    assert response.text == "hello"


ADDRESSES = {
    "8.8.8.8": None,
    "1.1.1.1": None,
    "93.184.216.34": None,
    "100.63.255.255": None,
    "100.128.0.1": None,
    "172.32.0.1": None,
    "192.0.1.1": None,
    "2606:4700:4700::1111": None,
    "2a00:1450:4001:80b::200e": None,
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "::1": "loopback",
    "10.1.2.3": "private",
    "172.31.255.255": "private",
    "192.168.0.1": "private",
    "fd00:ec2::254": "private",
    "169.254.169.254": "link-local",
    "fe80::1": "link-local",
    "100.64.0.1": "carrier-grade NAT",
    "100.100.100.200": "carrier-grade NAT",
    "224.0.0.1": "multicast",
    "ff0e::1": "multicast",
    "0.0.0.0": "unspecified",
    "::": "unspecified",
    "192.0.0.192": "reserved",
    "198.18.0.1": "reserved",
    "255.255.255.255": "reserved",
    "2001:20::1": "reserved",
    "203.0.113.7": "documentation",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "64:ff9b::169.254.169.254": "NAT64",
    "64:ff9b:1::a00:1": "NAT64",
    "2002:7f00:1::1": "6to4",
    "2001:0:4136:e378:8000:63bf:80ff:fffe": "Teredo",
    "168.63.129.16": "Azure's host agent",
    "::127.0.0.1": "not public",
    "fec0::1": "not public",
    "4000::1": "not public",
    "fe80::1%eth0": "scoped to a network zone",
    "2606:4700::1%1": "scoped to a network zone",
    "127.1": "not an IP address",
    "example.com": "not an IP address",
}


@pytest.mark.parametrize(("ip", "reason"), ADDRESSES.items())
def test_only_public_addresses_may_be_connected_to(ip: str, reason: str | None) -> None:
    assert blocked_because(ip) == reason


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0"])
async def test_loopback_is_refused_however_it_is_spelled(site: Site, host: str) -> None:
    with refused("blocked"):
        await fetch(FetchRequest(site.url(host=host)))
    assert site.connections == 0


@pytest.mark.parametrize("host", ["[::1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"])
async def test_ipv6_literals_of_private_addresses_are_refused(host: str) -> None:
    with refused("blocked"):
        await fetch(FetchRequest(f"http://{host}/"))


async def test_one_private_address_among_public_ones_is_enough_to_refuse(site: Site) -> None:
    with refused("blocked"):
        await fetch(FetchRequest(site.url(host="mixed.test")), resolve=lambda host, port: ["8.8.8.8", "127.0.0.1"])
    assert site.connections == 0


async def test_an_allowance_holds_for_that_host_and_port_as_written_only(site: Site) -> None:
    allowed = ["127.0.0.1:1", f"localhost:{site.port}", "127.0.0.1", f"7.0.0.1:{site.port}"]
    for private_hosts in (allowed, f"x127.0.0.1:{site.port}0"):
        with refused("blocked"):
            await fetch(FetchRequest(site.url()), private_hosts=private_hosts)
    assert site.connections == 0


async def test_a_redirect_from_an_allowed_host_to_another_private_port_is_refused(site: Site, other_site: Site) -> None:
    site.routes["/"] = redirects(other_site.url("/"))
    with refused("blocked"):
        await get(site)
    assert (site.connections, other_site.connections) == (1, 0)


async def test_a_name_that_is_rebound_after_the_check_is_reached_at_the_checked_address(site: Site) -> None:
    addresses = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]])
    with a_site("127.0.0.2", site.port) as trap:
        response = await fetch(
            FetchRequest(site.url(host="rebind.test")),
            private_hosts=[site.at("rebind.test")],
            resolve=lambda host, port: next(addresses),
        )
        assert (response.text, trap.connections) == ("hello", 0)
    assert next(addresses) == ["127.0.0.2"], "the name was resolved once"
    assert site.seen[0].headers["host"] == site.at("rebind.test")


async def test_a_redirect_to_a_name_with_a_private_address_is_refused(site: Site, other_site: Site) -> None:
    site.routes["/"] = redirects(other_site.url(host="inside.test"))
    with refused("blocked"):
        await fetch(
            FetchRequest(site.url(host="start.test")),
            private_hosts=[site.at("start.test"), site.at("inside.test")],
            resolve=loopback,
        )
    assert (site.connections, other_site.connections) == (1, 0)


SECRETS = {"Authorization": "Bearer s", "cookie": "s", "Proxy-Authorization": "s", "X-Note": "kept"}


@pytest.mark.parametrize("host", ["b.test", "a.test"], ids=["other host", "other port"])
async def test_credentials_do_not_leave_the_origin_and_do_not_come_back(
    site: Site, other_site: Site, host: str
) -> None:
    site.routes["/"] = redirects(other_site.url("/over", host=host))
    other_site.routes["/over"] = redirects(site.url("/home", host="a.test"))
    site.routes["/home"] = responds(b"home")
    await fetch(
        FetchRequest(site.url(host="a.test"), headers=SECRETS),
        private_hosts=[site.at("a.test"), other_site.at(host)],
        resolve=loopback,
    )
    first, over, home = site.seen[0].headers, other_site.seen[0].headers, site.seen[1].headers
    secret = {name.lower() for name in SECRETS} - {"x-note"}
    assert [secret & set(sent) for sent in (first, over, home)] == [secret, set(), set()]
    assert over["x-note"] == "kept"
    assert over["host"] == other_site.at(host)


async def test_credentials_stay_on_a_redirect_within_the_origin(site: Site) -> None:
    site.routes["/"] = redirects("next?x=1")
    site.routes["/next?x=1"] = responds(b"there")
    response = await get(site, headers=SECRETS)
    assert (response.text, response.url) == ("there", site.url("/next?x=1"))
    assert site.seen[1].headers["authorization"] == "Bearer s"


@pytest.mark.parametrize(
    ("status", "method", "becomes"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (302, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
    ],
)
async def test_a_redirect_keeps_or_changes_the_method(site: Site, status: int, method: str, becomes: str) -> None:
    site.routes["/from"] = redirects("/", status)
    body = None if method == "HEAD" else b"data"
    await get(site, "/from", method=method, body=body, headers={"Content-Type": "text/plain"})
    assert (site.seen[0].method, site.seen[1].method) == (method, becomes)
    kept = becomes == method and body is not None
    assert site.seen[1].body == (b"data" if kept else b"")
    assert ("content-type" in site.seen[1].headers) == (becomes == method)


async def test_redirects_are_followed_up_to_the_limit_and_no_further(site: Site) -> None:
    site.routes |= {"/2": redirects("/1"), "/1": redirects("/")}
    assert (await get(site, "/2", max_redirects=2)).text == "hello"
    with refused("redirects"):
        await get(site, "/2", max_redirects=1)
    assert site.connections == 3 + 2


async def test_a_redirect_status_without_a_location_is_a_response(site: Site) -> None:
    site.routes["/"] = responds(b"where to?", 302)
    assert (await get(site)).text == "where to?"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[", "http://u:p@x.test/", "http://a b/"])
async def test_a_redirect_to_a_bad_url_is_refused(site: Site, location: str) -> None:
    site.routes["/"] = redirects(location)
    with refused("url"):
        await get(site)


ENDLESS = [b"x" * 10_000] * 1_000
ENDLESS_CHUNKS = [b"2710\r\n" + piece + b"\r\n" for piece in ENDLESS]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\n\r\n", *ENDLESS],
        [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", *ENDLESS],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", *ENDLESS],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", *ENDLESS_CHUNKS],
    ],
    ids=["no length", "negative length", "huge length", "short length but chunked"],
)
async def test_a_body_over_the_limit_is_cut_whatever_the_headers_announce(site: Site, pieces: list[bytes]) -> None:
    site.routes["/"] = sends_raw(*pieces)
    with refused("size"):
        await get(site, max_bytes=50_000)


async def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(site: Site) -> None:
    assert (await get(site, max_bytes=5)).body == b"hello"
    with refused("size"):
        await get(site, max_bytes=4)


async def test_bytes_after_the_announced_length_are_not_read(site: Site) -> None:
    site.routes["/"] = sends_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", *ENDLESS)
    assert (await get(site)).body == b"xxx"


async def test_a_redirect_with_a_long_body_is_followed_without_reading_it(site: Site) -> None:
    site.routes["/from"] = sends_raw(b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", *ENDLESS)
    assert (await get(site, "/from", max_bytes=10)).text == "hello"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort",
    ],
    ids=["nothing", "not http", "short body", "short chunk"],
)
async def test_a_response_that_breaks_off_or_is_not_http_is_refused(site: Site, raw: bytes) -> None:
    site.routes["/"] = sends_raw(raw)
    with refused("connection"):
        await get(site)


@pytest.mark.parametrize("opening", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 2"])
async def test_a_drip_that_never_pauses_ends_at_the_overall_deadline(site: Site, opening: bytes) -> None:
    site.routes["/"] = drip = Drip(opening)
    try:
        with refused("timeout"):
            await get(site, timeout_ms=200)
        assert await to_thread.run_sync(drip.hung_up.wait, 5), "the thread itself closed the connection"
    finally:
        drip.test_ended.set()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_neither_reads_nor_responds_is_abandoned_at_the_deadline(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        place = f"127.0.0.1:{mute.getsockname()[1]}"
        request = FetchRequest(f"{scheme}://{place}/", "POST", body=bytes(30_000_000), timeout_ms=200)
        with refused("timeout"):
            await fetch(request, private_hosts=[place])
        received = await to_thread.run_sync(received_until_closed, mute)
    assert received < 30_000_000, "the thread itself closed the connection"


def received_until_closed(listener: socket.socket) -> int:
    received = 0
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5)
        while piece := connection.recv(1_000_000):
            received += len(piece)
    return received


async def test_the_deadline_covers_all_hops_together(site: Site) -> None:
    test_ended = threading.Event()

    def slow_loop(handler: BaseHTTPRequestHandler) -> None:
        test_ended.wait(0.1)
        redirects("/")(handler)

    site.routes["/"] = slow_loop
    with refused("timeout"):
        await get(site, timeout_ms=350, max_redirects=20)
    test_ended.set()
    assert site.connections <= 4


async def test_a_resolver_that_hangs_does_not_outlast_the_deadline(site: Site) -> None:
    test_ended = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        test_ended.wait(LONG_MS / 1000)
        raise OSError("too late")

    try:
        with refused("timeout"):
            await fetch(FetchRequest("http://hang.test/", timeout_ms=100), resolve=hang)
    finally:
        test_ended.set()


async def test_a_cancelled_fetch_lets_the_loop_go_on_and_its_thread_hangs_up(site: Site) -> None:
    site.routes["/"] = drip = Drip(b"HTTP/1.1 200 OK\r\n\r\n")
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: get(site, timeout_ms=LONG_MS))
            assert await to_thread.run_sync(drip.started.wait, 5)
            tasks.cancel_scope.cancel()
        assert await to_thread.run_sync(drip.hung_up.wait, 5)
    finally:
        drip.test_ended.set()


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "Accept-Encoding"])
async def test_the_caller_cannot_set_headers_that_frame_the_message(site: Site, name: str) -> None:
    with pytest.raises(FetchRefused, match=f"must not set {name}"):
        await get(site, headers={name: "1"})
    assert site.connections == 0


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"headers": {"X-A": "\x00"}},
        {"headers": {"X-A": "ü"}},
        {"headers": {"X-A\r\nHost": "x"}},
        {"headers": {"": "x"}},
        {"headers": {"Host ": "x"}},
        {"method": "GET / HTTP/1.1\r\nX: y"},
        {"method": "GET\n"},
        {"method": ""},
        {"method": "get"},
        {"timeout_ms": 0},
        {"timeout_ms": 600_001},
        {"max_redirects": -1},
        {"max_redirects": 21},
        {"max_bytes": 0},
    ],
    ids=repr,
)
async def test_a_malformed_request_is_refused_before_anything_is_sent(site: Site, more: dict[str, Any]) -> None:
    with refused("request"):
        await get(site, **more)
    assert site.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://exa mple.com/",
        "http://example.com/\r\nX: y",
        "http://example.com/\tx",
        "\x00http://example.com/",
        "http://exämple.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa%6dple.com/",
    ],
)
async def test_a_url_that_is_not_plain_http_is_refused_without_resolving(url: str) -> None:
    def fail(host: str, port: int) -> list[str]:
        raise AssertionError(f"resolved {host}")

    with refused("url") as caught:
        await fetch(FetchRequest(url), resolve=fail)
    assert "secret" not in caught.value.message


async def test_a_name_without_an_address_is_refused() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    def empty(host: str, port: int) -> list[str]:
        return []

    for resolve in (unknown, empty):
        with refused("dns"):
            await fetch(FetchRequest("http://nowhere.test/"), resolve=resolve)
    with refused("dns"):
        await fetch(FetchRequest(f"http://{'a' * 64}.test/"))


async def test_a_closed_port_is_refused_and_the_error_hides_the_query(site: Site) -> None:
    with refused("connection") as caught:
        await fetch(
            FetchRequest("http://gone.test:1/path?token=hush"),
            private_hosts=["gone.test:1"],
            resolve=loopback,
        )
    assert "http://gone.test:1/path" in caught.value.message
    assert "hush" not in caught.value.message + str(caught.value.details)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_site(authority: trustme.CA) -> Iterator[Site]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("ocean.test").configure_cert(context)
    with a_site(tls=context) as running:
        yield running


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


async def get_tls(site: Site, host: str, *also_allowed: str) -> FetchResponse:
    request = FetchRequest(site.url(host=host))
    return await fetch(request, private_hosts=[site.at(host), *also_allowed], resolve=loopback)


@pytest.mark.usefixtures("trusted")
async def test_https_is_checked_against_the_name_though_an_address_is_connected_to(tls_site: Site) -> None:
    assert (await get_tls(tls_site, "ocean.test")).text == "hello"
    assert tls_site.seen[0].headers["host"] == tls_site.at("ocean.test")


@pytest.mark.usefixtures("trusted")
async def test_a_certificate_for_another_name_is_refused(tls_site: Site) -> None:
    with refused("connection"):
        await get_tls(tls_site, "other.test")
    assert tls_site.seen == []


async def test_an_unsigned_certificate_is_refused_also_for_an_allowed_host(tls_site: Site) -> None:
    with refused("connection"):
        await get_tls(tls_site, "ocean.test")
    assert tls_site.seen == []


@pytest.mark.usefixtures("trusted")
async def test_a_redirect_from_https_to_http_is_refused(tls_site: Site, site: Site) -> None:
    tls_site.routes["/"] = redirects(site.url(host="plain.test"))
    with refused("redirects"):
        await get_tls(tls_site, "ocean.test", site.at("plain.test"))
    assert site.connections == 0
