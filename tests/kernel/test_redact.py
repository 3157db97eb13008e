"""What looks like a secret is hidden, other text is shown, and a large value is shown in part."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ocean import CredentialRef, InvalidValue, redacted
from ocean.state.outcomes import error_info
from ocean.state.redact import HIDDEN, MOST_TEXT, PATTERNS, is_secret_name, looks_secret, redacted_text
from ocean.tools.credentials import Scrubber

JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".sflKxwRJSMeKKF2QT4"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY"

SECRETS = {
    "a bearer token": ("Authorization: Bearer abcdef-123456", "abcdef-123456"),
    "basic access": ("basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
    "a model's key": ("key sk-proj-abcdefghijklmnopqrst used", "sk-proj"),
    "a payment key": ("sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "4eC39"),
    "a code host's token": ("ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F"),
    "a chat token": ("xoxb-" + "123456789012-abcdefGHIJ", "123456789012"),
    "a JWT": (f"cookie={JWT};", "sflKxw"),
    "an AWS key id": ("AKIA" + "IOSFODNN7EXAMPLE", "IOSFODNN7"),
    "an AWS secret": (f"aws {AWS_SECRET} end", "wJalrXUtnFEMI"),
    "a Google key": ("AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "SyD-9tSrke"),
    "a private key": (f"have {PEM} now", "MIIEpAIB"),
    "a private key that is cut off": ("-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA", "MIIEpAIB"),
    "a password in a URL": ("postgresql://ada:hunter22@db/x", "hunter22"),
    "a token in a query": ("https://x.example/?access_token=abc123&n=1", "abc123"),
    "an assignment": ("DB_PASSWORD=hunter22", "hunter22"),
    "JSON in a text": ('{"api_key": "hunter22"}', "hunter22"),
}
HARMLESS = [
    "the token count is 512",
    "basic english lesson",
    "the bearer arrived at noon",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "0190c8a0-7e2b-7000-8000-000000000001",
    "https://example.com/a?page=2",
    "risk-averse-but-otherwise-fine-people",
    "task-management-is-hard-for-everyone",
]


PIECES = [
    *(text for text, _ in SECRETS.values()),
    "hf_0123456789",
    "token",
    "bearer",
    "a=",
    ": ",
    "://",
    "\u2003",
    " ",
    "x" * 9,
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=4).map("".join))
@example("hf_0123456789")
@example("token\u20031abcdefg")
@example("x://:y@")
@example("pwd:abc")
@example("pwd=abc")
def test_the_quick_check_never_misses_what_a_pattern_would_find(text: str) -> None:
    shown = text
    for secret in PATTERNS:
        assert secret.may_be_in(shown) or not secret.pattern.search(shown)
        shown = secret.pattern.sub(secret.instead, shown)
    assert redacted_text(text, None) == shown


@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=SECRETS)
def test_a_text_is_shown_without_the_secret_in_it(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redacted_text(text)
    assert HIDDEN in redacted_text(text)
    assert looks_secret(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_text_that_is_no_secret_stays(text: str) -> None:
    assert redacted_text(text) == text
    assert not looks_secret(text)


NAMES = (
    "password",
    "userPassword",
    "apiKey",
    "API_KEY",
    "x-api-key",
    "accessToken",
    "token",
    "Authorization",
    "cookie",
)
LONG_NAMES = ("clientSecret", "AWSSecretAccessKey", "private_key_pem", "db_pwd", "refresh_token", "connectionString")
OTHER_NAMES = ("author", "max_tokens", "tokens", "token_count", "key", "keyboard", "pinned", "monkey", "secretary")
HOSTILE = (
    *("sk-" * 30_000, "eyJ" * 30_000, "://" * 30_000, 'token="' * 15_000, "bearer " * 15_000, "A1b" * 30_000),
    *("-----BEGIN PRIVATE KEY-----" * 3_000, "a_" * 50_000, "a1B/" * 25_000, " " * 100_000, "token" + " " * 90_000),
)


@pytest.mark.parametrize("name", [*NAMES, *LONG_NAMES])
def test_a_secret_is_recognised_by_its_name(name: str) -> None:
    assert is_secret_name(name)
    assert redacted({name: "hunter22"}) == {name: HIDDEN}
    assert redacted({name: {"in": ["hunter22"]}}) == {name: HIDDEN}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_are_not_those_of_secrets(name: str) -> None:
    assert redacted({name: "plain"}) == {name: "plain"}


def test_nothing_is_hidden_without_a_secret() -> None:
    empty: dict[str, Any] = {"password": None, "token": "", "secret": False}
    assert redacted(empty) == empty


def test_secrets_are_found_deep_in_lists_objects_and_names() -> None:
    value = {"a": [{"headers": {"X-Api-Key": "hunter22"}}, "Bearer abcdef-123456"], "sk-abcdefghijklmnopqrst": 1}
    assert redacted(value) == {
        "a": [{"headers": {"X-Api-Key": HIDDEN}}, f"Bearer {HIDDEN}"],
        HIDDEN: 1,
    }


def test_a_large_value_is_shown_in_part() -> None:
    deep: Any = "end"
    for _ in range(60):
        deep = [deep]
    value = {"long": "x" * 10_000, "many": list(range(10_000)), "deep": deep, "wide": {str(n): n for n in range(999)}}
    shown = redacted(value)
    assert len(json.dumps(shown)) < 10_000
    assert shown["long"] == "x" * MOST_TEXT + "…"
    assert shown["many"][-1] == "… 9950 more"
    assert shown["wide"]["…"] == "949 more"
    assert "end" not in json.dumps(shown["deep"])


def test_a_secret_is_not_cut_before_it_is_found() -> None:
    text = "x" * (MOST_TEXT - 10) + " sk-abcdefghijklmnopqrstuvwxyz"
    assert "sk-" not in redacted_text(text)


def test_a_bounded_tree_of_lists_is_bounded_as_a_whole() -> None:
    value = [[[n] * 40 for n in range(40)] for _ in range(40)]
    assert len(json.dumps(redacted(value))) < 20_000


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
def test_hostile_texts_are_scanned_once(text: str) -> None:
    """A pattern with backtracking would take minutes."""
    assert len(redacted_text(text, None)) <= 2 * len(text)


def test_the_text_of_an_exception_is_stored_without_secrets() -> None:
    info = error_info(RuntimeError("401 for Bearer abcdef-123456"))
    assert info.message == f"RuntimeError: 401 for Bearer {HIDDEN}"


def test_a_credential_shows_its_name_and_never_its_value() -> None:
    with pytest.raises(InvalidValue, match="looks like the value itself") as refused:
        CredentialRef("sk-abcdefghijklmnopqrst")
    assert "abcdefgh" not in str(refused.value)
    for wrong in ("", "has space", "1st", "x" * 65, 7):
        with pytest.raises(InvalidValue, match="a credential's name must be like 'mail'"):
            CredentialRef(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "form",
    [
        "s3cr3t/pa ss\nline two of the value",
        "s3cr3t/pa ss\\nline two of the value",
        "czNjcjN0L3BhIHNzCmxpbmUgdHdvIG9mIHRoZSB2YWx1ZQ==",
        "s3cr3t/pa%20ss%0Aline%20two%20of%20the%20value",
        "s3cr3t%2Fpa+ss%0Aline+two+of+the+value",
        "733363723374",
        "line two of the value",
    ],
)
def test_a_value_is_taken_out_in_the_usual_encodings(form: str) -> None:
    value = "s3cr3t/pa ss\nline two of the value"
    form = value.encode().hex() if form == "733363723374" else form
    scrubbed = Scrubber({"db": value}).value({"a": [f"<{form}>", 7, None], f"k{form}": True})
    assert scrubbed == {"a": ["<[credential db]>", 7, None], "k[credential db]": True}


def test_a_value_of_digits_is_taken_out_of_numbers_too() -> None:
    assert Scrubber({"pin": "4711"}).value([4711, 12, 0.4711]) == ["[credential pin]", 12, "0.[credential pin]"]
