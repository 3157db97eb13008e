"""Typed text to values."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ocean import InvalidValue
from ocean.cli.parsing import attributes, duration_ms, scalar, time_at

NOW = 1_700_000_000_000


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nine hours east of UTC."""
    monkeypatch.setenv("TZ", "EAST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-15T07:13:20+09:00", NOW),
        ("10m", NOW + 600_000),
        (" 2w ", NOW + 1_209_600_000),
    ],
)
def test_a_time_without_an_offset_is_utc(text: str, at: int) -> None:
    assert time_at(text, "--at", NOW, ago=False) == at


def test_a_duration_is_ago_in_filters() -> None:
    assert time_at("10m", "--created-since", NOW, ago=True) == NOW - 600_000


@pytest.mark.parametrize("text", ["", "10", "-5s", "1.5h", "5 s", "5S", "1h30m", "9" * 13 + "s"])
def test_a_duration_has_digits_and_a_unit(text: str) -> None:
    with pytest.raises(InvalidValue, match="--budget must be a duration such as 500ms"):
        duration_ms(text, "--budget")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1.5", 1.5), ("true", True), ('"5"', "5"), ("tea", "tea"), ("null", "null"), ("[1]", "[1]"), ("", "")],
)
def test_a_value_has_the_type_that_its_text_suggests(text: str, value: Any) -> None:
    assert scalar(text) == value
    assert attributes([f"a={text}"]) == {"a": value}
