"""Ids: UUIDv7 for what the outside makes, derived UUIDs for what a tick hands out."""

import base64
import hashlib
import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Chance(Protocol):
    """Where ids get what cannot be guessed."""

    def getrandbits(self, k: int, /) -> int: ...


_chance: Chance = secrets.SystemRandom()


@contextmanager
def drawing_from(chance: Chance) -> Iterator[None]:
    """Inside the block ids are drawn from another source: a simulation draws the same ones again from its seed."""
    global _chance
    before, _chance = _chance, chance
    try:
        yield
    finally:
        _chance = before


def _random_hex(size: int) -> str:
    return f"{_chance.getrandbits(8 * size):0{2 * size}x}"


def _random_text(size: int) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(_random_hex(size))).rstrip(b"=").decode()


class IdSource:
    """UUIDv7 that never go backwards within one process, even within one millisecond."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def new(self, now_ms: int) -> str:
        with self._lock:
            if now_ms > self._last >> 74:
                self._last = (now_ms << 74) | _chance.getrandbits(74)
            else:
                self._last += 1 + _chance.getrandbits(32)
            stamp, random = self._last >> 74, self._last & ((1 << 74) - 1)
        value = (stamp << 80) | (0x7 << 76) | ((random >> 62) << 64) | (0b10 << 62) | (random & ((1 << 62) - 1))
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def derived_id(*parts: str | int) -> str:
    """The same id for the same parts, so that every call of a tick hands out the same ids."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=16).digest()
    return str(uuid.UUID(bytes=digest, version=5))


def even_roll(*parts: str | int) -> float:
    """A number in [0, 1) spread evenly over its parts: jitter without a random source."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def new_lease_id() -> str:
    """A name and a secret in one: knowing it is the right to renew and complete."""
    return f"lease_{_random_text(24)}"


def new_api_key() -> tuple[str, str]:
    """Its public id, and the whole key, which says the id so that it can be looked up."""
    key_id = _random_hex(6)
    return key_id, f"ocean_{key_id}_{_random_text(32)}"


def new_web_token() -> str:
    return _random_text(32)


def instance_id() -> str:
    """Random per process start: an id that is reused after a restart would adopt its own old locks."""
    return f"i-{_random_hex(6)}"


def new_token() -> str:
    """Names one attempt to change something, so that its fate can be asked for."""
    return _random_hex(12)
