"""What a clog mounts on a server: routes of its own, with its contract's paths, shapes and refusals."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from ocean.clog.webhooks import Replays, SessionOf, Webhook, new_webhook
from ocean.kernel.arguments import checked_choice, checked_count, checked_flag, checked_names
from ocean.state.access import KEY_SCOPES, Access, KeyScope
from ocean.state.errors import InvalidValue, OceanError, RunNotFound
from ocean.state.records import GENERIC_VERBS, Caller, GenericVerb, RunInfo
from ocean.state.values import MAX_BYTES, shown

if TYPE_CHECKING:
    from ocean.compose import Ocean

H = TypeVar("H", bound=Callable[..., Any])
RouteMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
RouteAccess = KeyScope | Literal["open"] | Callable[["Incoming"], Any]
"""What a key must allow; `open` needs none; a function says by the contract's own rules what the sender may do."""
CHECKED = "checked"
MOST_ROUTE_BYTES = 64 * 1024 * 1024
JSON = "application/json"
PARAMETER = re.compile(r"{([A-Za-z_][A-Za-z0-9_]*)(:path)?}")
SEGMENT = re.compile(r"[A-Za-z0-9._~:@!$&'()*+,;={}-]+")
NOBODY = Access(frozenset(), sessions=frozenset())
"""Of a request to an open route: nothing is known of its sender."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a route answers: JSON, or bytes with their Content-Type among the headers."""

    content: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Incoming:
    """A request to a clog's route.

    `body` and `query` are of the models that the route names. `pairs` is what came after the question mark, `raw` the
    body's bytes; the names of `headers` are in small letters. To an `errors` function it may come half read.
    """

    ocean: "Ocean"
    method: str
    path: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    request_id: str
    parse: Callable[[bytes], Any]
    access: Access = NOBODY
    request_key: str | None = None
    raw: bytes = b""
    body: Any = None
    query: Any = None

    @property
    def caller(self) -> Caller:
        """For `call_clog`; its actor is for the other verbs."""
        return self.access.caller

    def json(self) -> Any:
        """The body, parsed strictly: no name twice, no NaN."""
        return self.parse(self.raw)

    async def run(self, run_id: str) -> RunInfo:
        """The run, if the request may see it. Another session's is not there."""
        run = await self.ocean.get_run(run_id)
        if run is None or not self.access.sees(run.session_id):
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a clog's command answers: a text for people, a value for `--json`. What is not ok is exit code 1."""

    text: str
    value: Any = None
    ok: bool = True


Errors = Callable[[OceanError, Incoming], Any]
"""A refusal as a contract words it: a `Reply`, or JSON that is answered with the refusal's own status."""


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
    """What a clog has besides its runs: routes, webhooks, commands, and what the generic routes may do."""

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
        """What the generic routes and commands may do with its runs, besides reading and advancing them."""
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

        `access` is the scope that a key must have, or `open`, or a function that knows senders by other means than
        Ocean's keys and answers their `Access`; a server with a route that says none of these does not start.
        `session` is the path's parameter that is a session, or `checked` if the handler looks at `incoming.access` by
        itself; a route that says neither is closed to keys for some sessions. `keyed` routes take an Idempotency-Key
        and hand it to a verb as its `request_key`; with `own`, a repeat during the work is the handler's to answer.
        `check` looks at a request whose sender is known, before its body is read. `errors` words every refusal; by
        default the clog's does.
        """

        def register(handler: H) -> H:
            said = errors or self._errors
            made = Route(
                self.clog_id, method, path, access, handler, summary, body, query, session, keyed, check,
                most_bytes, content_type, said,
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

        It is called with a tick and a `Delivery` as a method is: what it does is one commit, and so is the delivery's
        id. `secrets` name environment variables, as `env:PAID_SECRET`, with one secret or several with spaces between.
        `session` is where it is called, or a function that reads it from the delivery; by default no session. A
        delivery that comes again gets the first answer; `replays="refuse"` refuses it instead.
        """

        def register(handler: H) -> H:
            if name in self.webhooks:
                raise InvalidValue(f"clog {self.clog_id!r} has a webhook {name!r} already")
            said = errors or self._errors
            hook = new_webhook(self.clog_id, name, handler, secrets, session, most_bytes, replays, said)
            self.webhooks[name] = hook
            return handler

        return register

    def command(self, command: H) -> H:
        """Register a command under its function's name: `ocean CLOG_ID NAME`. It gets the Ocean, and answers a
        `CommandAnswer`."""
        name = command.__name__
        if name in self.commands:
            raise InvalidValue(f"clog {self.clog_id!r} has a command {name!r} already")
        self.commands[name] = command
        return command


