"""A clog's own HTTP routes, webhooks and commands, with its own paths, formats and errors."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from ocean.clog.webhooks import Replays, SessionOf, Webhook, new_webhook
from ocean.kernel.arguments import checked_choice, checked_count, checked_flag, checked_names
from ocean.state.errors import InvalidValue, OceanError, RunNotFound
from ocean.state.records import GENERIC_VERBS, KEY_SCOPES, Access, Caller, GenericVerb, KeyScope, RunInfo
from ocean.state.values import MAX_BYTES, shown

if TYPE_CHECKING:
    from ocean.compose import Ocean

H = TypeVar("H", bound=Callable[..., Any])
RouteMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
RouteAccess = KeyScope | Literal["open"] | Callable[["Incoming"], Any]
"""The scope that a key must have; `open` needs no key; a function authenticates the sender by the clog's own rules."""
CHECKED = "checked"
MOST_ROUTE_BYTES = 64 * 1024 * 1024
JSON = "application/json"
PARAMETER = re.compile(r"{([A-Za-z_][A-Za-z0-9_]*)(:path)?}")
SEGMENT = re.compile(r"[A-Za-z0-9._~:@!$&'()*+,;={}-]+")
ANONYMOUS = Access(frozenset(), sessions=frozenset())
"""The access of a request to an open route: nothing is known about its sender."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a route: JSON, or bytes with their Content-Type among the headers."""

    content: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Incoming:
    """A request to a clog's route.

    `body` and `query` are instances of the route's models. `pairs` is the query string, `raw` the bytes of the body.
    The names of `headers` are in lower case. For an `errors` function the request may be read only in part.
    """

    ocean: "Ocean"
    method: str
    path: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    request_id: str
    parse: Callable[[bytes], Any]
    access: Access = ANONYMOUS
    request_key: str | None = None
    raw: bytes = b""
    body: Any = None
    query: Any = None

    @property
    def caller(self) -> Caller:
        """The caller, for `call_clog`; other verbs take its actor."""
        return self.access.caller

    def json(self) -> Any:
        """Parse the body strictly: no name twice, no NaN."""
        return self.parse(self.raw)

    async def run(self, run_id: str) -> RunInfo:
        """Return the run if the request may see it; otherwise raise `RunNotFound`, as for a run that does not exist."""
        run = await self.ocean.get_run(run_id)
        if run is None or not self.access.sees(run.session_id):
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The result of a clog's command: a text, and a value for `--json`. The exit code is 1 unless `ok`."""

    text: str
    value: Any = None
    ok: bool = True


Errors = Callable[[OceanError, Incoming], Any]
"""Formats an error for a clog's routes: returns a `Reply`, or JSON that is sent with the error's own status."""


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    clog_id: str
    method: RouteMethod
    path: str
    access: RouteAccess | None
    handler: Callable[[Incoming], Any]
    summary: str
    body: type[BaseModel] | None
    query: type[BaseModel] | None
    session: str | None
    keyed: bool | Literal["own"]
    check: Callable[[Incoming], Any] | None
    most_bytes: int
    content_type: str | None
    errors: Errors | None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path} of clog {self.clog_id!r}"

    @property
    def parameters(self) -> list[str]:
        return [match[1] for match in PARAMETER.finditer(self.path)]


class Mounts:
    """The routes, webhooks and commands of a clog, and what the generic routes may do with its runs."""

    clog_id: str

    def __init__(self, generic: Collection[GenericVerb] | None, errors: Errors | None) -> None:
        for verb in checked_names(generic, "generic"):
            checked_choice(verb, "each of generic", GENERIC_VERBS)
        self._generic = None if generic is None else frozenset(generic)
        self._errors = errors
        self.routes: list[Route] = []
        self.webhooks: dict[str, Webhook] = {}
        self.commands: dict[str, Callable[[Ocean], Any]] = {}

    @property
    def allows(self) -> frozenset[str]:
        """What the generic routes and commands may do with its runs, apart from reading and advancing them."""
        if self._generic is not None:
            return self._generic
        return frozenset() if self.routes else frozenset(GENERIC_VERBS)

    def route(
        self,
        method: RouteMethod,
        path: str,
        *,
        access: RouteAccess | None = None,
        summary: str = "",
        body: type[BaseModel] | None = None,
        query: type[BaseModel] | None = None,
        session: str | None = None,
        keyed: bool | Literal["own"] = False,
        check: Callable[[Incoming], Any] | None = None,
        most_bytes: int = MAX_BYTES,
        content_type: str | None = JSON,
        errors: Errors | None = None,
    ) -> Callable[[H], H]:
        """Register a route: `@clog.route("POST", "/orders/{order_id}/pay", access="signal")`.

        `access` is the scope that a key must have, or `open`, or a function that authenticates senders without Ocean's
        keys and returns their `Access`; a server with a route without `access` does not start. `session` is the path
        parameter that is a session, or `checked` if the handler checks `incoming.access` itself; without it, the route
        is closed to keys for some sessions. `keyed` routes take an Idempotency-Key and pass it to a verb as its
        `request_key`; with `own`, the handler itself responds to a repeat during the work. `check` is called with an
        authenticated request before its body is read. `errors` formats every error; by default the clog's does.
        """

        def register(handler: H) -> H:
            formats = errors or self._errors
            made = Route(
                self.clog_id, method, path, access, handler, summary, body, query, session, keyed, check,
                most_bytes, content_type, formats,
            )  # fmt: skip
            self.routes.append(_checked(made))
            return handler

        return register

    def webhook(
        self,
        name: str,
        *,
        secrets: str | Collection[str],
        session: SessionOf | None = None,
        most_bytes: int = MAX_BYTES,
        replays: Replays = "answer",
        errors: Errors | None = None,
    ) -> Callable[[H], H]:
        """Register the handler of signed deliveries to `POST /hooks/{clog_id}/{name}`.

        It is called with a tick and a `Delivery`, like a method: its effects and the delivery's id are one commit.
        `secrets` name environment variables, as `env:PAID_SECRET`, with one secret or several separated by spaces.
        `session` is the session of the call, or a function that reads it from the delivery; by default none. A
        repeated delivery gets the first answer; `replays="refuse"` refuses it instead.
        """

        def register(handler: H) -> H:
            if name in self.webhooks:
                raise InvalidValue(f"webhooks of clog {self.clog_id!r} must have unique names, got {name!r} twice")
            formats = errors or self._errors
            hook = new_webhook(self.clog_id, name, handler, secrets, session, most_bytes, replays, formats)
            self.webhooks[name] = hook
            return handler

        return register

    def command(self, command: H) -> H:
        """Register a command under its function's name: `ocean CLOG_ID NAME`. It gets the Ocean and returns a
        `CommandAnswer`."""
        name = command.__name__
        if name in self.commands:
            raise InvalidValue(f"commands of clog {self.clog_id!r} must have unique names, got {name!r} twice")
        self.commands[name] = command
        return command


