"""Signed deliveries, as Standard Webhooks has them: who sent it, when, and that it is no other's.

The signature is an HMAC-SHA-256 of `id.timestamp.body` by a secret that both sides know. Nothing of the body is looked
at before it holds, and a header that is malformed is refused whole: there is no older way to fall back to.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ocean.kernel.arguments import checked_choice, checked_count
from ocean.state.errors import InvalidValue, WebhookRefused
from ocean.state.values import MAX_BYTES, checked_id, checked_time, shown

WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
SECRET = "whsec_"
ENVIRONMENT = "env:"
FEWEST_BYTES, MOST_BYTES = 24, 64
TOLERANCE_MS = 300_000
NAME = re.compile(r"[A-Za-z0-9._~-]{1,64}")
ID = re.compile(r"[!-\-/-~]{1,256}")
"""Without a full stop: with one in it, an id and a time could be read in two ways."""
TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
VARIABLE = re.compile(rf"{ENVIRONMENT}[A-Za-z_][A-Za-z0-9_]*")

Replays = Literal["answer", "refuse"]
SessionOf = str | Callable[["Delivery"], str]
"""A session, or how it is read from a delivery."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a sender has signed: `id` is the same whenever it comes again, `sent_at` is of this attempt."""

    id: str
    body: Any
    sent_at: int


@dataclass(frozen=True, slots=True)
class Received:
    """What a webhook's handler answered; if `replayed`, to the first of these deliveries."""

    answer: Any
    replayed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Webhook:
    """`variables` are the environment's, and hold the secrets."""

    clog_id: str
    name: str
    handler: Callable[..., Any]
    variables: tuple[str, ...]
    session: SessionOf | None
    most_bytes: int
    replays: Replays
    errors: Callable[..., Any] | None


def new_webhook(
    clog_id: str,
    name: str,
    handler: Callable[..., Any],
    secrets: str | Collection[str],
    session: SessionOf | None,
    most_bytes: int,
    replays: Replays,
    errors: Callable[..., Any] | None,
) -> Webhook:
    what = f"webhook {shown(name)} of clog {clog_id!r}"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidValue(f"{what}: a name is up to 64 of A-Z a-z 0-9 . _ ~ -")
    named = [secrets] if isinstance(secrets, str) else [*secrets]
    if not named or not all(isinstance(each, str) and VARIABLE.fullmatch(each) for each in named):
        # What was given may be a secret: it is not shown.
        raise InvalidValue(f"{what}: secrets name environment variables, as 'env:PAID_SECRET'")
    variables = tuple(each.removeprefix(ENVIRONMENT) for each in named)
    if session is not None and not callable(session):
        checked_id(session, f"session of {what}")
    checked_count(most_bytes, f"most_bytes of {what}", least=1, most=MAX_BYTES)
    checked_choice(replays, f"replays of {what}", ("answer", "refuse"))
    return Webhook(clog_id, name, handler, variables, session, most_bytes, replays, errors)


def secrets_of(hook: Webhook, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Every secret that is good now; a variable may hold several while one is replaced by the next."""
    found: list[bytes] = []
    for variable in hook.variables:
        texts = environ.get(variable, "").split()
        if not texts:
            what = f"webhook {hook.name!r} of clog {hook.clog_id!r}"
            raise InvalidValue(f"the environment has no {variable}, where {what} has its secret")
        found += [_secret(text, variable) for text in texts]
    return tuple(found)


def _secret(text: str, what: str) -> bytes:
    """The text itself is in no message."""
    encoded = text.removeprefix(SECRET)
    try:
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(SECRET) or not FEWEST_BYTES <= len(secret) <= MOST_BYTES:
        raise InvalidValue(
            f"{what} holds no webhook secret: {SECRET} and {FEWEST_BYTES} to {MOST_BYTES} bytes as base64"
        )
    return secret


@dataclass(frozen=True, slots=True)
class Signed:
    """What the headers of a delivery say. Nothing of it is true until `check_signature` has held."""

    id: str
    timestamp: str
    signatures: tuple[bytes, ...] = field(repr=False)

    @property
    def sent_at(self) -> int:
        return int(self.timestamp) * 1_000


def read_signed(ids: Collection[str], timestamps: Collection[str], signatures: Collection[str], now: int) -> Signed:
    """Each header once and well formed, and the time within five minutes of ours, before or after."""
    id, timestamp, signature = (
        _one(WEBHOOK_ID, ids),
        _one(WEBHOOK_TIMESTAMP, timestamps),
        _one(WEBHOOK_SIGNATURE, signatures),
    )
    if not ID.fullmatch(id):
        raise WebhookRefused(f"{WEBHOOK_ID} is up to 256 visible characters of ASCII, without a full stop")
    if not TIMESTAMP.fullmatch(timestamp):
        raise WebhookRefused(f"{WEBHOOK_TIMESTAMP} is whole seconds since 1970 in digits")
    signed = Signed(id, timestamp, tuple(_signatures(signature)))
    if abs(now - signed.sent_at) > TOLERANCE_MS:
        raise WebhookRefused(f"{WEBHOOK_TIMESTAMP} is more than {TOLERANCE_MS // 1_000} s from the time here")
    return signed


def _one(name: str, values: Collection[str]) -> str:
    if len(values) != 1:
        raise WebhookRefused(f"a delivery has one {name} header, got {len(values)}")
    return next(iter(values))


def _signatures(text: str) -> Iterable[bytes]:
    found = []
    for part in text.split(" "):
        version, comma, encoded = part.partition(",")
        if not version or not comma:
            raise WebhookRefused(f"{WEBHOOK_SIGNATURE} is v1,<base64>, several with spaces between")
        if version == "v1":
            found.append(_digest(encoded))
    if not found:
        raise WebhookRefused(f"{WEBHOOK_SIGNATURE} has no v1 signature")
    return found


def _digest(encoded: str) -> bytes:
    try:
        digest = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise WebhookRefused(f"a v1 signature in {WEBHOOK_SIGNATURE} is no HMAC-SHA-256 as base64")
    return digest


def check_signature(signed: Signed, body: bytes, secrets: Iterable[bytes]) -> None:
    """Every secret and every signature is compared, whatever holds before: the time taken tells nothing."""
    holds = False
    for secret in secrets:
        made = _signature(secret, signed.id, signed.timestamp, body)
        for signature in signed.signatures:
            holds |= hmac.compare_digest(made, signature)
    if not holds:
        raise unknown_sender()


def unknown_sender() -> WebhookRefused:
    """The same words whether there is such a webhook or not."""
    return WebhookRefused("there is no such webhook, or none of its secrets made this signature")


def _signature(secret: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(secret, f"{id}.{timestamp}.".encode() + body, "sha256")


def sign_webhook(secret: str, id: str, body: bytes, *, sent_at: int) -> dict[str, str]:
    """The three headers of a delivery, for senders and for tests; `sent_at` is in milliseconds."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        raise InvalidValue(f"a {WEBHOOK_ID} is up to 256 visible characters of ASCII, without a full stop")
    timestamp = str(checked_time(sent_at, "sent_at") // 1_000)
    digest = _signature(_secret(secret, "the secret"), id, timestamp, body)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {WEBHOOK_ID: id, WEBHOOK_TIMESTAMP: timestamp, WEBHOOK_SIGNATURE: signature}
