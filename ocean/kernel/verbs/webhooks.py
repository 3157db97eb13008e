"""Receiving deliveries: a webhook's handler is called as a method is, and the delivery's id is in its commit."""

from dataclasses import replace
from typing import Any

from ocean.clog.clog import Registry
from ocean.clog.webhooks import Delivery, Received, Webhook
from ocean.kernel.arguments import request_of
from ocean.kernel.direct_calls import DirectCall, answered
from ocean.kernel.invoke import invoke
from ocean.kernel.store import Store
from ocean.kernel.tick import Tick
from ocean.kernel.tick_run import Crew
from ocean.state.clock import Clock
from ocean.state.errors import CallRefused, InvalidValue, Refuse, RequestKeyReused, WebhookReplayed
from ocean.state.ids import derived_id
from ocean.state.records import Caller
from ocean.state.values import checked_id, checked_time, decode, encode, shown

KEY = "webhook\n"
"""Before the request key of a delivery: no header can hold a line's end, so nobody outside can use that key up."""


class Receiving:
    _store: Store
    _clock: Clock
    _registry: Registry
    _crew: Crew

    async def receive_webhook(self, clog_id: str, name: str, delivery: Delivery) -> Received:
        """Call a webhook's handler with a delivery whose signature has held. The same id again has no second effect."""
        if not isinstance(delivery, Delivery):
            raise InvalidValue(f"a webhook receives a Delivery, got {shown(delivery)}")
        checked_id(delivery.id, "a delivery's id")
        checked_time(delivery.sent_at, "sent_at")
        clog = self._registry.get(clog_id)
        hook = clog.find_webhook(name)
        text = encode(delivery.body, "the delivery's body")
        key = KEY + derived_id(clog_id, name, delivery.id)

        async def handle(tick: Tick, body: Any) -> Any:
            return await invoke(hook.handler, tick, replace(delivery, body=body))

        call = DirectCall(
            store=self._store,
            registry=self._registry,
            clock=self._clock,
            clog=clog,
            method=f"webhook {name}",
            run=None,
            session_id=_session(hook, delivery),
            payload=text,
            caller=Caller(f"webhook:{clog_id}/{name}"),
            request=request_of(key, "webhook", decode(text)),
            seed=key,
            reach=self._crew.reach,
            observed=self._crew.observed,
            handler=handle,
        )
        try:
            done = await call.done()
        except RequestKeyReused:
            raise WebhookReplayed(f"delivery {delivery.id!r} has come before, with another body") from None
        if done.is_repeated and hook.replays == "refuse":
            raise WebhookReplayed(f"delivery {delivery.id!r} has come before")
        return Received(answered(done.answer), done.is_repeated)


def _session(hook: Webhook, delivery: Delivery) -> str:
    """A function that reads it may refuse what it does not find."""
    if hook.session is None:
        return ""
    try:
        found = hook.session(delivery) if callable(hook.session) else hook.session
    except Refuse as refusal:
        raise CallRefused(refusal.message, refusal.code, refusal.http_status, refusal.details) from None
    return checked_id(found, f"the session of a delivery to webhook {hook.name!r}")
