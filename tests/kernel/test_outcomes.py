"""The outcomes that a handler may return, and the form of errors."""

from typing import Any

import pytest

from ocean.state.errors import Abort, InvalidValue, OceanError, Refuse
from ocean.state.outcomes import (
    Continue,
    Done,
    ErrorInfo,
    Failed,
    Ok,
    Outcome,
    Retry,
    Wait,
    error_info,
    outcome_name,
)

NOW = 1_700_000_000_000


class Quota(OceanError):
    code = "quota"


class Numbered(Exception):
    code = 404


ERRORS: dict[str, tuple[Any, ErrorInfo]] = {
    "a text": ("no", ErrorInfo("failed", "no")),
    "an ErrorInfo": (ErrorInfo("x", "y", [1]), ErrorInfo("x", "y", [1])),
    "code and message": ({"code": "x", "message": "y"}, ErrorInfo("x", "y")),
    "code, message and details": ({"code": "x", "message": "y", "details": {"n": 1}}, ErrorInfo("x", "y", {"n": 1})),
    "an exception": (ValueError("bad"), ErrorInfo("exception", "ValueError: bad")),
    "an exception without a text": (KeyError(), ErrorInfo("exception", "KeyError")),
    "an exception with a code": (Quota("full", left=0), ErrorInfo("quota", "Quota: full", {"left": 0})),
    "an exception whose code is no text": (Numbered("bad"), ErrorInfo("exception", "Numbered: bad")),
    "an Abort": (Abort("stop", code="halt", details=[1]), ErrorInfo("halt", "Abort: stop", [1])),
    "a Refuse": (Refuse("not you", code="role"), ErrorInfo("role", "Refuse: not you")),
    "a text that cannot be stored": (
        ValueError("a\x00b" + chr(0xD800)),
        ErrorInfo("exception", "ValueError: a\\0b?"),
    ),
}


@pytest.mark.parametrize(("error", "expected"), ERRORS.values(), ids=ERRORS)
def test_an_error_has_code_message_and_details(error: Any, expected: ErrorInfo) -> None:
    assert error_info(error) == expected


def test_a_text_gets_the_code_the_caller_names() -> None:
    assert error_info("no", "nope") == ErrorInfo("nope", "no")


def test_a_long_exception_is_cut() -> None:
    assert len(error_info(ValueError("x" * 10_000)).message) == len("ValueError: ") + 4_000


def test_an_error_as_json_always_has_its_three_fields() -> None:
    assert error_info("no").as_json() == {"code": "failed", "message": "no", "details": None}


NO_ERRORS: list[Any] = [
    None,
    7,
    [],
    {},
    {"code": "x"},
    {"message": "y"},
    {"code": 1, "message": "y"},
    {"code": "x", "message": None},
    {"code": "x", "message": "y", "extra": 1},
]


@pytest.mark.parametrize("outcome", [Retry, Failed])
@pytest.mark.parametrize("error", NO_ERRORS, ids=repr)
def test_an_outcome_refuses_an_invalid_error(outcome: type[Retry | Failed], error: Any) -> None:
    with pytest.raises(InvalidValue, match=r"an error must be a text or \{code, message, details\?\}"):
        outcome(error)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "either until=<ms since 1970> or for_ms=<ms>; to wait for a signal, return Ok"),
        ({"until": NOW, "for_ms": 1}, "either until"),
        ({"until": -1}, "Wait must be milliseconds"),
        ({"until": 1.5}, "Wait must be milliseconds"),
        ({"until": True}, "Wait must be milliseconds"),
        ({"for_ms": -1}, "Wait must be milliseconds"),
        ({"for_ms": "1"}, "Wait must be milliseconds"),
    ],
    ids=repr,
)
def test_a_wait_needs_exactly_one_time_in_milliseconds(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Wait(**fields)


@pytest.mark.parametrize(
    ("wait", "wake_at"),
    [
        (Wait(until=NOW + 5), NOW + 5),
        (Wait(until=0), 0),
        (Wait(for_ms=5), NOW + 5),
        (Wait(for_ms=0), NOW),
    ],
    ids=repr,
)
def test_when_a_wait_wakes(wait: Wait, wake_at: int) -> None:
    assert wait.wake_at(NOW) == wake_at


@pytest.mark.parametrize("after_ms", [-1, 1.5, True, "1"], ids=repr)
def test_a_retry_refuses_an_invalid_delay(after_ms: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^Retry\.after_ms must be milliseconds"):
        Retry("no", after_ms=after_ms)


def test_a_retry_may_come_at_once() -> None:
    assert Retry("no", after_ms=0).after_ms == 0


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Ok(), "ok"),
        (Done(), "done"),
        (Continue(), "continue"),
        (Wait(for_ms=1), "wait"),
        (Retry("no"), "retry"),
        (Failed("no"), "failed"),
    ],
    ids=str,
)
def test_outcomes_are_named_as_the_design_names_them(outcome: Outcome, name: str) -> None:
    assert outcome_name(outcome) == name


def test_outcomes_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Done(1).output = 2  # type: ignore[misc]
