"""Building records from rows."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from ocean.state.records import Event, Input, InputKind, RunInfo
from ocean.stores.shared.rows import constructor_of

RECORDS: list[type[Any]] = [RunInfo, Event, Input]


@pytest.mark.parametrize("record", RECORDS)
def test_the_fast_constructor_builds_an_equal_record(record: type[Any]) -> None:
    values = [InputKind.SIGNAL if field.name == "kind" else field.name for field in dataclasses.fields(record)]
    made = constructor_of(record)(*values)
    assert type(made) is record
    assert made == record(*values)
    assert repr(made) == repr(record(*values))
    assert hash(made) == hash(record(*values))
    assert dataclasses.astuple(made) == tuple(values)
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made
    assert dataclasses.replace(made, **{dataclasses.fields(record)[0].name: 0}) != made


@pytest.mark.parametrize("record", RECORDS)
def test_the_fast_constructor_builds_a_frozen_record(record: type[Any]) -> None:
    fields = dataclasses.fields(record)
    made = constructor_of(record)(*range(len(fields)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, fields[0].name, None)
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("record", RECORDS)
def test_the_fast_constructor_needs_every_field(record: type[Any]) -> None:
    with pytest.raises(TypeError, match="missing"):
        constructor_of(record)(*range(len(dataclasses.fields(record)) - 1))


def test_a_record_with_a_post_init_has_no_fast_constructor() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Checked:
        size: int

        def __post_init__(self) -> None:
            raise ValueError("never")

    with pytest.raises(AssertionError, match="Checked must not have a __post_init__"):
        constructor_of(Checked)
