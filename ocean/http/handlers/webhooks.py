"""Webhooks: a delivery is let in by its signature alone, and its handler called once for its id."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ocean.clog.routes import Mounts
from ocean.clog.webhooks import (
    WEBHOOK_ID,
    WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
    Delivery,
    Received,
    Webhook,
    check_signature,
    read_signed,
    secrets_of,
    unknown_sender,
)
from ocean.http.framework.bodies import parsed, read_bytes
from ocean.http.framework.call import Served
from ocean.http.framework.clog_routes import refusal, unread
from ocean.http.framework.errors import BodyTooLarge
from ocean.http.framework.poker import Poker
from ocean.http.framework.routing import SpelledRoute
from ocean.http.framework.wire import Answer, record
from ocean.state.errors import CallRefused
from ocean.state.values import MAX_BYTES

HOOKS = "/hooks/{clog_id}/{name}"
NO_SECRET = (bytes(32),)
"""Of a webhook that is not there: its signature is made and compared too, and then refused whatever it is."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The webhooks by clog and name, each with its secrets."""

    known: Mapping[tuple[str, str], tuple[Webhook, tuple[bytes, ...]]] = field(repr=False)

    @classmethod
    def of(cls, clogs: Iterable[Mounts], environ: Mapping[str, str]) -> Self:
        hooks = [hook for clog in clogs for hook in clog.webhooks.values()]
        return cls({(hook.clog_id, hook.name): (hook, secrets_of(hook, environ)) for hook in hooks})

    def find(self, clog_id: str, name: str) -> tuple[Webhook | None, tuple[bytes, ...]]:
        return self.known.get((clog_id, name), (None, NO_SECRET))


def hooks_route(hooks: Hooks, served: Served, poker: Poker | None) -> SpelledRoute:
    return SpelledRoute(HOOKS, _endpoint(hooks, served, poker), methods=["POST"])


def _endpoint(hooks: Hooks, served: Served, poker: Poker | None) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.scope["ocean.route"] = HOOKS
        hook, active = hooks.find(request.path_params["clog_id"], request.path_params["name"])
        try:
            received = await _received(hook, active, served, request)
            response: Response = Answer(record(received))
        except ClientDisconnect:
            raise
        except Exception as error:
            response = refusal(hook.errors if hook else None, error, unread(served, request), request)
            if not isinstance(error, CallRefused):
                return response
        if poker is not None:
            response.background = BackgroundTask(poker.poke)
        return response

    return answer


async def _received(hook: Webhook | None, active: tuple[bytes, ...], served: Served, request: Request) -> Received:
    """Until the signature holds, a webhook that is there and one that is not are treated alike."""
    headers = request.headers
    signed = read_signed(
        headers.getlist(WEBHOOK_ID),
        headers.getlist(WEBHOOK_TIMESTAMP),
        headers.getlist(WEBHOOK_SIGNATURE),
        served.ocean.clock.now(),
    )
    body = await read_bytes(request, MAX_BYTES)
    check_signature(signed, body, active)
    if hook is None:
        raise unknown_sender()
    if len(body) > hook.most_bytes:
        raise BodyTooLarge(f"the body is over {hook.most_bytes} bytes", most_bytes=hook.most_bytes)
    delivery = Delivery(signed.id, parsed(body), signed.sent_at)
    return await served.ocean.receive_webhook(hook.clog_id, hook.name, delivery)
