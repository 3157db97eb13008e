"""The verb that receives webhooks: the handler is called like a method, and its commit contains the delivery's id."""

from dataclasses import replace
from typing import Any

from ocean.clog.clog import Registry
from ocean.clog.webhooks import Delivery, Received, Webhook
from ocean.kernel.arguments import request_of
from ocean.kernel.direct_calls import DirectCall, answer_from
from ocean.kernel.invoke import invoke
from ocean.kernel.runtime import Runtime
from ocean.kernel.store import Store
from ocean.kernel.tick import Tick
from ocean.state.clock import Clock
from ocean.state.errors import CallRefused, InvalidValue, Refuse, RequestKeyReused, WebhookReplayed
from ocean.state.ids import derived_id
from ocean.state.records import Caller
from ocean.state.values import checked_id, checked_time, decode, encode, shown

KEY = "webhook\n"
"""The prefix of a delivery's request key. A header cannot contain a line break, so no request can use such a key."""


class WebhookVerbs:
    _store: Store
    _clock: Clock
    _registry: Registry
    _runtime: Runtime

    async def receive_webhook(self, clog_id: str, name: str, delivery: Delivery) -> Received:
        """Call a webhook's handler with a delivery whose signature was checked. The same id has no second effect."""
        if not isinstance(delivery, Delivery):
            raise InvalidValue(f"delivery must be a Delivery, got {shown(delivery)}")
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
            reach=self._runtime.reach,
            observed=self._runtime.observed,
            handler=handle,
        )
        try:
            done = await call.done()
        except RequestKeyReused:
            raise WebhookReplayed(f"delivery {delivery.id!r} was received before, with another body") from None
        if done.is_repeated and hook.replays == "refuse":
            raise WebhookReplayed(f"delivery {delivery.id!r} was received before")
        return Received(answer_from(done.answer), done.is_repeated)


def _session(hook: Webhook, delivery: Delivery) -> str:
    """Return the session of a delivery. A function that reads it from the delivery may refuse with `Refuse`."""
    if hook.session is None:
        return ""
    try:
        found = hook.session(delivery) if callable(hook.session) else hook.session
    except Refuse as refusal:
        raise CallRefused(refusal.message, refusal.code, refusal.http_status, refusal.details) from None
    return checked_id(found, f"the session of a delivery to webhook {hook.name!r}")
