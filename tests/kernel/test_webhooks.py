"""Signatures: equal to those of the reference library, strict in form, within five minutes, by any active secret."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Reference

from ocean import Clog, InvalidValue, WebhookRefused, sign_webhook
from ocean.clog.webhooks import Signed, check_signature, read_signed, secrets_of

NOW = 1_700_000_000_000
SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()
KEY = b"s" * 24
BODY = b'{"order": "o-1"}'


def signed_by(headers: dict[str, str], now: int = NOW) -> Signed:
    id, timestamp, signature = headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"]
    return read_signed([id], [timestamp], [signature], now)


@given(
    st.binary(min_size=24, max_size=64), st.text(alphabet="abcXYZ019_-", min_size=1), st.text(), st.integers(0, 2**31)
)
def test_a_signature_is_the_reference_librarys(secret: bytes, id: str, body: str, seconds: int) -> None:
    text = "whsec_" + base64.b64encode(secret).decode()
    body = body.encode("utf-8", "ignore").decode()
    headers = sign_webhook(text, id, body.encode(), sent_at=seconds * 1_000 + 999)
    sent = datetime.fromtimestamp(seconds, UTC)
    assert headers["webhook-signature"] == Reference(text).sign(id, sent, body)
    check_signature(signed_by(headers, seconds * 1_000), body.encode(), [secret])


def test_the_reference_library_takes_what_is_signed_here() -> None:
    now = int(datetime.now(UTC).timestamp() * 1_000)
    headers = sign_webhook(SECRET, "msg_1", BODY, sent_at=now)
    assert Reference(SECRET).verify(BODY, headers) == json.loads(BODY)


@pytest.mark.parametrize("off_ms", [0, 300_000, -300_000, 299_999])
def test_five_minutes_before_and_after_are_in_time(off_ms: int) -> None:
    signed_by(sign_webhook(SECRET, "m", BODY, sent_at=NOW), NOW + off_ms)


@pytest.mark.parametrize("off_ms", [300_001, -300_001, 86_400_000])
def test_more_than_five_minutes_before_or_after_is_refused(off_ms: int) -> None:
    with pytest.raises(WebhookRefused, match="within 300 s of the server's time"):
        signed_by(sign_webhook(SECRET, "m", BODY, sent_at=NOW), NOW + off_ms)


GOOD = sign_webhook(SECRET, "m", BODY, sent_at=NOW)
V1 = GOOD["webhook-signature"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook-id": ""},
        {"webhook-id": "a.b"},
        {"webhook-id": "a b"},
        {"webhook-id": "é"},
        {"webhook-id": "x" * 257},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "1700000000.0"},
        {"webhook-timestamp": "+1700000000"},
        {"webhook-timestamp": " 1700000000"},
        {"webhook-timestamp": "١٧٠٠٠٠٠٠٠٠"},
        {"webhook-timestamp": "1" * 13},
        {"webhook-signature": ""},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,===="},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1a," + V1[3:]},
        {"webhook-signature": "V1," + V1[3:]},
        {"webhook-signature": V1[3:]},
        {"webhook-signature": V1 + "  " + V1},
        {"webhook-signature": V1 + " v1,not-base64!"},
        {"webhook-signature": V1 + " nonsense"},
        {"webhook-signature": V1 + " ,nonsense"},
        {"webhook-signature": V1.replace(",", ", ")},
        {"webhook-signature": V1 + "," + V1},
    ],
    ids=str,
)
def test_a_malformed_header_is_refused_whole(wrong: dict[str, str]) -> None:
    with pytest.raises(WebhookRefused):
        signed_by(GOOD | wrong)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("count", [0, 2])
def test_each_header_comes_once(place: int, count: int) -> None:
    ids, timestamps, signatures = ([value] * (count if at == place else 1) for at, value in enumerate(GOOD.values()))
    with pytest.raises(WebhookRefused, match=f"got {count}"):
        read_signed(ids, timestamps, signatures, NOW)


def test_other_versions_are_ignored_and_one_valid_signature_is_enough() -> None:
    other = sign_webhook(SECRET, "m", b"other", sent_at=NOW)["webhook-signature"]
    signed = signed_by(GOOD | {"webhook-signature": f"v1a,whatever {other} {V1} v2,"})
    check_signature(signed, BODY, [KEY])


@pytest.mark.parametrize(
    ("headers", "body", "secrets"),
    [
        (GOOD, BODY + b" ", [KEY]),
        (GOOD, BODY, [b"t" * 24]),
        (GOOD, BODY, []),
        (GOOD | {"webhook-id": "n"}, BODY, [KEY]),
        (GOOD | {"webhook-timestamp": "1700000001"}, BODY, [KEY]),
    ],
)
def test_a_signature_of_something_else_is_refused(headers: Any, body: bytes, secrets: list[bytes]) -> None:
    with pytest.raises(WebhookRefused, match="there is no such webhook, or none of its secrets"):
        check_signature(signed_by(headers), body, secrets)


def test_any_active_secret_is_enough() -> None:
    check_signature(signed_by(GOOD), BODY, [b"t" * 24, KEY, b"u" * 24])


async def handler(tick: Any, delivery: Any) -> None: ...


def hooked(secrets: Any) -> Clog:
    clog = Clog("till")
    clog.webhook("paid", secrets=secrets)(handler)
    return clog


def test_secrets_come_from_the_environment_several_at_a_time() -> None:
    unpadded = "whsec_" + base64.b64encode(b"t" * 25).decode().rstrip("=")
    hook = hooked(["env:ONE", "env:OTHER"]).webhooks["paid"]
    assert secrets_of(hook, {"ONE": f"{SECRET} {unpadded}", "OTHER": SECRET}) == (KEY, b"t" * 25, KEY)


@pytest.mark.parametrize("environ", [{}, {"PAID": ""}, {"PAID": "  "}])
def test_the_error_for_a_missing_secret_names_its_variable(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match="environment variable PAID must be set: webhook 'paid' of clog 'till'"):
        secrets_of(hooked("env:PAID").webhooks["paid"], environ)
    with pytest.raises(InvalidValue, match="environment variable PAID must be set: "):
        secrets_of(hooked(["env:OTHER", "env:PAID"]).webhooks["paid"], {"OTHER": SECRET} | environ)


@pytest.mark.parametrize(
    "secret",
    ["hunter2hunter2hunter2hunter2hunter2", "whsec_hunter2", "whsec_" + base64.b64encode(b"x" * 65).decode(),
     "whsec_hunter2!" * 3, "WHSEC_" + SECRET[6:]],
)  # fmt: skip
def test_the_error_for_an_invalid_secret_does_not_show_it(secret: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        secrets_of(hooked("env:PAID").webhooks["paid"], {"PAID": secret})
    assert "PAID must be a webhook secret" in refusal.value.message
    assert secret not in f"{refusal.value!r}{refusal.value.__cause__!r}"


@pytest.mark.parametrize("secrets", [SECRET, "", [], ["env:PAID", SECRET], b"env:PAID", [b"x"], "env:", "env:A B"])
def test_a_secret_in_the_code_is_refused_and_not_shown(secrets: Any) -> None:
    with pytest.raises(InvalidValue) as refusal:
        hooked(secrets)
    assert "secrets must name environment variables" in refusal.value.message
    assert SECRET not in refusal.value.message


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"name": "a/b"}, "the name must be up to 64"),
        ({"name": ""}, "the name must be up to 64"),
        ({"most_bytes": 0}, "most_bytes"),
        ({"most_bytes": 2**21}, "most_bytes"),
        ({"replays": "maybe"}, "replays"),
        ({"session": ""}, "session"),
    ],
)
def test_an_invalid_webhook_is_refused_when_it_is_registered(options: dict[str, Any], part: str) -> None:
    given: dict[str, Any] = {"name": "paid", "secrets": "env:PAID"} | options
    with pytest.raises(InvalidValue, match=part):
        Clog("till").webhook(given.pop("name"), **given)(handler)


def test_two_webhooks_of_one_name_are_refused() -> None:
    clog = hooked("env:PAID")
    with pytest.raises(InvalidValue, match="got 'paid' twice"):
        clog.webhook("paid", secrets="env:PAID")(handler)
