"""Routes made from the table: one for each path, whose methods check what was sent and call their handlers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ocean.http.answering import refused
from ocean.http.bodies import read_body
from ocean.http.calls import Call, Served
from ocean.http.errors import KeyNotTaken
from ocean.http.poking import Poker
from ocean.http.queries import read_query
from ocean.http.table import Op, Repeat
from ocean.kernel.errors import CallRefused, InvalidValue
from ocean.kernel.values import checked_id

IDEMPOTENCY_KEY = "Idempotency-Key"
WHY_NOT = {
    Repeat.SAFE: "it changes nothing",
    Repeat.ITSELF: "the same body again does nothing more",
    Repeat.NEVER: "each request is one of its own",
}


def make_routes(table: Sequence[Op], served: Served, poker: Poker | None) -> list[Route]:
    """One route for the methods of a path: else 405 would name only the first of them."""
    by_path: dict[str, dict[str, Op]] = {}
    for op in table:
        by_path.setdefault(op.path, {})[op.method] = op
    return [Route(path, _endpoint(ops, served, poker), methods=[*ops]) for path, ops in by_path.items()]


def _endpoint(ops: Mapping[str, Op], served: Served, poker: Poker | None) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        op = ops["GET" if request.method == "HEAD" else request.method]
        request.scope["ocean.route"] = op.path
        query = read_query(request, op.query)
        key = request_key(request, op)
        body = await read_body(request, op.body, op.most_bytes) if op.body else None
        try:
            response = await op.handler(Call(served, request, body, query, key))
        except CallRefused as refusal:
            # A method that refuses has committed what it did before, perhaps a signal.
            response = refused(request, refusal)
        if op.pokes and poker is not None:
            response.background = BackgroundTask(poker.poke)
        return response

    return answer


def request_key(request: Request, op: Op) -> str | None:
    given = request.headers.getlist(IDEMPOTENCY_KEY)
    if not given:
        return None
    if op.repeat is not Repeat.KEYED:
        raise KeyNotTaken(f"{op.method} {op.path} takes no {IDEMPOTENCY_KEY}: {WHY_NOT[op.repeat]}; leave it out")
    if len(given) > 1:
        raise InvalidValue(f"{IDEMPOTENCY_KEY} is given {len(given)} times; a request has one")
    return checked_id(given[0], IDEMPOTENCY_KEY)
