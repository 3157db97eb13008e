"""What a line of the route table says. Routes, their checks and the OpenAPI document are all made from it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from starlette.responses import Response

from ocean.http.framework.bodies import Body
from ocean.http.framework.call import Call
from ocean.http.framework.query_strings import Query
from ocean.state.access import KeyScope
from ocean.state.records import GenericVerb
from ocean.state.values import MAX_BYTES

Scope = KeyScope | Literal["any", "open"]
"""What a key must allow. `any` takes every key; `open` needs none, and says nothing that is secret."""
Reach = Literal["all", "asked", "none"]
"""What a route without a run, a lease or a session in its path concerns: all sessions, so that a key for some of them
is refused; those that the request names, which the handler checks; or no session at all."""


class Repeat(StrEnum):
    """What a request is when it comes a second time."""

    KEYED = "keyed"
    """Another request, unless both have the same Idempotency-Key: then the first one's answer."""
    SAFE = "safe"
    """It changes nothing."""
    KEPT = "kept"
    """The same, but the answer is kept after the work, which is more than one transaction and may be done again."""
    NEVER = "never"
    """Another request, always."""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One method of one path. `answers` are what it answers by status: a record, or words for what is no JSON."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    scope: Scope
    summary: str
    handler: Callable[[Call], Awaitable[Response]]
    answers: Mapping[int, Any] = field(default_factory=dict)
    verb: GenericVerb | None = None
    """What it does with the run in its path, which the run's clog must allow."""
    reach: Reach = "all"
    body: type[Body] | None = None
    query: type[Query] = Query
    repeat: Repeat = Repeat.SAFE
    pokes: bool = False
    """Whether due work is looked for after it."""
    most_bytes: int = MAX_BYTES
    media_type: str = "text/html"
    """Of an answer that is no JSON."""
    is_streamed: bool = False
    """Whether it answers with a stream to those who accept one."""
