"""Ids: UUIDv7 for what callers create, derived UUIDs for what a tick creates."""

import base64
import hashlib
import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class RandomSource(Protocol):
    """The source of random bits for ids."""

    def getrandbits(self, k: int, /) -> int: ...


_random: RandomSource = secrets.SystemRandom()


@contextmanager
def drawing_from(source: RandomSource) -> Iterator[None]:
    """Use another source inside the block: a simulation gets the same ids again from its seed."""
    global _random
    before, _random = _random, source
    try:
        yield
    finally:
        _random = before


def _random_hex(size: int) -> str:
    return f"{_random.getrandbits(8 * size):0{2 * size}x}"


def _random_text(size: int) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(_random_hex(size))).rstrip(b"=").decode()


class IdSource:
    """Creates UUIDv7 that are increasing within one process, even within one millisecond."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def new(self, now_ms: int) -> str:
        with self._lock:
            if now_ms > self._last >> 74:
                self._last = (now_ms << 74) | _random.getrandbits(74)
            else:
                self._last += 1 + _random.getrandbits(32)
            stamp, random = self._last >> 74, self._last & ((1 << 74) - 1)
        value = (stamp << 80) | (0x7 << 76) | ((random >> 62) << 64) | (0b10 << 62) | (random & ((1 << 62) - 1))
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def derived_id(*parts: str | int) -> str:
    """Return the same id for the same parts, so that every call of a tick gets the same ids."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=16).digest()
    return str(uuid.UUID(bytes=digest, version=5))


def even_roll(*parts: str | int) -> float:
    """Return a number in [0, 1) derived from its parts and evenly spread: jitter without a random source."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def new_lease_id() -> str:
    """Return an id that is also a secret: knowing it is the right to renew and complete."""
    return f"lease_{_random_text(24)}"


def new_api_key() -> tuple[str, str]:
    """Return the public id of a new key, and the whole key, which contains the id."""
    key_id = _random_hex(6)
    return key_id, f"ocean_{key_id}_{_random_text(32)}"


def new_web_token() -> str:
    return _random_text(32)


def instance_id() -> str:
    """Return a new id per process start: a process that reused its id after a restart would adopt its old locks."""
    return f"i-{_random_hex(6)}"


def new_token() -> str:
    """Return the name of one attempt to change something, by which its result can be looked up."""
    return _random_hex(12)
