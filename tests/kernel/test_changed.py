"""`changed` is `dataclasses.replace` for runs, only faster."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from ocean.kernel.records import Run, RunStatus, changed
from tests.kernel.test_transitions import a_run


@pytest.mark.parametrize("field", [field.name for field in fields(Run)])
def test_one_field_changes_and_no_other(field: str) -> None:
    run = a_run("waiting")
    said: dict[str, Any] = {field: "something else"}
    assert changed(run, **said) == replace(run, **said)
    assert getattr(run, field) != "something else"


def test_what_it_makes_is_a_run_like_any_other() -> None:
    run = changed(a_run("idle"), status=RunStatus.DONE, ended_at=7)
    assert (run.is_ended, hash(run)) == (True, hash(replace(a_run("idle"), status=RunStatus.DONE, ended_at=7)))
    with pytest.raises(FrozenInstanceError):
        run.attempt = 3  # type: ignore[misc]


def test_a_field_that_is_none_is_refused() -> None:
    said: dict[str, Any] = {"staus": "done"}
    with pytest.raises(KeyError, match="staus"):
        changed(a_run("idle"), **said)
