"""JSON text is parsed strictly, at a cost linear in its length."""

from typing import Any

import pytest

from ocean.state import values
from ocean.state.values import strict_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"b": 1, "c": 2, "b": 1}}', "an object has 'b' twice"),
        ("[NaN]", "NaN is not a JSON number"),
        ("-Infinity", "-Infinity is not a JSON number"),
        ("[" * 100_000, "it is nested too deeply"),
        ("{", "Expecting property name"),
    ],
    ids=lambda value: value[:20],
)
def test_text_that_other_parsers_read_differently_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json(text)


def test_every_other_text_is_parsed_as_usual() -> None:
    assert strict_json('{"a": [1, 1.5, null, "x", {}], "b": {"a": true}}') == {
        "a": [1, 1.5, None, "x", {}],
        "b": {"a": True},
    }


def test_a_duplicate_name_is_found_without_comparing_all_pairs() -> None:
    looks = 0

    class Name(str):
        def __hash__(self) -> int:
            return super().__hash__()

        def __eq__(self, other: Any) -> bool:
            nonlocal looks
            looks += 1
            return super().__eq__(other)

    names = [Name(f"{n:04}") for n in range(1_000)]
    with pytest.raises(ValueError, match="'0999' twice"):
        values._object([(name, 0) for name in (*names, Name("0999"))])
    assert looks < 100
