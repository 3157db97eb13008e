"""The effects of one call."""

from dataclasses import fields
from typing import Any

import pytest

from ocean.state.effects import Effects

SOMETHING: dict[str, Any] = {"attributes": {"a": 1}, "delete_session_by": "clog", "release_dedupe_key": True}
NAMES = [field.name for field in fields(Effects)]


def with_only(name: str) -> Effects:
    effects = Effects()
    setattr(effects, name, SOMETHING.get(name, [object()]))
    return effects


def test_effects_without_a_change_are_empty() -> None:
    assert Effects().is_empty


@pytest.mark.parametrize("name", NAMES)
def test_every_effect_except_a_guard_is_a_change(name: str) -> None:
    assert with_only(name).is_empty is (name == "guards")


@pytest.mark.parametrize("name", NAMES)
def test_the_effects_of_a_nested_call_are_absorbed(name: str) -> None:
    effects, nested = Effects(), with_only(name)
    effects.absorb(nested)
    assert getattr(effects, name) == getattr(nested, name)
