"""Signed deliveries, by the Standard Webhooks specification: their format, and the check of the signature.

The signature is an HMAC-SHA-256 of `id.timestamp.body` with a shared secret. The body is not parsed before the
signature has been verified. A malformed header is refused; there is no older scheme to fall back to.
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
"""Without a full stop: with one, an id and a timestamp would be ambiguous."""
TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
VARIABLE = re.compile(rf"{ENVIRONMENT}[A-Za-z_][A-Za-z0-9_]*")

Replays = Literal["answer", "refuse"]
SessionOf = str | Callable[["Delivery"], str]
"""A session, or a function that reads it from a delivery."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A signed delivery: `id` is the same in every attempt of the sender, `sent_at` is the time of this attempt."""

    id: str
    body: Any
    sent_at: int


@dataclass(frozen=True, slots=True)
class Received:
    """The answer of a webhook's handler; if `replayed`, to the first delivery with this id."""

    answer: Any
    replayed: bool


@dataclass(frozen=True, slots=True, eq=False)
class Webhook:
    """A registered webhook. `variables` are the environment variables with its secrets."""

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
        raise InvalidValue(f"{what}: the name must be up to 64 of A-Z a-z 0-9 . _ ~ -")
    named = [secrets] if isinstance(secrets, str) else [*secrets]
    if not named or not all(isinstance(each, str) and VARIABLE.fullmatch(each) for each in named):
        # The argument may be a secret, so it is not shown.
        raise InvalidValue(f"{what}: secrets must name environment variables, as 'env:PAID_SECRET'")
    variables = tuple(each.removeprefix(ENVIRONMENT) for each in named)
    if session is not None and not callable(session):
        checked_id(session, f"session of {what}")
    checked_count(most_bytes, f"most_bytes of {what}", least=1, most=MAX_BYTES)
    checked_choice(replays, f"replays of {what}", ("answer", "refuse"))
    return Webhook(clog_id, name, handler, variables, session, most_bytes, replays, errors)


def secrets_of(hook: Webhook, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return all valid secrets; a variable may have several while one replaces another."""
    found: list[bytes] = []
    for variable in hook.variables:
        texts = environ.get(variable, "").split()
        if not texts:
            what = f"webhook {hook.name!r} of clog {hook.clog_id!r}"
            raise InvalidValue(f"environment variable {variable} must be set: {what} has its secret there")
        found += [_secret(text, variable) for text in texts]
    return tuple(found)


def _secret(text: str, what: str) -> bytes:
    """Decode a secret. Its text is in no message."""
    encoded = text.removeprefix(SECRET)
    try:
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(SECRET) or not FEWEST_BYTES <= len(secret) <= MOST_BYTES:
        raise InvalidValue(
            f"{what} must be a webhook secret: {SECRET} and {FEWEST_BYTES} to {MOST_BYTES} bytes as base64"
        )
    return secret


@dataclass(frozen=True, slots=True)
class Signed:
    """The headers of a delivery. They are unverified until `check_signature` has passed."""

    id: str
    timestamp: str
    signatures: tuple[bytes, ...] = field(repr=False)

    @property
    def sent_at(self) -> int:
        return int(self.timestamp) * 1_000


def read_signed(ids: Collection[str], timestamps: Collection[str], signatures: Collection[str], now: int) -> Signed:
    """Read the headers: each once and well formed, and the time within five minutes of ours, before or after."""
    id, timestamp, signature = (
        _one(WEBHOOK_ID, ids),
        _one(WEBHOOK_TIMESTAMP, timestamps),
        _one(WEBHOOK_SIGNATURE, signatures),
    )
    if not ID.fullmatch(id):
        raise WebhookRefused(f"{WEBHOOK_ID} must be up to 256 visible characters of ASCII, without a full stop")
    if not TIMESTAMP.fullmatch(timestamp):
        raise WebhookRefused(f"{WEBHOOK_TIMESTAMP} must be whole seconds since 1970 in digits")
    signed = Signed(id, timestamp, tuple(_signatures(signature)))
    if abs(now - signed.sent_at) > TOLERANCE_MS:
        raise WebhookRefused(f"{WEBHOOK_TIMESTAMP} must be within {TOLERANCE_MS // 1_000} s of the server's time")
    return signed


def _one(name: str, values: Collection[str]) -> str:
    if len(values) != 1:
        raise WebhookRefused(f"a delivery must have one {name} header, got {len(values)}")
    return next(iter(values))


def _signatures(text: str) -> Iterable[bytes]:
    found = []
    for part in text.split(" "):
        version, comma, encoded = part.partition(",")
        if not version or not comma:
            raise WebhookRefused(f"{WEBHOOK_SIGNATURE} must be v1,<base64>, several separated by spaces")
        if version == "v1":
            found.append(_digest(encoded))
    if not found:
        raise WebhookRefused(f"{WEBHOOK_SIGNATURE} must have a v1 signature")
    return found


def _digest(encoded: str) -> bytes:
    try:
        digest = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise WebhookRefused(f"a v1 signature in {WEBHOOK_SIGNATURE} must be an HMAC-SHA-256 as base64")
    return digest


def check_signature(signed: Signed, body: bytes, secrets: Iterable[bytes]) -> None:
    """Raise `WebhookRefused` unless a secret made one of the signatures.

    Every secret is compared with every signature, so that the time taken reveals nothing.
    """
    is_valid = False
    for secret in secrets:
        made = _signature(secret, signed.id, signed.timestamp, body)
        for signature in signed.signatures:
            is_valid |= hmac.compare_digest(made, signature)
    if not is_valid:
        raise unknown_sender()


def unknown_sender() -> WebhookRefused:
    """Return the error, which is the same whether there is such a webhook or not."""
    return WebhookRefused("there is no such webhook, or none of its secrets made this signature")


def _signature(secret: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(secret, f"{id}.{timestamp}.".encode() + body, "sha256")


def sign_webhook(secret: str, id: str, body: bytes, *, sent_at: int) -> dict[str, str]:
    """Return the three headers of a delivery, for senders and tests; `sent_at` is in milliseconds."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        raise InvalidValue(f"a {WEBHOOK_ID} must be up to 256 visible characters of ASCII, without a full stop")
    timestamp = str(checked_time(sent_at, "sent_at") // 1_000)
    digest = _signature(_secret(secret, "the secret"), id, timestamp, body)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {WEBHOOK_ID: id, WEBHOOK_TIMESTAMP: timestamp, WEBHOOK_SIGNATURE: signature}
