"""Webhooks: a delivery is authenticated by its signature alone, and its handler is called once for its id."""

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
from ocean.http.framework.call import Poker, ServerState
from ocean.http.framework.clog_routes import clog_error_response, incoming_of
from ocean.http.framework.errors import BodyTooLarge
from ocean.http.framework.parsing import parse_json, read_bytes
from ocean.http.framework.responses import JsonResponse, record
from ocean.http.framework.routing import EscapedPathRoute
from ocean.state.errors import CallRefused
from ocean.state.values import MAX_BYTES

HOOKS = "/hooks/{clog_id}/{name}"
NO_SECRET = (bytes(32),)
"""For a webhook that does not exist: its signature is computed and compared as well, and then always refused."""


@dataclass(frozen=True, slots=True)
class WebhookTable:
    """The webhooks by clog and name, each with its secrets."""

    known: Mapping[tuple[str, str], tuple[Webhook, tuple[bytes, ...]]] = field(repr=False)

    @classmethod
    def of(cls, clogs: Iterable[Mounts], environ: Mapping[str, str]) -> Self:
        """Return the webhooks of the clogs, with their secrets from the environment."""
        hooks = [hook for clog in clogs for hook in clog.webhooks.values()]
        return cls({(hook.clog_id, hook.name): (hook, secrets_of(hook, environ)) for hook in hooks})

    def find(self, clog_id: str, name: str) -> tuple[Webhook | None, tuple[bytes, ...]]:
        """Return a webhook and its secrets, or None and a secret that fits nothing."""
        return self.known.get((clog_id, name), (None, NO_SECRET))


def webhook_route(webhooks: WebhookTable, server: ServerState, poker: Poker | None) -> EscapedPathRoute:
    """Return the route that all webhooks share."""
    return EscapedPathRoute(HOOKS, _endpoint(webhooks, server, poker), methods=["POST"])


def _endpoint(
    webhooks: WebhookTable, server: ServerState, poker: Poker | None
) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        request.scope["ocean.route"] = HOOKS
        hook, active = webhooks.find(request.path_params["clog_id"], request.path_params["name"])
        try:
            received = await _received(hook, active, server, request)
            response: Response = JsonResponse(record(received))
        except ClientDisconnect:
            raise
        except Exception as error:
            errors = hook.errors if hook else None
            response = clog_error_response(errors, error, incoming_of(server, request), request)
            if not isinstance(error, CallRefused):
                return response
        if poker is not None:
            response.background = BackgroundTask(poker)
        return response

    return respond


async def _received(hook: Webhook | None, active: tuple[bytes, ...], server: ServerState, request: Request) -> Received:
    """Check the signature and call the handler.

    Until the signature is verified, an existing webhook and a missing one are treated alike.
    """
    headers = request.headers
    signed = read_signed(
        headers.getlist(WEBHOOK_ID),
        headers.getlist(WEBHOOK_TIMESTAMP),
        headers.getlist(WEBHOOK_SIGNATURE),
        server.ocean.clock.now(),
    )
    body = await read_bytes(request, MAX_BYTES)
    check_signature(signed, body, active)
    if hook is None:
        raise unknown_sender()
    if len(body) > hook.most_bytes:
        raise BodyTooLarge(f"the body must be at most {hook.most_bytes} bytes", most_bytes=hook.most_bytes)
    delivery = Delivery(signed.id, parse_json(body), signed.sent_at)
    return await server.ocean.receive_webhook(hook.clog_id, hook.name, delivery)
