"""Redaction: hide what looks like a secret in events of tool calls, in errors and in the log. Pure.

A secret is recognised by its name (`password`, `api_key`, `Authorization`) or by its form (a bearer token, a private
key, a JWT, the keys of well-known services). Neither finds every secret; pass a `CredentialRef` instead of one.
"""

import re
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

HIDDEN = "[redacted]"
MOST_SCANNED = 65_536
MOST_TEXT = 500
MOST_ITEMS = 50
MOST_DEPTH = 8
MOST_PARTS = 400

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
PASSWORDS = ("password", "passwd", "passphrase", "pwd", "pin", "otp")
SECRET_WORDS = frozenset(
    (*PASSWORDS, "secret", "secrets", "authorization", "cookie", "credential", "credentials", "jwt")
)
LAST = frozenset(("token", "auth"))
"""Secret only as the last word of a name: `access_token` is, `token_count` is not."""
KEYS = ("api", "access", "secret", "private", "signing", "encryption", "auth", "account")
PAIRS = frozenset((*((word, "key") for word in KEYS), ("connection", "string"), ("session", "id")))
JOINED = frozenset("".join(pair) for pair in PAIRS)

WHOLE = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}-----|\Z)",
    r"\beyJ[\w-]{6,}\.[\w-]{4,}\.[\w-]*",
    r"\b(?:sk|rk|pk)[-_][\w-]{16,}",
    r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|xapp-|npm_|hf_|pypi-|whsec_|shpat_|dop_v1_)[\w-]{10,}",
    r"\b(?:AKIA|ASIA|AIDA|AROA)[0-9A-Z]{16}\b",
    r"(?<![\w/+=])(?=[a-z0-9/+]*[A-Z])(?=[A-Z0-9/+]*[a-z])(?=[A-Za-z/+]*\d)[A-Za-z0-9/+]{40}(?![\w/+=])",
    r"\bAIza[\w-]{30,}",
    r"\bya29\.[\w-]{20,}",
    r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
)
"""Private keys, JWTs, and the keys of well-known services. The pattern without a prefix is the secret key of AWS."""
SCHEME = r"(?i)\b(bearer|basic|token|digest)(\s+)(?=\S*[\d=+/_.~-])[\w.~+/=-]{8,}"
USER = r"(?<=://)[^\s/@:]{0,200}:[^\s/@]{1,200}@"
ASSIGNED = (
    r"(?i)\b((?:[\w-]{0,40}[_-])?(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|token|authorization))"
    r"([\"']?\s{0,3}[=:]\s{0,3}[\"']?)(?!\[redacted\])(?!(?:bearer|basic|token|digest)\b)[^\s\"'&,;]{3,}"
)
SHORTEST_WHOLE = 13


class SecretPattern(NamedTuple):
    """`may_be_in` is a quick test that every match passes: nearly all texts fail it, so few run the pattern."""

    pattern: re.Pattern[str]
    instead: str
    may_be_in: Callable[[str], bool]


PATTERNS = (
    SecretPattern(re.compile("|".join(WHOLE)), HIDDEN, lambda text: len(text) >= SHORTEST_WHOLE),
    SecretPattern(re.compile(SCHEME), rf"\1\2{HIDDEN}", lambda text: len(text.split(None, 1)) > 1),
    SecretPattern(re.compile(USER), f"{HIDDEN}@", lambda text: "://" in text),
    SecretPattern(re.compile(ASSIGNED), rf"\1\2{HIDDEN}", lambda text: "=" in text or ":" in text),
)


def is_secret_name(name: str) -> bool:
    """Return whether a value under this name is a secret, whatever it looks like."""
    words = [word.lower() for word in WORD.findall(name[:200]) if not word.isdigit()]
    is_last = bool(words) and words[-1] in LAST
    return is_last or not {*words}.isdisjoint(SECRET_WORDS | JOINED) or not PAIRS.isdisjoint(pairwise(words))


def looks_secret(text: str) -> bool:
    """Return whether the text contains something of the form of a secret."""
    seen = text[:MOST_SCANNED]
    return any(secret.may_be_in(seen) and secret.pattern.search(seen) for secret in PATTERNS)


def redacted_text(text: str, most: int | None = MOST_TEXT) -> str:
    """Return the text with secrets hidden, cut to `most` characters; None does not cut it."""
    shown = text if most is None else text[:MOST_SCANNED]
    for secret in PATTERNS:
        if secret.may_be_in(shown):
            shown = secret.pattern.sub(secret.instead, shown)
    return shown if most is None or len(shown) <= most else f"{shown[:most]}…"


def redacted(value: Any, known: Collection[str] = ()) -> Any:
    """Return a JSON value with secrets hidden and of a bounded size. `known` are texts that are no secrets."""
    return _Bounded(known).shown(value, 0)


class _Bounded:
    """Counts what it has shown: of a large value only a part is shown, and marked as such."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._left = MOST_PARTS

    def shown(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if isinstance(value, str):
            return redacted_text(value)
        if isinstance(value, dict):
            return self._object(value, depth) if depth < MOST_DEPTH else f"… {len(value)} names"
        if isinstance(value, list | tuple):
            return self._list(value, depth) if depth < MOST_DEPTH else f"… {len(value)} items"
        return value

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, item in self._some(value.items()):
            is_hidden = is_secret_name(name) and not self._is_no_secret(item)
            shown[redacted_text(name)] = HIDDEN if is_hidden else self.shown(item, depth + 1)
        return shown if len(shown) == len(value) else shown | {"…": f"{len(value) - len(shown)} more"}

    def _is_no_secret(self, item: Any) -> bool:
        return item is None or isinstance(item, bool) or item == "" or (isinstance(item, str) and item in self._known)

    def _list(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        shown = [self.shown(item, depth + 1) for item in self._some(value)]
        return shown if len(shown) == len(value) else [*shown, f"… {len(value) - len(shown)} more"]

    def _some(self, items: Iterable[Any]) -> Iterable[Any]:
        for index, item in enumerate(items):
            if index >= MOST_ITEMS or self._left <= 0:
                return
            yield item