def _checked(route: Route) -> Route:
    checked_choice(route.method, f"the method of {route.name}", get_args(RouteMethod))
    if route.access is not None and not callable(route.access):
        checked_choice(route.access, f"access of {route.name}", (*KEY_SCOPES, "open"))
    if route.keyed != "own":
        checked_flag(route.keyed, f"keyed of {route.name}")
    if route.check is not None and not callable(route.check):
        raise InvalidValue(f"check of {route.name} is a function of an Incoming, got {shown(route.check)}")
    checked_count(route.most_bytes, f"most_bytes of {route.name}", least=0, most=MOST_ROUTE_BYTES)
    segments = route.path.split("/")[1:] if isinstance(route.path, str) and route.path.startswith("/") else [""]
    for segment in segments:
        plain = PARAMETER.sub("", segment)
        if not SEGMENT.fullmatch(segment) or segment in (".", "..") or "{" in plain or "}" in plain:
            raise InvalidValue(f"{route.name}: a path is like /orders/{{order_id}}/pay, got {shown(route.path)}")
    if "{" in segments[0]:
        raise InvalidValue(f"{route.name}: a path begins with a word; one that begins with a parameter would be any")
    if any(len(PARAMETER.findall(segment)) > 1 for segment in segments) or route.path.count(":path}") > 1:
        # Matching would also try them all, in a time that a stranger chooses.
        raise InvalidValue(f"{route.name}: two parameters in a part, or two of :path, can be read in several ways")
    names = route.parameters
    if len({*names}) < len(names):
        raise InvalidValue(f"{route.name}: each parameter of a path has a name of its own")
    if route.session not in (None, CHECKED, *names):
        raise InvalidValue(f"{route.name}: session is one of {names}, or {CHECKED!r}, got {shown(route.session)}")
    if route.access == "open" and route.session not in (None, CHECKED):
        raise InvalidValue(f"{route.name}: nobody's sessions are known on an open route, so session checks nothing")
    for model in (route.body, route.query):
        if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise InvalidValue(f"{route.name}: body and query are pydantic models, got {shown(model)}")
    return route


def routes_of(clogs: Iterable[Mounts], own: Iterable[str]) -> list[Route]:
    """The routes to mount, the most particular first. `own` are Ocean's paths, which no clog can hide."""
    kept = {path.split("/")[1] for path in own}
    found: dict[tuple[str, str], Route] = {}
    for route in (route for clog in clogs for route in clog.routes):
        if route.access is None:
            raise InvalidValue(f"{route.name} has no access policy: say access= one of {[*KEY_SCOPES]}, 'open', …")
        if route.path.split("/")[1] in kept:
            raise InvalidValue(f"{route.name} is where Ocean's own routes are; choose another than {sorted(kept)}")
        first = found.setdefault((route.method, PARAMETER.sub(r"{\2}", route.path)), route)
        if first is not route:
            raise InvalidValue(f"{route.name} is at the same place as {first.name}")
    return sorted(found.values(), key=_particular)


def _particular(route: Route) -> list[int]:
    """Words before parts of words before parameters: `/jobs/{id}:cancel` is asked before `/jobs/{id}`."""
    return [_looseness(segment) for segment in route.path.split("/")]


def _looseness(segment: str) -> int:
    match = PARAMETER.fullmatch(segment)
    if match:
        return 3 if match[2] else 2
    return 1 if "{" in segment else 0