def _checked(route: Route) -> Route:
    checked_choice(route.method, f"the method of {route.name}", get_args(RouteMethod))
    if route.access is not None and not callable(route.access):
        checked_choice(route.access, f"access of {route.name}", (*KEY_SCOPES, "open"))
    if route.keyed != "own":
        checked_flag(route.keyed, f"keyed of {route.name}")
    if route.check is not None and not callable(route.check):
        raise InvalidValue(f"check of {route.name} must be a function of an Incoming, got {shown(route.check)}")
    checked_count(route.most_bytes, f"most_bytes of {route.name}", least=0, most=MOST_ROUTE_BYTES)
    segments = route.path.split("/")[1:] if isinstance(route.path, str) and route.path.startswith("/") else [""]
    for segment in segments:
        plain = PARAMETER.sub("", segment)
        if not SEGMENT.fullmatch(segment) or segment in (".", "..") or "{" in plain or "}" in plain:
            raise InvalidValue(f"{route.name}: the path must be like /orders/{{order_id}}/pay, got {shown(route.path)}")
    if "{" in segments[0]:
        raise InvalidValue(
            f"{route.name}: the path must begin with a word; one that begins with a parameter would match any"
        )
    if any(len(PARAMETER.findall(segment)) > 1 for segment in segments) or route.path.count(":path}") > 1:
        # Matching would also try all of them, and a client could make that arbitrarily slow.
        raise InvalidValue(
            f"{route.name}: a path must not have two parameters in a part, or two of :path: they would be ambiguous"
        )
    names = route.parameters
    if len({*names}) < len(names):
        raise InvalidValue(f"{route.name}: the parameters of a path must have different names")
    if route.session not in (None, CHECKED, *names):
        raise InvalidValue(f"{route.name}: session must be one of {names}, or {CHECKED!r}, got {shown(route.session)}")
    if route.access == "open" and route.session not in (None, CHECKED):
        raise InvalidValue(
            f"{route.name}: session must be left out on an open route: the sender's sessions are not known"
        )
    for model in (route.body, route.query):
        if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise InvalidValue(f"{route.name}: body and query must be pydantic models, got {shown(model)}")
    return route


def routes_of(clogs: Iterable[Mounts], own: Iterable[str]) -> list[Route]:
    """Return the routes to mount, the most specific first. `own` are Ocean's paths, which no clog may hide."""
    kept = {path.split("/")[1] for path in own}
    found: dict[tuple[str, str], Route] = {}
    for route in (route for clog in clogs for route in clog.routes):
        if route.access is None:
            raise InvalidValue(f"{route.name} must have an access policy: access= one of {[*KEY_SCOPES]}, 'open', …")
        if route.path.split("/")[1] in kept:
            raise InvalidValue(f"{route.name} must not begin with a path of Ocean's own routes: {sorted(kept)}")
        first = found.setdefault((route.method, PARAMETER.sub(r"{\2}", route.path)), route)
        if first is not route:
            raise InvalidValue(f"{route.name} must not have the same path as {first.name}")
    return sorted(found.values(), key=_specificity)


def _specificity(route: Route) -> list[int]:
    """Words before parts of words before parameters: `/jobs/{id}:cancel` is matched before `/jobs/{id}`."""
    return [_looseness(segment) for segment in route.path.split("/")]


def _looseness(segment: str) -> int:
    match = PARAMETER.fullmatch(segment)
    if match:
        return 3 if match[2] else 2
    return 1 if "{" in segment else 0
